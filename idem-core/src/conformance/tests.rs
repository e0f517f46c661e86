use super::{Fresh, Harness, ReferenceStore};

struct Reference;

#[async_trait::async_trait]
impl Harness for Reference {
    type Store = ReferenceStore;
    type Guard = ();

    async fn fresh(&self) -> Fresh<ReferenceStore> {
        Fresh::new(ReferenceStore::default())
    }

    fn race_rounds(&self) -> usize {
        2_000
    }
}

mod reference_store {
    use super::Reference;
    crate::conformance_suite!(Reference);
}
