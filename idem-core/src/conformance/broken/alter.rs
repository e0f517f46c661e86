//! Mistakes in what is stored: names, answers, instants, numbers.

use super::Fault;
use crate::fingerprint::Fingerprint;
use crate::key::{Identity, Key, Scope};
use crate::record::{Record, State};
use crate::response::Response;
use crate::time::{LeaseLength, Timestamp};
use bytes::Bytes;
use std::collections::BTreeMap;

impl Fault {
    /// The name under which a store with this fault files a record.
    pub(super) fn filed(self, identity: &Identity) -> Identity {
        let (scope, key) = (identity.scope().as_str(), identity.key().as_str());
        let named = |scope: &str, key: &str| {
            let scope = Scope::new(scope).expect("made of a valid name");
            let key = Key::new(key).expect("made of a valid name");
            Identity::new(scope, key)
        };
        match self {
            Self::ScopeIgnored => named("anybody", key),
            // Only so long that it still is a name.
            Self::NamesJoinedCarelessly => named("joined", clip(&format!("{scope}/{key}"), 255)),
            Self::KeysFoldCase => named(scope, &key.to_ascii_lowercase()),
            Self::ScopesFoldCase => named(&scope.to_ascii_lowercase(), key),
            Self::KeysAreTrimmed if !key.trim_end().is_empty() => named(scope, key.trim_end()),
            Self::KeysAreCut => named(scope, clip(key, 254)),
            _ => identity.clone(),
        }
    }

    /// What is stored when this record is meant to be.
    pub(super) fn stored(self, mut record: Record) -> Record {
        let milliseconds = |at: Timestamp| Timestamp::from_micros(at.as_micros() / 1_000 * 1_000);
        match self {
            Self::InstantsInMilliseconds => {
                record.version.locked_at = milliseconds(record.version.locked_at);
                record.created_at = milliseconds(record.created_at);
                record.expires_at = milliseconds(record.expires_at);
            }
            Self::CountsAreShort => {
                record.attempt = record.attempt.min(32_767);
                record.unresolved = record.unresolved.min(32_767);
            }
            Self::LeaseIsShort => record.lease = record.lease.min(LeaseLength::from_millis(2_147_483)),
            Self::FingerprintIsCut => {
                let bytes = record.fingerprint.to_bytes();
                // What cannot be read back when it is cut stays whole, so that the fault shows as another value.
                if let Ok(cut) = Fingerprint::from_bytes(&bytes[..bytes.len().min(64)]) {
                    record.fingerprint = cut;
                }
            }
            Self::EmptyRecoveryDataIsNone => {
                record.recovery_point = record.recovery_point.filter(|point| !point.data.is_empty());
            }
            Self::RecoveryDataThroughLossyText => {
                if let Some(point) = &mut record.recovery_point {
                    point.data = lossy(&point.data);
                }
            }
            _ => {}
        }
        if let State::Completed(response) = record.state {
            record.state = State::Completed(self.answered(response));
        }
        record
    }

    fn answered(self, response: Response) -> Response {
        let body = response.body();
        match self {
            Self::BodyThroughLossyText => with(&response, lossy(body), |fields| fields),
            Self::BodyEndsAtZero => {
                let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
                with(&response, body.slice(..end), |fields| fields)
            }
            Self::LargeBodyIsCut => with(&response, body.slice(..body.len().min(65_536)), |fields| fields),
            Self::HeadersLoseRepeats => with(&response, body.clone(), |fields| {
                fields.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
            }),
            Self::HeadersAreSorted => with(&response, body.clone(), |mut fields| {
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                fields
            }),
            Self::TrailersAreLost => {
                let mut kept = bare(&response, body.clone());
                for (name, value) in response.headers() {
                    kept = kept.with_header(name, value.to_vec());
                }
                kept
            }
            Self::MissingCodeIs200 if response.code().is_none() && response.tombstone_length().is_none() => {
                Response::new(200, body.clone())
            }
            Self::TombstonesAreForgotten if response.tombstone_length().is_some() => match response.code() {
                Some(code) => Response::new(code, body.clone()),
                None => Response::value(body.clone()),
            },
            _ => response,
        }
    }
}

type Fields = Vec<(String, Vec<u8>)>;

/// The response with another body and with other fields.
fn with(response: &Response, body: Bytes, other: impl Fn(Fields) -> Fields) -> Response {
    let owned = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
    let mut made = bare(response, body);
    for (name, value) in other(response.headers().map(owned).collect()) {
        made = made.with_header(&name, value);
    }
    for (name, value) in other(response.trailers().map(owned).collect()) {
        made = made.with_trailer(&name, value);
    }
    made
}

/// Code and seal of a response around a body. Tombstones have neither body nor fields.
fn bare(response: &Response, body: Bytes) -> Response {
    let made = match (response.tombstone_length(), response.code()) {
        (Some(length), code) => Response::tombstone(code, length),
        (None, Some(code)) => Response::new(code, body),
        (None, None) => Response::value(body),
    };
    match response.seal_key_id() {
        Some(id) => made.with_seal_key_id(id),
        None => made,
    }
}

fn lossy(bytes: &[u8]) -> Bytes {
    Bytes::from(String::from_utf8_lossy(bytes).into_owned())
}

fn clip(name: &str, bytes: usize) -> &str {
    let mut end = name.len().min(bytes);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
