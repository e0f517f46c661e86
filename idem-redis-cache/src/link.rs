//! The way to Redis: one multiplexed connection, made in the background, behind a circuit breaker.

use crate::config::{CacheConfig, Servers};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Redis, as far as it can be reached. Nobody waits for a connection: while there is none, calls go past it.
pub(crate) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    config: CacheConfig,
    state: Mutex<State>,
    in_flight: Semaphore,
}

struct State {
    standing: Standing,
    pauses: ExponentialBackoff,
}

enum Standing {
    /// The circuit is open, or nobody has asked yet; from this instant on the next caller starts a probe.
    Down { until: Instant },
    /// A probe is under way.
    Probing,
    /// The circuit is closed. So many calls have failed in a row, on a connection of this number.
    Up { connection: Connection, number: u64, failures: u32 },
}

/// Why a call came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Redis was not asked.
    Down,
    /// Redis was asked, and failed or was too slow.
    Failed,
}

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    pub(crate) fn new(config: CacheConfig) -> Self {
        let in_flight = Semaphore::new(config.max_in_flight);
        let state = State { standing: Standing::Down { until: now() }, pauses: pauses(&config) };
        Self { shared: Arc::new(Shared { config, state: Mutex::new(state), in_flight }) }
    }

    /// Whether calls reach Redis at the moment.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.shared.state().standing, Standing::Up { .. })
    }

    /// Sends commands that go out and come back together, within the timeout; each has an answer of its own.
    ///
    /// An entry of another type than ours is the entry's fault, any other refusal the server's.
    pub(crate) async fn ask(&self, mut pipeline: Pipeline) -> Result<Vec<RedisResult<Value>>, Miss> {
        let shared = &self.shared;
        let (mut connection, number) = Shared::connection(shared).ok_or(Miss::Down)?;
        let Ok(_permit) = shared.in_flight.try_acquire() else { return Err(Miss::Down) };
        let query = pipeline.ignore_errors().query_async::<Vec<RedisResult<Value>>>(&mut connection);
        let Ok(answers) = timeout(shared.config.timeout, query).await else {
            shared.failed(number, None);
            return Err(Miss::Failed);
        };
        let refused = |answer: &&RedisResult<Value>| answer.as_ref().is_err_and(|error| !is_wrong_type(error));
        match answers {
            Ok(answers) => match answers.iter().find(refused) {
                None => {
                    shared.succeeded(number);
                    Ok(answers)
                }
                Some(answer) => {
                    shared.failed(number, answer.as_ref().err());
                    Err(Miss::Failed)
                }
            },
            Err(error) => {
                shared.failed(number, Some(&error));
                Err(Miss::Failed)
            }
        }
    }
}

pub(crate) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

impl Clone for Link {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if there is one. If it is time to look for one, somebody does so in the background.
    fn connection(this: &Arc<Self>) -> Option<(Connection, u64)> {
        let mut state = this.state();
        match &state.standing {
            Standing::Up { connection, number, .. } => return Some((connection.clone(), *number)),
            Standing::Down { until } if *until <= now() => {}
            Standing::Down { .. } | Standing::Probing => return None,
        }
        state.standing = Standing::Probing;
        drop(state);
        let probe = Probe(Arc::clone(this));
        tokio::spawn(async move { probe.run().await });
        None
    }

    fn succeeded(&self, of: u64) {
        let mut state = self.state();
        if let Standing::Up { number, failures, .. } = &mut state.standing
            && *number == of
            && *failures > 0
        {
            *failures = 0;
        }
    }

    fn failed(&self, of: u64, error: Option<&RedisError>) {
        let mut state = self.state();
        let Standing::Up { number, failures, .. } = &mut state.standing else { return };
        if *number != of {
            return;
        }
        *failures += 1;
        // What the connection itself cannot survive needs no second look.
        let broken = error.is_some_and(|error| error.is_unrecoverable_error() || error.code().is_none());
        if broken || *failures >= self.config.failures {
            warn!(target: "idem", failures = *failures, error = ?error.map(RedisError::kind), "Redis is not asked for a while");
            self.down(&mut state);
        }
    }

    /// Opens the circuit. The connection goes too: the next one may come to another server, or past what holds this
    /// one.
    fn down(&self, state: &mut State) {
        let pause = state.pauses.next().unwrap_or(self.config.longest_pause);
        state.standing = Standing::Down { until: now() + pause };
    }
}

/// Looks for Redis. Dropped half-way (the runtime ends, or a panic), it leaves the circuit open and not in between.
struct Probe(Arc<Shared>);

impl Probe {
    async fn run(self) {
        let shared = &self.0;
        let found = timeout(shared.config.connect_timeout, shared.config.connect()).await;
        let mut state = shared.state();
        match found {
            Ok(Ok(connection)) => {
                debug!(target: "idem", "Redis is asked");
                state.pauses = pauses(&shared.config);
                state.standing = Standing::Up { connection, number: next_number(), failures: 0 };
            }
            Ok(Err(error)) => {
                debug!(target: "idem", kind = ?error.kind(), "Redis cannot be used");
                shared.down(&mut state);
            }
            Err(_) => {
                debug!(target: "idem", "Redis does not answer");
                shared.down(&mut state);
            }
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(state.standing, Standing::Probing) {
            self.0.down(&mut state);
        }
    }
}

impl CacheConfig {
    /// A connection on which a write was seen to work: one to a read-only server, or to a full one, is of no use.
    async fn connect(&self) -> RedisResult<Connection> {
        let mut connection = match &self.servers {
            Servers::One(client) => {
                // Its own limits are ours, which are on the outside.
                let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
                Connection::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Servers::Cluster(client) => Connection::Cluster(client.get_async_connection().await?),
        };
        let name = format!("{}probe", self.prefix);
        redis::cmd("SET").arg(name).arg(b"").arg("PX").arg(1).exec_async(&mut connection).await?;
        Ok(connection)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(command),
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("is_up", &self.is_up()).finish()
    }
}

fn pauses(config: &CacheConfig) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE.min(config.longest_pause))
        .with_max_delay(config.longest_pause)
        .with_jitter()
        .without_max_times()
        .build()
}

fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[expect(clippy::disallowed_methods, reason = "how long to leave Redis alone, on the client's monotonic clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
