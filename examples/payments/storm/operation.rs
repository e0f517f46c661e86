//! One operation: its first requests, an impostor, perhaps a refund, and at the end one more replay.

use super::client::{Client, ImpostorFate, Received};
use super::plan::{Errand, Plan, Weather};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How often an operation that has no answer yet is asked for again at the end.
const LAST_ASKS: u32 = 5;

/// What one client wanted, and everything that it was told.
#[derive(Debug)]
pub(crate) struct Ask {
    errand: Errand,
    /// Every answer of the operation itself, whichever copy got it.
    pub(crate) answers: Vec<Received>,
    /// Copies that never got a final answer.
    pub(crate) unanswered_copies: u32,
    acknowledged_under: Option<String>,
    /// The replay at the end.
    pub(crate) replay: Option<Received>,
    /// Whether it was still without an answer when nothing could be in its way any more.
    pub(crate) wedged: bool,
    pub(crate) tries: u32,
}

/// What happened to one operation of the storm.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) plan: Plan,
    pub(crate) charge: Ask,
    pub(crate) refund: Option<Ask>,
    pub(crate) impostors: Vec<ImpostorFate>,
    /// What the service said was refunded after the refund, if it said anything.
    pub(crate) refunded: Option<u64>,
}

impl Ask {
    fn new(errand: Errand) -> Self {
        Self {
            errand,
            answers: Vec::new(),
            unanswered_copies: 0,
            acknowledged_under: None,
            replay: None,
            wedged: false,
            tries: 0,
        }
    }

    /// The tenant and the key that its row is under.
    pub(crate) fn identity(&self) -> (String, String) {
        (self.errand.tenant.clone(), self.errand.key(0, 1))
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged_under.is_some()
    }

    /// The name of what was made, out of the first answer that has one.
    pub(crate) fn made(&self) -> Option<String> {
        let created = self.answers.iter().find(|received| received.answer.status == 201)?;
        let body: serde_json::Value = serde_json::from_slice(&created.answer.body).ok()?;
        Some(body["id"].as_str()?.to_owned())
    }

    async fn ask_again(&mut self, client: &Client) {
        for attempt in 0..LAST_ASKS {
            // It was acknowledged under this key, or it never was and this is the next try.
            let key = self.acknowledged_under.clone().unwrap_or_else(|| self.errand.key(0, self.tries + 1));
            self.tries += 1;
            if let Some(received) = client.ask(&self.errand, &key).await
                && received.is_final()
            {
                self.acknowledged_under = Some(key);
                self.replay = Some(received);
                return;
            }
            sleep(Duration::from_millis(20 << attempt)).await;
        }
        self.wedged = true;
    }
}

impl Past {
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.charge.is_acknowledged() && self.refund.as_ref().is_none_or(Ask::is_acknowledged)
    }
}

/// Runs one operation as its plan says.
pub(crate) async fn run(client: Arc<Client>, weather: Weather, index: u32) -> Past {
    let plan = Arc::new(Plan::new(weather, index));
    let mut charge = Ask::new(plan.charge.clone());
    let mut impostors = Vec::new();

    let mut copies = JoinSet::new();
    for copy in 0..plan.charge.copies {
        let (client, plan) = (Arc::clone(&client), Arc::clone(&plan));
        copies.spawn(async move {
            let impostor = plan.impostor.filter(|_| copy == 0).map(|impostor| (&*plan, impostor));
            client.run(&plan.charge, copy, impostor).await
        });
    }
    while let Some(joined) = copies.join_next().await {
        let Ok(told) = joined else { continue };
        impostors.extend(told.impostor);
        let first_answer = !charge.is_acknowledged();
        charge.add(told);
        // The others may still be asking.
        if let Some(impostor) = plan.impostor
            && let Some(key) = charge.acknowledged_under.clone().filter(|_| first_answer)
        {
            let made = charge.made();
            let secrets = made.as_deref().map_or(vec!["rcpt_", "receipt_failed"], |made| vec!["rcpt_", made]);
            impostors.push(client.try_impostor(&plan, impostor, &key, &secrets).await);
        }
    }

    let mut refund = None;
    let mut refunded = None;
    if let Some(made) = charge.made().filter(|_| plan.refund) {
        let mut ask = Ask::new(plan.refund_of(&made));
        let mut copies = JoinSet::new();
        for copy in 0..ask.errand.copies {
            let (client, errand) = (Arc::clone(&client), ask.errand.clone());
            copies.spawn(async move { client.run(&errand, copy, None).await });
        }
        while let Some(joined) = copies.join_next().await {
            if let Ok(told) = joined {
                ask.add(told);
            }
        }
        refunded = client.refunded(&plan.charge.tenant, &made).await;
        refund = Some(ask);
    }
    Past { plan: Arc::unwrap_or_clone(plan), charge, refund, impostors, refunded }
}

impl Ask {
    fn add(&mut self, told: super::client::Told) {
        self.tries += told.tries;
        self.answers.extend(told.answers);
        match told.acknowledged_under {
            Some(key) => self.acknowledged_under = self.acknowledged_under.take().or(Some(key)),
            None => self.unanswered_copies += 1,
        }
    }
}

/// Asks once more for everything, when all is over: the charges that were refunded meanwhile, too.
pub(crate) async fn ask_again(client: Arc<Client>, mut past: Past) -> Past {
    past.charge.ask_again(&client).await;
    if let Some(refund) = &mut past.refund {
        refund.ask_again(&client).await;
    }
    past
}
