//! Runs all processes, kills each of them at random while clients retry, and counts what came of it.

mod audit;
mod clients;
mod processes;

use crate::AnyError;
use crate::cli::StormArgs;
use crate::tables::Tables;
use audit::Audit;
use clients::{Clients, Done};
use idem_tests::rig::postgres::{Database, Postgres, Version};
use idem_tests::rig::redis::{Flavour, Redis};
use processes::Processes;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::time::Duration;
use tokio::time::sleep;

/// The servers between which the chain runs. They go with the value.
struct Servers {
    database_url: String,
    redis_url: String,
    // Dropped in this order.
    _own: Option<(Database, Postgres, Redis)>,
}

impl Servers {
    async fn of(args: &StormArgs) -> Result<Self, AnyError> {
        if let (Some(database_url), Some(redis_url)) = (&args.database_url, &args.redis_url) {
            return Ok(Self { database_url: database_url.clone(), redis_url: redis_url.clone(), _own: None });
        }
        let postgres = Postgres::options().own().version(Version::Any).try_start().await?;
        let database = postgres.database().await;
        // What Redis acknowledges and forgets is lost: the relay has taken it off the outbox.
        let redis = Redis::own(Flavour::Redis, &[("appendonly", "yes"), ("appendfsync", "always")]).await?;
        Ok(Self {
            database_url: database.url().to_owned(),
            redis_url: redis.url().to_owned(),
            _own: Some((database, postgres, redis)),
        })
    }
}

/// Whether nothing was lost and nothing doubled.
pub(crate) async fn run(args: StormArgs) -> Result<bool, AnyError> {
    let servers = Servers::of(&args).await?;
    let tables = Tables::open(&servers.database_url).await?;
    let mut random = StdRng::seed_from_u64(args.seed);
    let mut processes = Processes::start(&servers.database_url, &servers.redis_url, args.naive).await?;
    let clients = Clients::start(&processes.addresses(), args.clients, args.seed);

    #[expect(clippy::disallowed_methods, reason = "a storm lasts for a while")]
    let now = tokio::time::Instant::now;
    let ends = now() + Duration::from_secs(args.seconds);
    let mut kills = 0;
    while now() < ends {
        sleep(Duration::from_millis(random.random_range(20..250))).await;
        processes.kill_one_of(&mut random).await?;
        kills += 1;
    }
    // The clients finish what they have begun; nobody is killed any more.
    let done: Vec<Done> = clients.finish().await?;
    let audit = Audit::of(&tables, &servers.redis_url, &processes.addresses(), &done).await?;
    processes.stop().await;
    println!("seed {}: {kills} kills, {audit}", args.seed);
    Ok(audit.holds())
}
