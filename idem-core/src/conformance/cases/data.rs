//! Bytes in, bytes out: names, fingerprints, answers, recovery data, instants.

use super::standing::Standing;
use super::trial::{HOUR, Trial, answer, brief_claim, claim, complete, identity, next, request_of, take_over};
use crate::fingerprint::{Fingerprint, HashKey};
use crate::key::Identity;
use crate::machine::Change;
use crate::policy::{Policy, Takeover};
use crate::record::{RecoveryPoint, Status};
use crate::response::Response;
use crate::store::StuckQuery;
use crate::time::{LeaseLength, Timestamp};
use bytes::Bytes;
use std::time::Duration;

fn every_byte() -> Vec<u8> {
    (0..=255).collect()
}

/// Names that a careless store takes for each other, for syntax, or for nothing.
fn awkward_names() -> Vec<String> {
    let longest = [
        "k".repeat(255),
        "k".repeat(254),
        format!("{}l", "k".repeat(254)),
        format!("{}{}", "\u{1F980}".repeat(63), "end"),
        "%".repeat(255),
    ];
    #[rustfmt::skip]
    let short = [
        "a", "A", " a", "a ", "a  ", "a\u{a0}", "a\u{200b}", "\u{feff}a", "aa", "0", "00", "1e0", "-1", "null", "NULL",
        "o'brien", "''", "\"quoted\"", "`", "'; DROP TABLE idem.record; --", "1 OR 1=1", "$1", "$$", "?", ":a", "@a", "#a",
        "\\", "\\\\", "\\0", "\\x61", "%", "_", "a%", "a_", "ab", "*", "a*", "[a]", "{a}", "{}", "a/b", "a//b", "a:b", "a,b",
        "a;b", "a|b", "a~1b", "a\u{2028}b", "(a,b)", "..", "%61", "&amp;", "<a>",
        "\u{e9}", "e\u{301}", "\u{c9}", "E\u{301}", "i", "I", "\u{130}", "\u{131}", "k", "K", "\u{212a}", "ss", "SS", "\u{df}",
        "\u{1e9e}", "\u{fb01}", "fi", "\u{ff41}", "\u{1F980}", "\u{1F469}\u{200d}\u{1F4BB}", "\u{5d0}\u{5d1}", "\u{202e}a",
        "\u{10ffff}", "\u{fffd}",
    ];
    let names = short.map(str::to_owned).into_iter().chain(longest);
    names.collect()
}

/// Claims each name once; every one must be new, and every one must be found again.
async fn are_all_different(trial: &Trial, identities: Vec<Identity>) {
    let mut records = Vec::new();
    for identity in identities {
        // Stale at once, since `stuck` is what gives names back.
        let record = trial.win(brief_claim(&identity)).await;
        records.push((identity, record));
    }
    let mut last = Timestamp::from_micros(i64::MIN);
    for (identity, record) in &records {
        assert_eq!(trial.record(identity).await, *record, "{} finds its own record", identity.key().as_str());
        last = last.max(record.version.locked_at);
    }
    trial.until(last).await;
    let mut listed: Vec<Identity> =
        trial.all_stuck(&StuckQuery::default()).await.into_iter().map(|stuck| stuck.identity).collect();
    let mut claimed: Vec<Identity> = records.into_iter().map(|(identity, _)| identity).collect();
    listed.sort();
    claimed.sort();
    assert!(listed == claimed, "names come back byte for byte");
}

pub(super) async fn keys_are_compared_byte_for_byte(trial: Trial) {
    are_all_different(&trial, awkward_names().iter().map(|name| identity("acct_1", name)).collect()).await;
}

pub(super) async fn scopes_are_compared_byte_for_byte(trial: Trial) {
    are_all_different(&trial, awkward_names().iter().map(|name| identity(name, "k")).collect()).await;
}

