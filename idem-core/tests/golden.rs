//! What is stored for ever, against values that another implementation made (`scripts/golden.py`).
//!
//! The values in `tests/golden` are in databases: if a line fails, the code is wrong.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use idem_core::fingerprint::{BodyHasher, Comparison, Fingerprint, FingerprintBuilder, HashKey, JsonPointer};
use idem_core::{Identity, Key, Response, Scope, TagKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Bytes: a text, or hexadecimal digits where they are none.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Raw {
    Text(String),
    Hex { hex: String },
}

impl Raw {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.as_bytes().to_vec(),
            Self::Hex { hex } => hex::decode(hex).unwrap(),
        }
    }
}

trait Entry: DeserializeOwned {
    fn name(&self) -> &str;
    /// Compares what the code makes of the entry with what the entry says.
    fn check(&self);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FingerprintEntry {
    name: String,
    operation: String,
    #[serde(default)]
    path: Vec<(String, String)>,
    #[serde(default)]
    query: Vec<(String, String)>,
    #[serde(default)]
    query_string: String,
    #[serde(default)]
    headers: Vec<(String, Raw)>,
    body: Option<BodyEntry>,
    #[serde(default)]
    without: Vec<String>,
    key: Option<KeyEntry>,
    fingerprint: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    id: String,
    secret: Raw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyEntry {
    mode: Mode,
    boundary: Option<Raw>,
    content: Raw,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Json,
    Form,
    Multipart,
    Bytes,
}

impl Entry for FingerprintEntry {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) {
        let key = self.key.as_ref().map(|key| HashKey::new(&key.id, key.secret.bytes()).unwrap());
        let without: Vec<_> = self.without.iter().map(|pointer| JsonPointer::new(pointer).unwrap()).collect();
        let request = || {
            let mut builder = Fingerprint::builder(&self.operation);
            builder = self.path.iter().fold(builder, |builder, (name, value)| builder.path_parameter(name, value));
            builder = self.query.iter().fold(builder, |builder, (name, value)| builder.query(name, value));
            builder = builder.query_string(&self.query_string);
            builder = self.headers.iter().fold(builder, |builder, (name, value)| builder.header(name, value.bytes()));
            builder = without.iter().fold(builder, FingerprintBuilder::without);
            match &key {
                Some(key) => builder.hash_key(key),
                None => builder,
            }
        };
        let check = |builder: FingerprintBuilder<'_>| {
            let candidates = builder.finish().unwrap();
            assert_eq!(hex::encode(candidates.current().to_bytes()), self.fingerprint);
            let stored = Fingerprint::from_bytes(&hex::decode(&self.fingerprint).unwrap()).unwrap();
            assert_eq!(candidates.compare(&stored), Comparison::Equal);
        };

        let Some(body) = &self.body else { return check(request()) };
        let content = body.content.bytes();
        let boundary = body.boundary.as_ref().map(Raw::bytes).unwrap_or_default();
        let hasher = match body.mode {
            Mode::Json => return check(request().json(&content)),
            Mode::Form => return check(request().form(&content)),
            Mode::Multipart => {
                check(request().multipart(&boundary, &content));
                BodyHasher::multipart(&boundary)
            }
            Mode::Bytes => {
                check(request().bytes(&content));
                BodyHasher::bytes()
            }
        };
        for size in [1, 2, 3, 7, 64] {
            let mut hasher = hasher.clone();
            content.chunks(size).for_each(|chunk| hasher.update(chunk));
            check(request().body(hasher.finish()));
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseEntry {
    name: String,
    code: Option<u16>,
    #[serde(default)]
    headers: Vec<(String, Raw)>,
    #[serde(default)]
    trailers: Vec<(String, Raw)>,
    tombstone: Option<u64>,
    seal_key_id: Option<String>,
    head: String,
}

impl Entry for ResponseEntry {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) {
        let mut response = match (self.tombstone, self.code) {
            (Some(length), code) => Response::tombstone(code, length),
            (None, Some(code)) => Response::new(code, ""),
            (None, None) => Response::value(""),
        };
        for (name, value) in &self.headers {
            response = response.with_header(name, value.bytes());
        }
        for (name, value) in &self.trailers {
            response = response.with_trailer(name, value.bytes());
        }
        if let Some(id) = &self.seal_key_id {
            response = response.with_seal_key_id(id);
        }
        assert_eq!(hex::encode(response.encode_head()), self.head);
        assert_eq!(Response::decode(&hex::decode(&self.head).unwrap(), ""), Ok(response));
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DerivedKeyEntry {
    name: String,
    scope: String,
    key: String,
    label: String,
    derived_key: String,
}

impl Entry for DerivedKeyEntry {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) {
        assert_eq!(identity(&self.scope, &self.key).derived_key(&self.label), self.derived_key);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TagEntry {
    name: String,
    scope: String,
    key: String,
    secret: Raw,
    tag: String,
}

impl Entry for TagEntry {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) {
        let key = TagKey::new(self.secret.bytes().try_into().unwrap());
        assert_eq!(key.tag(&identity(&self.scope, &self.key)).to_string(), self.tag);
    }
}

fn identity(scope: &str, key: &str) -> Identity {
    Identity::new(Scope::new(scope).unwrap(), Key::new(key).unwrap())
}

/// Checks every line, and returns how many there are and which failed.
fn check_all<T: Entry>(file: &str, text: &str) -> (usize, Vec<String>) {
    let mut names = HashSet::new();
    let mut failed = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let entry: T = serde_json::from_str(line).unwrap_or_else(|error| panic!("{file}:{}: {error}", index + 1));
        assert!(names.insert(entry.name().to_owned()), "{file} has {:?} twice", entry.name());
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| entry.check())).is_err() {
            failed.push(format!("{file}:{}: {}", index + 1, entry.name()));
        }
    }
    (names.len(), failed)
}

/// Every file in the folder is read, and every line and field of it.
#[test]
fn what_is_stored_never_changes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (count, failed) = match file.as_str() {
            "derived-keys.jsonl" => check_all::<DerivedKeyEntry>(&file, &text),
            "fingerprints.jsonl" => check_all::<FingerprintEntry>(&file, &text),
            "responses.jsonl" => check_all::<ResponseEntry>(&file, &text),
            "tags.jsonl" => check_all::<TagEntry>(&file, &text),
            _ => panic!("nothing reads {file}"),
        };
        counts.insert(file, count);
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    // Lines are added and never removed; so these numbers grow.
    let expected =
        [("derived-keys.jsonl", 7), ("fingerprints.jsonl", 114), ("responses.jsonl", 17), ("tags.jsonl", 10)];
    assert_eq!(counts, BTreeMap::from(expected.map(|(file, count)| (file.to_owned(), count))));
}
