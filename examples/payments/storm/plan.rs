//! What every client does, as a function of the seed.

use crate::fault::rng;
use crate::service::handlers::{CHARGES, REFUNDS};
use rand::RngExt;
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

/// From this try on a client keeps to the ways on which answers come back.
const FIRST_QUIET_TRY: u32 = 6;
const TENANTS: u32 = 5;

/// What the whole storm is derived from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    /// Clients make a new key for each try.
    pub(crate) key_per_attempt: bool,
}

/// One thing that a client wants, once.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    weather: Weather,
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) route: &'static str,
    pub(crate) body: String,
    key: String,
    /// How many copies of the request start at once.
    pub(crate) copies: u32,
}

/// One operation of the storm: a charge and what goes on around it.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) order: String,
    pub(crate) amount: u64,
    pub(crate) charge: Errand,
    pub(crate) impostor: Option<Impostor>,
    pub(crate) refund: bool,
}

/// Another request under the same key: the part of it that is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Impostor {
    Body,
    Query,
    Route,
}

/// How one try goes over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Straight there, and the answer back.
    Straight,
    /// Through a proxy that may send it again, unseen.
    Proxied,
    /// The client waits this long and hangs up.
    Impatient(Duration),
    /// The client sends all of it, and is gone after this long without reading.
    Gone(Duration),
    /// The client hangs up half-way through the body.
    Half,
}

impl Plan {
    pub(crate) fn new(weather: Weather, index: u32) -> Self {
        let order = format!("order-{index:06}");
        let mut rng = rng(weather.seed, "plan", &order, 0);
        let amount = rng.random_range(100..90_000);
        let body = json!({ "order": order, "amount": amount, "currency": "usd" }).to_string();
        let charge = Errand {
            weather,
            name: order.clone(),
            // Neighbours are different tenants and share a key, which must not matter.
            tenant: format!("acct_{}", index % TENANTS),
            route: CHARGES,
            body,
            key: key(weather.seed, &format!("pair-{}", index / 2), 0),
            copies: if rng.random_range(0..100) < 45 { rng.random_range(2..=4) } else { 1 },
        };
        let impostor = match rng.random_range(0..100) {
            0..12 => Some(Impostor::Body),
            12..16 => Some(Impostor::Query),
            16..20 => Some(Impostor::Route),
            _ => None,
        };
        Self { order, amount, charge, impostor, refund: rng.random_range(0..100) < 20 }
    }

    /// To pay `charge` back.
    pub(crate) fn refund_of(&self, charge: &str) -> Errand {
        let weather = self.charge.weather;
        let name = format!("refund-{}", self.order);
        let copies = rng(weather.seed, "plan", &name, 0).random_range(1..=2);
        let body = json!({ "charge": charge, "amount": self.amount, "currency": "usd" }).to_string();
        let key = key(weather.seed, &name, 0);
        Errand { weather, name, tenant: self.charge.tenant.clone(), route: REFUNDS, body, key, copies }
    }
}

impl Errand {
    /// The key that a try sends: made once, before the first attempt, unless these clients do it wrong.
    pub(crate) fn key(&self, copy: u32, attempt: u32) -> String {
        match self.weather.key_per_attempt {
            false => self.key.clone(),
            true => key(self.weather.seed, &self.name, copy * 10_000 + attempt),
        }
    }

    /// How long after the others a copy starts: mostly not at all.
    pub(crate) fn head_start(&self, copy: u32) -> Duration {
        let mut rng = rng(self.weather.seed, "start", &self.name, copy);
        Duration::from_micros(if rng.random_range(0..3) == 0 { rng.random_range(0..20_000) } else { 0 })
    }

    /// How a try goes over the network.
    pub(crate) fn way(&self, copy: u32, attempt: u32) -> Way {
        let mut rng = rng(self.weather.seed, "way", &self.name, copy * 10_000 + attempt);
        let soon = |rng: &mut rand::rngs::StdRng| Duration::from_micros(rng.random_range(200..25_000));
        match rng.random_range(0..100) {
            0..25 => Way::Proxied,
            25..45 if attempt < FIRST_QUIET_TRY => Way::Impatient(soon(&mut rng)),
            45..57 if attempt < FIRST_QUIET_TRY => Way::Gone(soon(&mut rng)),
            57..62 if attempt < FIRST_QUIET_TRY => Way::Half,
            _ => Way::Straight,
        }
    }
}

/// A key as clients make them, out of the seed.
fn key(seed: u64, name: &str, n: u32) -> String {
    uuid::Builder::from_random_bytes(rng(seed, "key", name, n).random()).into_uuid().to_string()
}

/// A fresh seed, for whoever names none.
pub(crate) fn fresh_seed() -> u64 {
    Uuid::new_v4().as_u64_pair().0 >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_storm() {
        let weather = Weather { seed: 7, key_per_attempt: false };
        let shown = |seed| format!("{:?}", Plan::new(Weather { seed, ..weather }, 3));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
    }

    #[test]
    fn a_key_is_made_once_for_an_operation_and_shared_by_two_tenants() {
        let weather = Weather { seed: 7, key_per_attempt: false };
        let (one, two) = (Plan::new(weather, 4).charge, Plan::new(weather, 5).charge);
        assert_eq!(one.key(0, 1), one.key(3, 9));
        assert_eq!(one.key(0, 1), two.key(0, 1));
        assert_ne!(one.tenant, two.tenant);
        let wrong = Plan::new(Weather { key_per_attempt: true, ..weather }, 4).charge;
        assert_ne!(wrong.key(0, 1), wrong.key(0, 2));
    }
}
