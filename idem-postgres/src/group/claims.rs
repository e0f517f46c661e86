//! Inserts of a group: [`ClaimGroups`].

use super::lane::{Asked, Errand};
use super::{fail, may_be_one_items, names};
use crate::link::Answer;
use crate::row::{column, instant, record};
use crate::single::{Insertion, Single, lease_ms, retention_micros};
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
            Ok(Some(mut won)) => {
                let (winners, others): (Vec<_>, Vec<_>) =
                    group.into_iter().partition(|asked| won.contains_key(&asked.item.owner));
                for asked in winners {
                    if let Some(version) = won.remove(&asked.item.owner) {
                        let _gone = asked.reply.send(Ok(Inserted::Won(version)));
                    }
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
    /// Who won; `None` if somebody in it has to wait for a rival.
    async fn insert(&self, group: &[Asked<Self>]) -> Result<Option<HashMap<Owner, Version>>, Error> {
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
                rows.iter().map(won).collect::<Result<_, _>>().map(Some).map_err(|error| {
                    // The rows are there, and nobody can say whose.
                    error.with_write_outcome(WriteOutcome::Unknown)
                })
            }
        }
    }

    /// Reads the rows that were in the way, each once, by a statement of its own: it sees every row that won.
    async fn find(&self, others: Vec<Asked<Self>>) {
        if others.is_empty() {
            return;
        }
        let mut identities: Vec<_> = others.iter().map(|asked| asked.item.identity.clone()).collect();
        identities.dedup();
        let (scopes, keys) = names(identities.iter());
        let values = [Value::Texts(&scopes), Value::Texts(&keys)];
        let found = match self.single.link.run("insert", &self.single.sql.load_group, &values).await {
            Ok(Answer::Rows(rows)) => rows,
            Ok(Answer::RivalUncommitted) => {
                return fail(others, &Error::new(ErrorKind::Unavailable, "insert", WriteOutcome::NotApplied));
            }
            Err(error) => return fail(others, &error.with_write_outcome(WriteOutcome::NotApplied)),
        };
        let mut rows: Vec<Option<&PgRow>> = vec![None; identities.len()];
        for row in &found {
            let number = column::<i64>("insert", row, "number").ok().and_then(|number| usize::try_from(number).ok());
            if let Some(place) = number.and_then(|number| rows.get_mut(number.wrapping_sub(1))) {
                *place = Some(row);
            }
        }
        let mut vanished = Vec::new();
        let mut place = 0;
        for asked in others {
            while identities.get(place).is_some_and(|identity| *identity != asked.item.identity) {
                place += 1;
            }
            match rows.get(place).copied().flatten().map(existing) {
                Some(Ok(Some(existing))) => {
                    let _gone = asked.reply.send(Ok(existing));
                }
                Some(Err(error)) => {
                    let _gone = asked.reply.send(Err(error));
                }
                // It was purged in between, say.
                Some(Ok(None)) | None => vanished.push(asked),
            }
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

fn won(row: &PgRow) -> Result<(Owner, Version), Error> {
    let owner = Owner::from_uuid(column::<Uuid>("insert", row, "owner")?);
    Ok((owner, Version { locked_at: instant("insert", row, "locked_at")?, owner }))
}

fn existing(row: &PgRow) -> Result<Option<Inserted>, Error> {
    let clock = instant("insert", row, "clock")?;
    Ok(record("insert", row)?.map(|record| Inserted::Existing(record, clock)))
}
