//! The conformance suite on the memory store.

use idem_core::conformance::{Fresh, Harness};
use idem_memory::MemoryStore;

struct Memory;

#[async_trait::async_trait]
impl Harness for Memory {
    type Store = MemoryStore;
    type Guard = ();

    async fn fresh(&self) -> Fresh<MemoryStore> {
        Fresh::new(MemoryStore::default())
    }

    fn race_rounds(&self) -> usize {
        2_000
    }
}

idem_core::conformance_suite!(Memory);
