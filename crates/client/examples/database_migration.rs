//! Five instances of a program start at once; one of them migrates the database, the others wait for it.
//!
//! The holder of the lock looks first whether there is anything left to do: the lock says which process may migrate, the
//! schema says whether it has been done. A migration cannot be stopped half way, so it is not begun unless
//! the lock is certain for longer than it takes, and it has a lock delay: if its machine dies in the middle,
//! no other process begins before what it had sent to the database has ended.
//!
//! Start a cluster first: `cargo run --release -- dev`. Then:
//!
//! ```sh
//! cargo run -p holdfast-client --example database_migration
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_client::Client;

type Failure = Box<dyn Error + Send + Sync>;

const VERSION: u32 = 2;
const MIGRATION_TAKES: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Database {
    version: u32,
    migrations: u32,
    /// Under which it was migrated.
    token: u64,
}

async fn instance(
    number: usize,
    endpoints: String,
    database: Arc<Mutex<Database>>,
) -> Result<(), Failure> {
    let client = Client::builder().note(format!("instance {number}")).connect(&endpoints).await?;
    let guard = client
        .lock("db/orders/schema")
        .wait(Duration::from_secs(60))
        .lock_delay(2 * MIGRATION_TAKES)
        .metadata(format!("migration to version {VERSION}"))
        .acquire()
        .await?;
    if version(&database) < VERSION {
        if !guard.is_valid_for(2 * MIGRATION_TAKES) {
            return Err("there is not enough time left to migrate".into());
        }
        tokio::time::sleep(MIGRATION_TAKES).await;
        let token = guard.token()?;
        let mut database = database.lock().map_err(|_| "the database is broken")?;
        *database = Database { version: VERSION, migrations: database.migrations + 1, token };
    }
    guard.release().await?;
    client.close().await?;
    Ok(())
}

fn version(database: &Mutex<Database>) -> u32 {
    database.lock().map_or(0, |database| database.version)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let endpoints = std::env::var("HOLDFAST_ENDPOINTS").unwrap_or("127.0.0.1:7420".to_owned());
    let database = Arc::new(Mutex::new(Database::default()));
    let mut instances = tokio::task::JoinSet::new();
    for number in 1..=5 {
        instances.spawn(instance(number, endpoints.clone(), Arc::clone(&database)));
    }
    while let Some(instance) = instances.join_next().await {
        instance??;
    }
    let database = database.lock().map_err(|_| "the database is broken")?;
    let Database { version, migrations, token } = *database;
    println!("version {version} after {migrations} migration, under token {token}");
    Ok(())
}
