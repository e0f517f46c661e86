//! Completions of a group: [`CompletionGroups`].

use super::lane::{Asked, Errand};
use super::{fail, may_be_one_items, names};
use crate::link::Answer;
use crate::row::column;
use crate::single::Single;
use crate::statement::Value;
use idem_core::machine::Change;
use idem_core::store::Swapped;
use idem_core::{Error, Identity, Owner, Response, Timestamp, Version, WriteOutcome};
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;

/// Sends the completions of a group.
pub(crate) struct CompletionGroups {
    pub(crate) single: Arc<Single>,
}

/// One completion, as [`Change::Complete`] has it.
pub(crate) struct Completion {
    pub(crate) identity: Identity,
    pub(crate) expected: Version,
    pub(crate) response: Response,
    pub(crate) expires_at: Timestamp,
}

impl Errand for CompletionGroups {
    type Item = Completion;
    type Answer = Result<Swapped, Error>;

    fn weight(completion: &Completion) -> usize {
        completion.response.size() + 600
    }

    async fn run(self: Arc<Self>, mut group: Vec<Asked<Self>>) {
        group.sort_by(|one, other| one.item.identity.cmp(&other.item.identity));
        match self.complete(&group).await {
            Ok(Some(mut applied)) => {
                // A second one of the same owner is the same one again, sent after a lost answer; it looks for itself.
                let (done, others): (Vec<_>, Vec<_>) =
                    group.into_iter().partition(|asked| applied.remove(&asked.item.expected.owner));
                for asked in done {
                    let _gone = asked.reply.send(Ok(Swapped::Applied));
                }
                self.each(others).await;
            }
            Ok(None) => self.split(group),
            Err(error) if may_be_one_items(&error) => self.split(group),
            Err(error) => fail(group, &error),
        }
    }
}

impl CompletionGroups {
    /// The owners whose completions were applied; `None` if one of them has to wait for a rival.
    async fn complete(&self, group: &[Asked<Self>]) -> Result<Option<HashSet<Owner>>, Error> {
        let mut items: Vec<&Completion> = group.iter().map(|asked| &asked.item).collect();
        items.dedup_by(|later, earlier| later.identity == earlier.identity);
        let heads: Vec<Vec<u8>> = items.iter().map(|item| item.response.encode_head()).collect();
        let (scopes, keys) = names(items.iter().map(|item| &item.identity));
        let locked_at: Vec<Timestamp> = items.iter().map(|item| item.expected.locked_at).collect();
        let owners: Vec<Owner> = items.iter().map(|item| item.expected.owner).collect();
        let expires_at: Vec<Timestamp> = items.iter().map(|item| item.expires_at).collect();
        let codes: Vec<Option<i32>> = items.iter().map(|item| item.response.code().map(i32::from)).collect();
        let heads: Vec<&[u8]> = heads.iter().map(Vec::as_slice).collect();
        let bodies: Vec<&[u8]> = items.iter().map(|item| &item.response.body()[..]).collect();
        let values = [
            Value::Texts(&scopes),
            Value::Texts(&keys),
            Value::Instants(&locked_at),
            Value::Owners(&owners),
            Value::Instants(&expires_at),
            Value::OptionalInts(&codes),
            Value::ByteStrings(&heads),
            Value::ByteStrings(&bodies),
        ];
        match self.single.link.run("swap", &self.single.sql.complete_group, &values).await? {
            Answer::RivalUncommitted => Ok(None),
            Answer::Rows(rows) => {
                let owner = |row| column::<Uuid>("swap", row, "owner").map(Owner::from_uuid);
                let owners: Result<_, _> = rows.iter().map(owner).collect();
                owners.map(Some).map_err(|error| error.with_write_outcome(WriteOutcome::Unknown))
            }
        }
    }

    /// Sends each alone, in a task of its own: the lane goes on meanwhile.
    fn split(self: &Arc<Self>, group: Vec<Asked<Self>>) {
        for asked in group {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.each(vec![asked]).await });
        }
    }

    async fn each(&self, group: Vec<Asked<Self>>) {
        for Asked { item, reply } in group {
            let change = Change::Complete { response: item.response, expires_at: item.expires_at };
            let answer = self.single.swap(&item.identity, &item.expected, &change).await;
            let _gone = reply.send(answer);
        }
    }
}
