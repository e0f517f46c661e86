use super::{BrokenStore, CASES, Case, Fault, Fresh, Harness, ReferenceStore};

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

struct Broken(Fault);

#[async_trait::async_trait]
impl Harness for Broken {
    type Store = BrokenStore;
    type Guard = ();

    async fn fresh(&self) -> Fresh<BrokenStore> {
        Fresh::new(BrokenStore::new(self.0))
    }
}

/// What a case says about a store with a fault: `None` if it passes.
async fn verdict(case: &'static Case, fault: Fault) -> Option<String> {
    let outcome = tokio::spawn(async move { case.run(&Broken(fault)).await }).await;
    let panic = outcome.err()?.into_panic();
    Some(*panic.downcast::<String>().expect("a case fails with a text"))
}

/// The suite is tested, too: a case that does not fail on the store that was made for it guards nothing.
#[tokio::test(flavor = "multi_thread")]
async fn every_fault_fails_the_case_that_is_named_for_it() {
    let mut survivors = Vec::new();
    for &fault in Fault::ALL {
        let case = Case::named(fault.caught_by()).expect("a fault names a case");
        match verdict(case, fault).await {
            Some(failure) => assert!(failure.contains(case.invariant), "a failure names the invariant: {failure}"),
            None => survivors.push((fault, case.name)),
        }
    }
    assert!(survivors.is_empty(), "these faults pass the case that is to find them: {survivors:?}");
}

#[test]
fn names_and_invariants_are_said_once() {
    let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
    let mut invariants: Vec<_> = CASES.iter().map(|case| case.invariant).collect();
    names.sort_unstable();
    names.dedup();
    invariants.sort_unstable();
    invariants.dedup();
    assert_eq!((names.len(), invariants.len()), (CASES.len(), CASES.len()));
}
