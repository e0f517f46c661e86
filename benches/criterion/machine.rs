//! The state machine alone: no store, no clock, no runtime.
//!
//! * `request`: what comes before every call: names are checked, the body is hashed.
//! * `claim`: making a claim out of a request's names and fingerprint, which mints an owner; the record that it inserts.
//! * `decide`: what a claim does about each kind of row that it may meet. What it decides is dropped, and counts.
//! * `propose`: what an owner sends, before it is sent.
//! * `apply`: what a store in the process makes of each change.
//! * `conclude`: what an owner makes of a row that it finds after a lost answer.
//!
//! All of it happens once in a call to the engine, or not at all, so a figure here is what a line of `engine` can win at
//! the most.
//!
//! `cargo bench -p idem-benches --bench machine`. Compare with another commit on the same machine: `-- --save-baseline
//! before` there, `-- --baseline before` here.

use criterion::{Criterion, criterion_group, criterion_main};
use idem_benches::sample::{REQUEST, request, response};
use idem_core::fingerprint::Candidates;
use idem_core::machine::{Change, Decision, Ownership, decide};
use idem_core::{
    Claim, Fingerprint, Identity, Key, LeaseLength, Policy, Record, RecoveryPoint, Scope, State, Takeover, Timestamp,
};
use std::hint::black_box;
use std::time::Duration;

/// When the record was made.
const MADE: Timestamp = Timestamp::from_micros(1_900_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const FLOOR: Duration = Duration::from_secs(3600);

fn at(after: Duration) -> Timestamp {
    MADE.saturating_add(after)
}

fn identity() -> Identity {
    Identity::new(Scope::new("acct_1").expect("a scope"), Key::new("order-7").expect("a key"))
}

fn fingerprint(body: &[u8]) -> Candidates {
    Fingerprint::builder("POST /v1/charges").json(body).finish().expect("a small body")
}

fn claim(takeover: Takeover) -> Claim {
    Claim::new(identity(), fingerprint(REQUEST), takeover)
}

fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request");
    group.bench_function("names", |bencher| bencher.iter(identity));
    group.bench_function("fingerprint", |bencher| bencher.iter(|| fingerprint(black_box(REQUEST))));
    group.bench_function("whole", |bencher| bencher.iter(|| request(black_box("order-7"))));
    group.finish();
}

fn claims(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("claim");
    let (policy, identity, candidates) = (Policy::default(), identity(), fingerprint(REQUEST));
    group.bench_function("new", |bencher| {
        bencher.iter(|| Claim::under(&policy, identity.clone(), candidates.clone(), Takeover::Resume));
    });
    let claim = claim(Takeover::Resume);
    group.bench_function("first record", |bencher| bencher.iter(|| claim.first_record(black_box(MADE))));
    group.finish();
}

/// A claim and the row that it meets.
struct Meeting {
    claim: Claim,
    record: Record,
    clock: Timestamp,
}

/// Every kind of meeting, by what is decided.
fn meetings() -> Vec<(&'static str, Meeting)> {
    let (early, stale, expired) = (at(SECOND), at(100 * SECOND), at(90_000 * SECOND));
    let mine = |clock| {
        let claim = claim(Takeover::Resume);
        Meeting { record: claim.first_record(MADE), claim, clock }
    };
    let live = mine(early).record;
    let completed = Record { state: State::Completed(response()), ..live.clone() };
    let failed = Record { state: State::Failed, ..live.clone() };
    let unknown_past = Record { unresolved: 1, ..failed.clone() };
    let later_scheme = Record { fingerprint: Fingerprint::from_bytes(&[9]).expect("a scheme"), ..live.clone() };
    let retry = |record: &Record, clock| Meeting { claim: claim(Takeover::Resume), record: record.clone(), clock };
    let other = Claim::new(identity(), fingerprint(b"{}"), Takeover::Resume);
    vec![
        ("acquired", mine(early)),
        ("relock", mine(stale)),
        ("as new", retry(&completed, expired)),
        ("mismatch", Meeting { claim: other, ..retry(&live, early) }),
        ("unknown scheme", retry(&later_scheme, early)),
        ("replay", retry(&completed, early)),
        ("retry", retry(&failed, early)),
        ("takeover of a failed one", retry(&unknown_past, early)),
        ("in progress", retry(&live, early)),
        ("takeover of a stale one", retry(&live, stale)),
        ("abandoned", Meeting { claim: claim(Takeover::Never), ..retry(&live, stale) }),
    ]
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for (name, Meeting { claim, record, clock }) in meetings() {
        group.bench_function(name, |bencher| {
            bencher.iter(|| decide(black_box(&record), black_box(&claim), black_box(clock)));
        });
    }
    group.finish();
}

