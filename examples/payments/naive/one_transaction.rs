//! "The claim must commit before the side effect": here it does not. Claim, provider call and answer are one transaction of `PostgreSQL`, as
//! an ORM session makes it that commits at the end of the request.
//!
//! The insert is the right one, and it is in the wrong transaction. Every retry that comes meanwhile waits on the unique index, and
//! holds a connection for as long as the provider takes. And whatever ends the request before its end, a panic or a client that hangs up,
//! takes the claim back with everything else, but not the charge: the retry finds no key, and charges again.

use super::{Answer, Name, Row, Seen};
use crate::AnyError;
use crate::database::Table;
use crate::service::problem::Problem;
use axum::http::StatusCode;
use axum::response::Response as HttpResponse;
use bytes::Bytes;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use std::time::Duration;

/// As many as an application has.
const CONNECTIONS: u32 = 10;
/// How long a request waits for one of them.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct OneTransaction {
    pool: PgPool,
    insert: String,
    select: String,
    update: String,
    seen: Seen,
}

type Columns = (String, Vec<u8>, i32, Option<String>, Option<String>, Vec<u8>);

impl OneTransaction {
    /// With a table of its own beside the one of idem.
    pub(super) async fn new(table: &Table, seen: Seen) -> Result<Self, AnyError> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
        let pool = pool.connect(table.url()).await?;
        let name = table.beside();
        let create = format!(
            "CREATE TABLE {name} (tenant text, key text, uri text NOT NULL, request bytea NOT NULL, status int, \
             content_type text, location text, answer bytea, PRIMARY KEY (tenant, key))"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await?;
        Ok(Self {
            pool,
            insert: format!(
                "INSERT INTO {name} (tenant, key, uri, request) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
            ),
            select: format!(
                "SELECT uri, request, status, content_type, location, answer FROM {name} WHERE tenant = $1 AND key = $2"
            ),
            update: format!(
                "UPDATE {name} SET status = $3, content_type = $4, location = $5, answer = $6 \
                 WHERE tenant = $1 AND key = $2"
            ),
            seen,
        })
    }

    pub(super) async fn run(
        &self,
        (tenant, key): Name,
        request: (String, Bytes),
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Result<HttpResponse, Problem> {
        let began = crate::clock::now();
        let mut transaction = self.pool.begin().await.map_err(failed)?;
        let insert = sqlx::query(AssertSqlSafe(self.insert.as_str())).bind(&tenant).bind(&key);
        let insert = insert.bind(&request.0).bind(&request.1[..]).execute(&mut *transaction).await;
        self.seen.waited(began.elapsed());
        if insert.map_err(failed)?.rows_affected() == 0 {
            let select = sqlx::query_as(AssertSqlSafe(self.select.as_str())).bind(&tenant).bind(&key);
            let columns: Columns = select.fetch_one(&mut *transaction).await.map_err(failed)?;
            return row(columns)?.replay(&request);
        }
        let answer = work.await?;
        let header = |name| answer.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        let update = sqlx::query(AssertSqlSafe(self.update.as_str())).bind(&tenant).bind(&key);
        let update = update.bind(i32::from(answer.status.as_u16())).bind(header("content-type"));
        let update = update.bind(header("location")).bind(&answer.body[..]);
        update.execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(answer.response(false))
    }
}

fn row((uri, request, status, content_type, location, body): Columns) -> Result<Row, Problem> {
    let headers = [("content-type", content_type), ("location", location)];
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "database-error", "status"))?;
    Ok(Row { request: (uri, request.into()), answer: Answer { status, headers, body: body.into() } })
}

fn failed(error: impl Into<sqlx::Error>) -> Problem {
    // Its message may quote a row.
    let detail = match error.into() {
        sqlx::Error::PoolTimedOut => "every connection is taken",
        sqlx::Error::Database(_) => "the database refused",
        _ => "the database cannot be reached",
    };
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "database-error", detail)
}
