//! A row that keeps its own mark.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, GenericClient};

use crate::rule::{Claim, HighWaterMark, Refusal};

type Value<'a> = &'a (dyn ToSql + Sync);

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("there is no such row in {table}: it was never written, or is deleted")]
    Missing { table: String },
    #[error("the write could not be made: {0}")]
    Postgres(#[from] Error),
}

/// One row of a table with the column `last_token bigint NOT NULL DEFAULT 0`.
///
/// The names of table and columns are part of the statement: they come from the code, never from a user.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// As it is written in SQL, with its schema if need be.
    pub table: &'a str,
    pub key_column: &'a str,
    pub key: Value<'a>,
}

impl Row<'_> {
    /// `UPDATE table SET column = value, …, last_token = token WHERE key = … AND last_token <= token`.
    pub async fn update<C: GenericClient>(
        &self,
        client: &C,
        claim: &Claim,
        columns: &[(&str, Value<'_>)],
    ) -> Result<(), WriteError> {
        let token = claim.token_i64();
        let mut values: Vec<Value<'_>> = vec![self.key, &token];
        let mut set = String::new();
        for (column, value) in columns {
            values.push(*value);
            set += &format!("{column} = ${}, ", values.len());
        }
        let statement = self.conditional_update(&set);
        match client.execute(&statement, &values).await? {
            0 => Err(self.why_nothing_changed(client, claim).await),
            _ => Ok(()),
        }
    }

    /// The row as it is now; from now on no holder with a lower token can write to it. For programs that read
    /// first and write later.
    pub async fn take<C: GenericClient>(
        &self,
        client: &C,
        claim: &Claim,
    ) -> Result<tokio_postgres::Row, WriteError> {
        let statement = format!("{} RETURNING *", self.conditional_update(""));
        match client.query_opt(&statement, &[self.key, &claim.token_i64()]).await? {
            Some(row) => Ok(row),
            None => Err(self.why_nothing_changed(client, claim).await),
        }
    }

    fn conditional_update(&self, set: &str) -> String {
        let (table, key) = (self.table, self.key_column);
        format!(
            "UPDATE {table} SET {set}last_token = $2::bigint WHERE {key} = $1 AND last_token <= $2::bigint"
        )
    }

    /// Stale or missing? For those who wrote the conditional update themselves, after it changed no row.
    pub async fn why_nothing_changed<C: GenericClient>(
        &self,
        client: &C,
        claim: &Claim,
    ) -> WriteError {
        let (table, key) = (self.table, self.key_column);
        let query = format!("SELECT last_token FROM {table} WHERE {key} = $1");
        let row = match client.query_opt(&query, &[self.key]).await {
            Ok(row) => row,
            Err(error) => return WriteError::Postgres(error),
        };
        let last_token = match row.map(|row| row.try_get::<_, i64>(0)) {
            None => return WriteError::Missing { table: table.to_owned() },
            Some(Ok(last_token)) => last_token,
            Some(Err(error)) => return WriteError::Postgres(error),
        };
        let mut mark = HighWaterMark::from_token(u64::try_from(last_token).unwrap_or(0));
        match mark.raise(claim) {
            Err(refusal) => WriteError::Refused(refusal),
            // It came into being after the update had looked for it.
            Ok(()) => WriteError::Missing { table: table.to_owned() },
        }
    }
}