fn point() -> RecoveryPoint {
    RecoveryPoint { name: "charged".to_owned(), data: "ch_1".into() }
}

fn proposals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("propose");
    let mut owner = Ownership::new(claim(Takeover::Resume).first_record(MADE));
    let (elapsed, length) = (SECOND, 90 * SECOND);
    group.bench_function("renew", |bencher| bencher.iter(|| owner.renew(black_box(elapsed), length)));
    group.bench_function("begin effect", |bencher| bencher.iter(|| owner.begin_effect(black_box(elapsed), length)));
    let point = point();
    group.bench_function("checkpoint", |bencher| {
        bencher.iter(|| owner.checkpoint(point.clone(), black_box(elapsed), length));
    });
    let owner = Ownership::new(claim(Takeover::Resume).first_record(MADE));
    let response = response();
    group.bench_function("complete", |bencher| {
        bencher.iter(|| owner.complete(response.clone(), black_box(elapsed), FLOOR));
    });
    group.bench_function("fail", |bencher| bencher.iter(|| owner.fail(false, black_box(elapsed), FLOOR)));
    group.finish();
}

/// Every change, with a record to which it applies.
fn changes() -> Vec<(Change, Record)> {
    let decided = meetings().into_iter().filter_map(|(_, Meeting { claim, record, clock })| {
        match decide(&record, &claim, clock) {
            Decision::Swap { change, .. } => Some((change, record)),
            _ => None,
        }
    });
    let lease = LeaseLength::from_duration(120 * SECOND);
    let expires_at = at(90_000 * SECOND);
    let live = claim(Takeover::Resume).first_record(MADE);
    let owned = [
        Change::Renew { lease },
        Change::BeginEffect { lease },
        Change::Checkpoint { lease, recovery_point: point() },
        Change::Complete { response: response(), expires_at },
        Change::Fail { clear_marks: false, expires_at },
        Change::Abandon,
    ];
    decided.chain(owned.map(|change| (change, live.clone()))).collect()
}

fn applications(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("apply");
    for (change, record) in changes() {
        assert!(change.apply(&record, &record.version).is_some(), "{change:?}");
        let name = format!("{:?} in {:?}", change.event(), record.status());
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(&change).apply(black_box(&record), &record.version));
        });
    }
    let refused = Change::Renew { lease: LeaseLength::ZERO };
    let record = claim(Takeover::Resume).first_record(MADE);
    assert!(refused.apply(&record, &record.version).is_none());
    group.bench_function("a refused one", |bencher| {
        bencher.iter(|| black_box(&refused).apply(black_box(&record), &record.version));
    });
    group.finish();
}

fn conclusions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("conclude");
    let mut owner = Ownership::new(claim(Takeover::Resume).first_record(MADE));
    let effect = owner.begin_effect(SECOND, 120 * SECOND);
    let complete = owner.complete(response(), SECOND, FLOOR);
    let after = |change: &Change| change.apply(owner.record(), &owner.version()).expect("it applies");
    let (marked, completed) = (after(&effect), after(&complete));
    let rival = claim(Takeover::Resume).first_record(at(200 * SECOND));
    for (name, found) in [("landed", &marked), ("lost", owner.record()), ("fenced", &rival)] {
        group.bench_function(format!("progress {name}"), |bencher| {
            bencher.iter(|| owner.judge_progress(black_box(&effect), Some(black_box(found))));
        });
    }
    for (name, found) in [("landed", &completed), ("lost", owner.record()), ("fenced", &rival)] {
        group.bench_function(format!("settlement {name}"), |bencher| {
            bencher.iter(|| owner.judge_settlement(black_box(&complete), Some(black_box(found))));
        });
    }
    group.finish();
}

criterion_group!(benches, requests, claims, decisions, proposals, applications, conclusions);
criterion_main!(benches);
