//! What answers are made of: [`Bodies`].

use bytes::Bytes;
use rand::{Rng as _, RngExt as _};
use std::fmt::Write as _;

/// Whether an answer can be compressed.
#[derive(clap::ValueEnum, serde::Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    /// Bytes at random, which no compression makes fewer.
    Random,
    /// A list of charges in JSON.
    Json,
}

/// Answers of one length, each cut from a long text at another place.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    text: Bytes,
    length: usize,
}

impl Bodies {
    pub(crate) fn new(content: Content, length: usize) -> Self {
        let size = (4 * length).max(1 << 16);
        let text = match content {
            Content::Random => {
                let mut bytes = vec![0; size];
                rand::rng().fill_bytes(&mut bytes);
                bytes
            }
            Content::Json => {
                let (mut text, mut numbers) = (String::with_capacity(size + 200), rand::rng());
                while text.len() < size {
                    let (id, amount): (u64, u32) = (numbers.random(), numbers.random_range(1..100_000));
                    let (customer, second) = (numbers.random_range(1..10_000), numbers.random_range(0..86_400));
                    let _ = write!(
                        text,
                        "{{\"id\":\"ch_{id:016x}\",\"object\":\"charge\",\"amount\":{amount},\"currency\":\"usd\",\
                         \"customer\":\"cus_{customer}\",\"created\":{},\"status\":\"succeeded\"}},",
                        1_790_000_000 + second
                    );
                }
                text.into_bytes()
            }
        };
        Self { text: text.into(), length }
    }

    /// How many bytes each has.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// What they are cut from.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// One of them.
    pub(crate) fn any(&self) -> Bytes {
        let from = rand::random_range(0..=self.text.len() - self.length);
        self.text.slice(from..from + self.length)
    }
}
