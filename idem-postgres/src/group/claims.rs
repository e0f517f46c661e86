//! Inserts of a group: [`ClaimGroups`].

use super::lane::{Asked, Errand};
use super::{fail, may_be_one_items, names};
use crate::link::Answer;
use crate::row::{column, instant};
use crate::single::{Insertion, Single, existing, lease_ms, retention_micros};
use crate::statement::Value;
use idem_core::store::Inserted;
use idem_core::{Error, ErrorKind, Identity, Owner, Version, WriteOutcome};
use sqlx::postgres::PgRow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Sends the claims of a group, none of which was asked before.
pub(crate) struct ClaimGroups {
    pub(crate) single: Arc<Single>,
}

impl Errand for ClaimGroups {
    type Item = Insertion;
    type Answer = Result<Inserted, Error>;

    fn weight(insertion: &Insertion) -> usize {
        insertion.identity.scope().as_str().len() + insertion.identity.key().as_str().len() + 200
    }

    async fn run(self: Arc<Self>, mut group: Vec<Asked<Self>>) {
        // Stable: of two claims of one identity the first comes first, and the others find its row.
        group.sort_by(|one, other| one.item.identity.cmp(&other.item.identity));
        match self.insert(&group).await {
            Ok(Some(mut answers)) => {
                let mut others = Vec::new();
                for (place, asked) in places(&group).into_iter().zip(group) {
                    let answer = answers.take(place, asked.item.owner);
                    others.extend(unanswered(asked, answer));
                }
                self.find(others).await;
            }
            // One of them waits for a rival, or has something wrong with it.
            Ok(None) => self.split(group),
            Err(error) if may_be_one_items(&error) => self.split(group),
            Err(error) => fail(group, &error),
        }
    }
}

impl ClaimGroups {
    /// What came of it; `None` if somebody in it has to wait for a rival.
    async fn insert(&self, group: &[Asked<Self>]) -> Result<Option<Answers>, Error> {
        let mut items: Vec<&Insertion> = group.iter().map(|asked| &asked.item).collect();
        items.dedup_by(|later, earlier| later.identity == earlier.identity);
        let (scopes, keys) = names(items.iter().map(|item| &item.identity));
        let fingerprints: Vec<&[u8]> = items.iter().map(|item| &item.fingerprint[..]).collect();
        let owners: Vec<Owner> = items.iter().map(|item| item.owner).collect();
        let leases: Vec<i32> = items.iter().map(|item| lease_ms(item.lease)).collect();
        let retentions: Vec<i64> = items.iter().map(|item| retention_micros(item.retention)).collect();
        let values = [
            Value::Texts(&scopes),
            Value::Texts(&keys),
            Value::ByteStrings(&fingerprints),
            Value::Owners(&owners),
            Value::Ints(&leases),
            Value::Longs(&retentions),
        ];
        match self.single.link.run("insert", &self.single.sql.insert_group, &values).await? {
            Answer::RivalUncommitted => Ok(None),
            Answer::Rows(rows) => {
                // The rows are there, and nobody can say whose.
                let unknown = |error: Error| error.with_write_outcome(WriteOutcome::Unknown);
                Answers::new(items.len(), rows).map(Some).map_err(unknown)
            }
        }
    }

    /// Reads the rows that were in the way and came after the group's snapshot, each once, by a statement of its own: it sees every row that won.
    async fn find(&self, others: Vec<Asked<Self>>) {
        if others.is_empty() {
            return;
        }
        let places = places(&others);
        let mut identities: Vec<_> = others.iter().map(|asked| &asked.item.identity).collect();
        identities.dedup();
        let (scopes, keys) = names(identities.iter().copied());
        let values = [Value::Texts(&scopes), Value::Texts(&keys)];
        let found = match self.single.link.run("insert", &self.single.sql.load_group, &values).await {
            Ok(Answer::Rows(rows)) => Answers::by_number(identities.len(), rows),
            Ok(Answer::RivalUncommitted) => Err(Error::new(ErrorKind::Unavailable, "insert", WriteOutcome::NotApplied)),
            Err(error) => Err(error),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return fail(others, &error.with_write_outcome(WriteOutcome::NotApplied)),
        };
        let mut vanished = Vec::new();
        for (place, asked) in places.into_iter().zip(others) {
            let answer = match found.get(place) {
                Some(Some(row)) => self.single.existing_or_busy(row, &asked.item.identity),
                Some(None) | None => Ok(None),
            };
            // It was purged in between, say.
            vanished.extend(unanswered(asked, answer));
        }
        self.each(vanished).await;
    }