pub(super) async fn two_scopes_never_meet(trial: Trial) {
    // The last ones give the same text when they are joined without care.
    let pairs =
        [("acct_1", "k"), ("acct_2", "k"), ("k", "acct_1"), ("a", "b/c"), ("a/b", "c"), ("a:b", "c"), ("a", "b:c")];
    are_all_different(&trial, pairs.map(|(scope, key)| identity(scope, key)).to_vec()).await;
    let (mine, yours) = (identity("acct_1", "k"), identity("acct_2", "k"));
    let untouched = trial.record(&yours).await;
    let record = trial.record(&mine).await;
    let completed = trial.apply(&mine, &record, &complete(&record, answer("mine"))).await;
    assert_eq!(trial.record(&yours).await, untouched, "one tenant's answer is not another's");
    trial.refuse(&mine, &untouched.version, &complete(&untouched, answer("yours")), &completed).await;
}

async fn comes_back(trial: &Trial, response: Response) {
    let (identity, record) = trial.stand(Standing::Marked).await;
    let completed = trial.apply(&identity, &record, &complete(&record, response.clone())).await;
    let crate::State::Completed(stored) = completed.state else { panic!("it is completed") };
    assert_eq!(stored.encode_head(), response.encode_head(), "code, headers and trailers come back");
    assert!(stored.body() == response.body(), "the body comes back");
}

pub(super) async fn every_byte_comes_back(trial: Trial) {
    comes_back(&trial, Response::new(200, every_byte())).await;
    comes_back(&trial, Response::value(every_byte())).await;
    let fields = Response::new(200, "").with_header("x-raw", every_byte()).with_trailer("x-sum", every_byte());
    comes_back(&trial, fields.with_seal_key_id("2024-\u{e4}")).await;
    comes_back(&trial, Response::new(200, &b"{\"a\":\"\\u0000\"}\0\xff\xfe"[..])).await;
    comes_back(&trial, Response::new(200, &b"\x89PNG\r\n\x1a\n\0\0"[..])).await;
    comes_back(&trial, Response::new(200, "\\x00ff")).await;
}

pub(super) async fn every_byte_of_recovery_data_comes_back(trial: Trial) {
    let mut names = awkward_names();
    names.push("charged".into());
    let (identity, mut record) = trial.stand(Standing::Fresh).await;
    for (index, name) in names.into_iter().enumerate() {
        let data = if index % 2 == 0 {
            Bytes::from(every_byte())
        } else {
            Bytes::from(vec![index as u8; 65_536 * (index % 3)])
        };
        let recovery_point = RecoveryPoint { name, data };
        let change = Change::Checkpoint { lease: record.lease.next(), recovery_point };
        record = trial.apply(&identity, &record, &change).await;
    }
}

pub(super) async fn empty_is_not_absent(trial: Trial) {
    let empties = [
        Response::new(204, ""),
        Response::new(200, ""),
        Response::value(""),
        Response::value("null"),
        Response::value("{}"),
        Response::new(0, ""),
        Response::new(u16::MAX, ""),
        Response::tombstone(Some(201), 0),
        Response::tombstone(Some(201), u64::MAX),
        Response::tombstone(None, 1 << 40),
        Response::new(200, "").with_header("x-empty", ""),
        Response::new(200, "").with_trailer("x-empty", ""),
        Response::new(200, "").with_header("", "no name"),
        Response::new(200, "").with_seal_key_id(""),
    ];
    for response in empties {
        comes_back(&trial, response).await;
    }
    let (identity, record) = trial.stand(Standing::Fresh).await;
    let recovery_point = RecoveryPoint { name: "begun".into(), data: Bytes::new() };
    let change = Change::Checkpoint { lease: record.lease.next(), recovery_point };
    let record = trial.apply(&identity, &record, &change).await;
    // An empty recovery point survives a takeover and a completion, too.
    let record = trial.apply(&identity, &record, &take_over(&record)).await;
    trial.apply(&identity, &record, &complete(&record, Response::value(""))).await;
}

pub(super) async fn fields_keep_their_order_and_repeats(trial: Trial) {
    let mut response = Response::new(200, "x");
    for index in 0..300 {
        let name = ["vary", "link", "x-b", "x-a"][index % 4];
        // Some are repeated whole.
        response = response.with_header(name, format!("value {}", index / 8)).with_trailer(name, "same");
    }
    comes_back(&trial, response).await;
}

