//! PostgreSQL: the check inside the transaction that writes.
//!
//! Two ways; the first needs [`MIGRATION`]:
//! - [`check`] in a transaction, before reading and writing whatever belongs to the resource. The mark is
//!   a row of `holdfast.high_water_marks`, locked until the transaction ends.
//! - [`Row`], for a table that keeps the mark in a column of its own (`last_token bigint NOT NULL DEFAULT 0`):
//!   `UPDATE … WHERE … AND last_token <= $token`. One statement checks and writes; [`WriteError`] tells stale
//!   from missing.
//!
//! A program that reads first and writes in another transaction must present its token when it reads, too: by [`check`]
//! in the transaction that reads, or by [`Row::take`]. Otherwise a late writer can write between that read and its own
//! write.
//!
//! Caveats:
//! - under `REPEATABLE READ` and `SERIALIZABLE` a check fails with 40001 if another transaction has changed the same
//!   mark since this one's snapshot, as any write does there. Run the transaction again; the fence is not the cause;
//! - two transactions that check several resources each should do so in the same order, or PostgreSQL ends one of them
//!   as a deadlock;
//! - a standby that is promoted may lack the last commits unless replication is synchronous. It
//!   then lacks data and marks alike.

mod row;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Transaction};

pub use row::{Row, WriteError};

use crate::rule::{Claim, HighWaterMark, Refusal};

/// Creates schema, table and functions; can be run again. For tools that keep migrations as files it is
/// also `sql/postgres.sql` of this crate.
pub const MIGRATION: &str = crate::POSTGRES_MIGRATION;

/// The SQLSTATE with which the functions of [`MIGRATION`] report a stale token.
pub const STALE: &str = "ZF001";

/// Runs [`MIGRATION`]. Concurrent calls run one after another (advisory lock).
pub async fn migrate(client: &mut Client) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    // `CREATE … IF NOT EXISTS` alone can still collide with another session's.
    transaction
        .execute("SELECT pg_advisory_xact_lock(hashtextextended('holdfast.fence', 0))", &[])
        .await?;
    transaction.batch_execute(MIGRATION).await?;
    transaction.commit().await
}

/// Why a claim did not pass.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the fence could not be checked: {0}")]
    Postgres(#[from] Error),
}

/// Lets the transaction go on if the claim passes, and makes other checks of this resource wait until the transaction
/// ends. If it does not pass, the transaction is aborted: it can only be rolled back.
pub async fn check(transaction: &Transaction<'_>, claim: &Claim) -> Result<(), CheckError> {
    let query = "SELECT holdfast.raise_mark($1, $2)";
    let (resource, token) = (claim.resource(), claim.token_i64());
    // With the types given there is nothing to prepare: one round trip.
    match transaction.query_typed(query, &[(&resource, Type::TEXT), (&token, Type::INT8)]).await {
        Ok(_) => Ok(()),
        Err(error) => Err(match highest_seen(&error) {
            Some(highest) => CheckError::Refused(highest.stale(claim)),
            None => CheckError::Postgres(error),
        }),
    }
}

/// If the error says that a token is out of date, the highest that was seen.
pub fn highest_seen(error: &Error) -> Option<HighWaterMark> {
    let error = error.as_db_error()?;
    if *error.code() != SqlState::from_code(STALE) {
        return None;
    }
    let number = error.detail()?.strip_prefix("highest: ")?.parse().ok()?;
    Some(HighWaterMark::from_token(number))
}
