//! The statement of a change, and its values.

use crate::single::{count, lease};
use crate::sql::Statements;
use crate::statement::Value;
use idem_core::machine::{Change, NextOwnership};
use idem_core::{Identity, LeaseLength, Version};
use std::sync::Arc;

impl Statements {
    /// The statement of `change` and its values; `encoded` is where one of them is kept that has to be encoded first.
    pub(crate) fn change<'a>(
        &'a self,
        identity: &'a Identity,
        expected: &Version,
        change: &'a Change,
        encoded: &'a mut Vec<u8>,
    ) -> (&'a Arc<str>, Vec<Value<'a>>) {
        let owned = [
            Value::Text(identity.scope().as_str()),
            Value::Text(identity.key().as_str()),
            Value::Instant(expected.locked_at),
            Value::Owner(expected.owner),
        ];
        let own = |read_lease: &LeaseLength, next: &NextOwnership| {
            [
                lease(*read_lease),
                Value::Instant(next.version.locked_at),
                Value::Owner(next.version.owner),
                lease(next.lease),
                count(next.attempt),
                Value::Instant(next.expires_at),
            ]
        };
        match change {
            Change::Retry { read_lease, next } => (&self.retry, [&owned[..], &own(read_lease, next)].concat()),
            Change::Relock { read_lease, next } => (&self.relock, [&owned[..], &own(read_lease, next)].concat()),
            Change::Takeover { from, read_lease, next, unresolved } => {
                let rest = [Value::Text(from.as_str()), count(*unresolved)];
                (&self.takeover, [&owned[..], &own(read_lease, next), &rest].concat())
            }
            Change::AsNew { from, read_lease, next, fingerprint } => {
                *encoded = fingerprint.to_bytes();
                let rest = [Value::Text(from.as_str()), Value::Bytes(encoded)];
                (&self.as_new, [&owned[..], &own(read_lease, next), &rest].concat())
            }
            Change::Renew { lease: proposed } => (&self.renew, [&owned[..], &[lease(*proposed)]].concat()),
            Change::BeginEffect { lease: proposed } => (&self.begin_effect, [&owned[..], &[lease(*proposed)]].concat()),
            Change::Checkpoint { lease: proposed, recovery_point } => {
                let rest = [lease(*proposed), Value::Text(&recovery_point.name), Value::Bytes(&recovery_point.data)];
                (&self.checkpoint, [&owned[..], &rest].concat())
            }
            Change::Complete { response, expires_at } => {
                *encoded = response.encode_head();
                let rest = [
                    Value::Instant(*expires_at),
                    Value::OptionalInt(response.code().map(i32::from)),
                    Value::Bytes(encoded),
                    Value::Bytes(response.body()),
                ];
                (&self.complete, [&owned[..], &rest].concat())
            }
            Change::Fail { clear_marks, expires_at } => {
                (&self.fail, [&owned[..], &[Value::Instant(*expires_at), Value::Bool(*clear_marks)]].concat())
            }
            Change::Abandon => (&self.abandon, owned.to_vec()),
        }
    }
}