    /// Sends each identity's alone, in a task of its own: the lane goes on meanwhile.
    fn split(self: &Arc<Self>, mut group: Vec<Asked<Self>>) {
        while let Some(last) = group.last() {
            let identity = last.item.identity.clone();
            let from = group.partition_point(|asked| asked.item.identity < identity);
            let same = group.split_off(from);
            let this = Arc::clone(self);
            tokio::spawn(async move { this.each(same).await });
        }
    }

    /// Sends one after the other. Who follows one that waited for its rival in vain would do so, too, and is not sent.
    async fn each(&self, group: Vec<Asked<Self>>) {
        let mut blocked: Option<(Identity, Duration)> = None;
        for asked in group {
            let answer = match &blocked {
                Some((identity, retry_after)) if *identity == asked.item.identity => {
                    Ok(Inserted::Busy { retry_after: *retry_after })
                }
                _ => self.single.insert(&asked.item).await,
            };
            if let Ok(Inserted::Busy { retry_after }) = &answer {
                blocked = Some((asked.item.identity.clone(), *retry_after));
            }
            let _gone = asked.reply.send(answer);
        }
    }
}

/// What an insert of a group says.
struct Answers {
    won: HashMap<Owner, Version>,
    /// The rows that were there before, by the place of their identity.
    existing: Vec<Option<PgRow>>,
}

impl Answers {
    fn new(identities: usize, rows: Vec<PgRow>) -> Result<Self, Error> {
        let mut won = HashMap::with_capacity(identities);
        let mut existing = Vec::new();
        for row in rows {
            match column::<Option<Uuid>>("insert", &row, "winner")?.map(Owner::from_uuid) {
                Some(owner) => {
                    won.insert(owner, Version { locked_at: instant("insert", &row, "won_at")?, owner });
                }
                None => existing.push(row),
            }
        }
        Ok(Self { won, existing: Self::by_number(identities, existing)? })
    }

    /// Rows by the place of their identity, from the number that the server counted.
    fn by_number(identities: usize, rows: Vec<PgRow>) -> Result<Vec<Option<PgRow>>, Error> {
        let mut placed: Vec<Option<PgRow>> = std::iter::repeat_with(|| None).take(identities).collect();
        for row in rows {
            let number: i64 = column("insert", &row, "number")?;
            if let Some(place) = usize::try_from(number).ok().and_then(|number| placed.get_mut(number.wrapping_sub(1)))
            {
                *place = Some(row);
            }
        }
        Ok(placed)
    }

    /// What it says to the claim of this owner, whose identity has this place; nothing if the row in its way was not there before.
    fn take(&mut self, place: usize, owner: Owner) -> Result<Option<Inserted>, Error> {
        match (self.won.remove(&owner), self.existing.get(place)) {
            (Some(version), _) => Ok(Some(Inserted::Won(version))),
            (None, Some(Some(row))) => existing(row),
            (None, Some(None) | None) => Ok(None),
        }
    }
}

/// Answers a claim, or gives it back if there is no answer yet.
fn unanswered(asked: Asked<ClaimGroups>, answer: Result<Option<Inserted>, Error>) -> Option<Asked<ClaimGroups>> {
    let Some(answer) = answer.transpose() else { return Some(asked) };
    let _gone = asked.reply.send(answer);
    None
}

/// For each of a sorted group, which of its identities it asks for, counted from 0.
fn places(group: &[Asked<ClaimGroups>]) -> Vec<usize> {
    let each = group.chunk_by(|one, next| one.item.identity == next.item.identity).enumerate();
    each.flat_map(|(place, same)| same.iter().map(move |_| place)).collect()
}
