//! From the outbox to the stream.

use crate::AnyError;
use crate::cli::RelayArgs;
use crate::signal::end_with_parent;
use crate::tables::Tables;
use idem_postgres::outbox::{RedisStreams, Relay, RelayOptions};
use std::time::Duration;

pub(crate) async fn run(args: RelayArgs) -> Result<(), AnyError> {
    if args.until_stdin_closes {
        end_with_parent()?;
    }
    let tables = Tables::open(&args.database_url).await?;
    let connection = redis::Client::open(args.redis_url)?.get_connection_manager().await?;
    let options = RelayOptions::default().with_interval(Duration::from_millis(20));
    let running = Relay::new(&tables.outbox, tables.pool, RedisStreams::new(connection), options).spawn();
    println!("relaying");
    std::future::pending::<()>().await;
    running.stop().await;
    Ok(())
}
