//! Events to Redis Streams: [`RedisStreams`].

use super::{OutboxEvent, PublishError, Publisher};
use async_trait::async_trait;
use redis::aio::ConnectionManager;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::fmt;

/// Publishes each event as an entry of the stream that its topic names, with the fields `id`, `aggregate` and `payload`.
///
/// Redis answers before an entry is on a disk unless it is set to `appendfsync always`: what it loses after that is
/// published no more. A cluster or a replica does not change that.
#[derive(Clone)]
pub struct RedisStreams {
    connection: ConnectionManager,
    max_length: Option<usize>,
}

impl RedisStreams {
    /// Publishes by this connection, which reconnects by itself.
    #[must_use]
    pub fn new(connection: ConnectionManager) -> Self {
        Self { connection, max_length: None }
    }

    /// About how many entries a stream keeps: the oldest go, read or not. Defaults to keeping all.
    #[must_use]
    pub fn with_max_length(mut self, entries: usize) -> Self {
        self.max_length = Some(entries);
        self
    }

    fn entry(&self, event: &OutboxEvent) -> Cmd {
        let mut command = redis::cmd("XADD");
        command.arg(event.topic());
        if let Some(entries) = self.max_length {
            command.arg("MAXLEN").arg("~").arg(entries);
        }
        command.arg("*").arg("id").arg(event.id()).arg("aggregate").arg(event.aggregate());
        command.arg("payload").arg(&event.payload()[..]);
        command
    }
}

#[async_trait]
impl Publisher for RedisStreams {
    async fn publish(&self, events: &[OutboxEvent]) -> Vec<Result<(), PublishError>> {
        let mut pipeline = Pipeline::with_capacity(events.len());
        for event in events {
            pipeline.add_command(self.entry(event));
        }
        // What one entry is refused for is its own.
        pipeline.ignore_errors();
        let answers: Result<Vec<Result<Value, RedisError>>, RedisError> =
            pipeline.query_async(&mut self.connection.clone()).await;
        match answers {
            Ok(answers) => {
                answers.into_iter().map(|answer| answer.map(drop).map_err(|error| refused(&error))).collect()
            }
            Err(error) => events.iter().map(|_| Err(refused(&error))).collect(),
        }
    }
}

impl fmt::Debug for RedisStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreams").field("max_length", &self.max_length).finish_non_exhaustive()
    }
}

/// The kind alone: a message may quote what was sent.
fn refused(error: &RedisError) -> PublishError {
    PublishError::new(format!("Redis: {:?}", error.kind()))
}