pub(super) async fn a_large_answer_comes_back(trial: Trial) {
    let body: Vec<u8> = (0..1_048_576_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    comes_back(&trial, Response::new(200, body)).await;
    comes_back(&trial, Response::new(200, vec![0; 1_048_576])).await;
    comes_back(&trial, Response::new(200, "").with_header("x-large", vec![b'h'; 65_536])).await;
}

pub(super) async fn fingerprints_come_back(trial: Trial) {
    let key = HashKey::new("2024-06", [7; 32]).expect("the id is valid");
    let keyed = Fingerprint::builder("POST /v1/accounts/{id}/charges")
        .path_parameter("id", "42")
        .query("expand", "customer")
        .header("stripe-account", "acct_1")
        .json(br#"{"amount":100}"#)
        .hash_key(&key)
        .finish();
    let keyed = keyed.expect("the request has a fingerprint").current().clone();
    // Made by a later release: kept as it is.
    let later = Fingerprint::from_bytes(&[&[200][..], &every_byte()].concat()).expect("a later scheme is kept");
    let longest = Fingerprint::from_bytes(&[201; Fingerprint::MAX_LENGTH]).expect("a later scheme is kept");
    for fingerprint in [keyed, later, longest] {
        let identity = trial.identity();
        let claim = crate::Claim::new(identity.clone(), fingerprint.clone(), Takeover::Resume).with_retention(HOUR);
        let record = trial.win(claim).await;
        let record = trial.apply(&identity, &record, &complete(&record, answer("done"))).await;
        let next = crate::machine::NextOwnership { attempt: 1, ..next(&record) };
        for fingerprint in [fingerprint, request_of(b"new")] {
            let as_new = Change::AsNew { from: Status::Completed, read_lease: record.lease, next, fingerprint };
            // The second one finds the first and is refused.
            match trial.record(&identity).await {
                now if now == record => drop(trial.apply(&identity, &record, &as_new).await),
                now => trial.refuse(&identity, &record.version, &as_new, &now).await,
            }
        }
    }
}

pub(super) async fn microseconds_come_back(trial: Trial) {
    for odd in [1, 9, 999, 1_001, 123_456] {
        let (identity, record) = trial.stand(Standing::Fresh).await;
        let mut next = next(&record);
        // The next full second and then some: every digit below it is the case's choice.
        let second = record.version.locked_at.as_micros() / 1_000_000 * 1_000_000 + 1_000_000;
        next.version.locked_at = Timestamp::from_micros(second + odd);
        next.expires_at = Timestamp::from_micros(second + 7_200_000_000 + 10 * odd + 1);
        let change = Change::Takeover { from: Status::InProgress, read_lease: record.lease, next, unresolved: 1 };
        let record = trial.apply(&identity, &record, &change).await;
        let expires_at = record.expires_at.saturating_add(Duration::from_micros(3));
        let record = trial.apply(&identity, &record, &Change::Fail { clear_marks: true, expires_at }).await;
        // created_at takes the microseconds of locked_at when a life begins.
        let mut next = super::trial::next(&record);
        next.attempt = 1;
        next.version.locked_at = Timestamp::from_micros(second + 1_000_000 + odd);
        let fingerprint = request_of(b"new");
        let change = Change::AsNew { from: Status::Failed, read_lease: record.lease, next, fingerprint };
        trial.apply(&identity, &record, &change).await;
    }
}

pub(super) async fn extremes_come_back(trial: Trial) {
    let identity = trial.identity();
    let longest = claim(&identity).with_lease(LeaseLength::MAX).with_retention(Policy::MAX_RETENTION);
    let record = trial.win(longest).await;
    let mut next = next(&record);
    next.lease = LeaseLength::MAX;
    // What an `int` column holds at the most, and an instant of the year 9999.
    next.attempt = i32::MAX.unsigned_abs();
    next.expires_at = Timestamp::from_micros(253_402_300_799_999_999);
    let change = Change::Takeover {
        from: Status::InProgress,
        read_lease: LeaseLength::MAX,
        next,
        unresolved: i32::MAX.unsigned_abs(),
    };
    let record = trial.apply(&identity, &record, &change).await;
    let fail = Change::Fail { clear_marks: false, expires_at: record.expires_at };
    let failed = trial.apply(&identity, &record, &fail).await;
    assert_eq!(trial.purge_all(&Default::default()).await, (0, 0));
    assert_eq!(trial.record(&identity).await, failed);
}
