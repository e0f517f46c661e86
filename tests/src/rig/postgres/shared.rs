//! One server per test process, for the tests that leave it alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::{Postgres, Version};
use crate::rig::Error;

/// A failure is kept too, so that the second test without a server fails as fast as the first.
type Slot = OnceCell<Result<Postgres, Error>>;

static SLOTS: Mutex<Option<HashMap<Version, &'static Slot>>> = Mutex::new(None);

/// The server of this version that the tests of this process share. The first call starts it; it ends with the process.
///
/// Whoever stops or pauses it does so to all other tests: start one of your own for that.
///
/// # Panics
///
/// If there is none and none can be started; the message says what to install.
pub async fn shared(version: Version) -> &'static Postgres {
    let slot: &'static Slot = {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get_or_insert_default().entry(version).or_insert_with(|| Box::leak(Box::default()))
    };
    match slot.get_or_init(|| Postgres::options().version(version).try_start()).await {
        Ok(server) => server,
        Err(error) => panic!("{error}"),
    }
}
