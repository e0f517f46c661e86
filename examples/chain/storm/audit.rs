//! Counts, when everything has come to rest: for every answer one charge, one entry, and the same answer again.

use super::clients::Done;
use crate::AnyError;
use crate::consumer::GROUP;
use crate::tables::{TOPIC, Tables};
use idem_core::{Identity, Key, Scope};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamInfoGroupsReply;
use sqlx::PgPool;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::sleep;

/// How long the chain may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Audit {
    acknowledged: usize,
    charges: usize,
    entries: usize,
    /// Answers without a charge.
    lost_charges: usize,
    /// Operations with more than one.
    double_charges: usize,
    /// Charges of an answered operation without an entry.
    lost_events: usize,
    /// With more than one.
    double_events: usize,
    /// Entries whose amount is not the charge's.
    wrong_events: usize,
    /// Operations whose answer is another one when asked again.
    wrong_answers: usize,
    /// Operations that have a charge and no entry, or the other way round, although nobody was answered.
    unanswered_halves: usize,
    came_to_rest: bool,
}

impl Audit {
    pub(crate) async fn of(
        tables: &Tables,
        redis_url: &str,
        addresses: &[SocketAddr],
        done: &[Done],
    ) -> Result<Self, AnyError> {
        let mut audit = Self { acknowledged: done.len(), ..Self::default() };
        audit.came_to_rest = come_to_rest(&tables.pool, redis_url).await?;
        let charged: Vec<(String, i64)> =
            sqlx::query_as("SELECT key, amount FROM charges").fetch_all(&tables.pool).await?;
        let booked: Vec<(String, i64)> =
            sqlx::query_as("SELECT event, amount FROM entries").fetch_all(&tables.pool).await?;
        (audit.charges, audit.entries) = (charged.len(), booked.len());
        let (mut charged, mut booked) = (by_name(charged), by_name(booked));

        let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
        for (number, operation) in done.iter().enumerate() {
            let identity = Identity::new(Scope::new(&operation.account)?, Key::new(&operation.key)?);
            let charges = charged.remove(&operation.key).unwrap_or_default();
            let entries = booked.remove(&identity.derived_key("charged")).unwrap_or_default();
            audit.lost_charges += usize::from(charges.is_empty());
            audit.double_charges += usize::from(charges.len() > 1);
            audit.lost_events += usize::from(entries.is_empty());
            audit.double_events += usize::from(entries.len() > 1);
            audit.wrong_events += usize::from(entries.iter().any(|amount| *amount != operation.amount));
            let again = operation.ask(&client, addresses[number % addresses.len()]).await;
            audit.wrong_answers += usize::from(again.as_deref() != Some(&operation.answer));
        }
        // Every client waited for its answer, so that there is nothing else.
        audit.unanswered_halves = charged.len() + booked.len();
        Ok(audit)
    }

    pub(crate) fn holds(&self) -> bool {
        let wrong = self.lost_charges
            + self.double_charges
            + self.lost_events
            + self.double_events
            + self.wrong_events
            + self.wrong_answers
            + self.unanswered_halves;
        self.came_to_rest && self.acknowledged > 0 && wrong == 0
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers, {} charges, {} entries; ", self.acknowledged, self.charges, self.entries)?;
        write!(f, "charges lost {}, double {}; ", self.lost_charges, self.double_charges)?;
        write!(f, "events lost {}, double {}, wrong {}; ", self.lost_events, self.double_events, self.wrong_events)?;
        write!(f, "answers wrong {}; left over {}", self.wrong_answers, self.unanswered_halves)?;
        if self.came_to_rest { Ok(()) } else { write!(f, "; it did not come to rest") }
    }
}

fn by_name(rows: Vec<(String, i64)>) -> HashMap<String, Vec<i64>> {
    let mut by_name: HashMap<String, Vec<i64>> = HashMap::new();
    for (name, amount) in rows {
        by_name.entry(name).or_default().push(amount);
    }
    by_name
}

/// Waits until the outbox is empty and the consumers have acknowledged everything.
async fn come_to_rest(pool: &PgPool, redis_url: &str) -> Result<bool, AnyError> {
    let mut stream = redis::Client::open(redis_url)?.get_multiplexed_async_connection().await?;
    let pause = Duration::from_millis(100);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        let waiting: i64 = sqlx::query_scalar("SELECT count(*) FROM idem.outbox").fetch_one(pool).await?;
        if waiting == 0 && rests(&mut stream).await? {
            return Ok(true);
        }
        sleep(pause).await;
    }
    Ok(false)
}

async fn rests(stream: &mut MultiplexedConnection) -> Result<bool, AnyError> {
    let groups: StreamInfoGroupsReply = stream.xinfo_groups(TOPIC).await?;
    let Some(group) = groups.groups.into_iter().find(|group| group.name == GROUP) else { return Ok(false) };
    let last: Vec<(String, Vec<String>)> =
        redis::cmd("XREVRANGE").arg(TOPIC).arg("+").arg("-").arg("COUNT").arg(1).query_async(stream).await?;
    let read = last.first().is_none_or(|(last, _)| *last == group.last_delivered_id);
    Ok(read && group.pending == 0)
}
