//! PostgreSQL, as a real server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use holdfast_fence::postgres::{CheckError, Row, WriteError, check, highest_seen, migrate};
use holdfast_fence::{Accepts, Fence, Guarantee, Refusal, TOKEN_LIMIT, admit};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient};

use crate::meeting::{Dice, MEETINGS, Meeting, Work, Write, claim, judge, meetings, mixed};
use crate::servers::postgres::PostgresServer;

const CONNECTIONS: usize = 12;

/// A table whose history is written in the same step as itself.
const TABLES: &str = "
    CREATE TABLE data (resource text PRIMARY KEY, value bigint, last_token bigint NOT NULL DEFAULT 0);
    CREATE TABLE history (number bigserial PRIMARY KEY, resource text, token bigint, value bigint);
    CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO history (resource, token, value) VALUES (NEW.resource, NEW.last_token, NEW.value);
        RETURN NULL;
    END $$;
    CREATE TRIGGER remember AFTER UPDATE ON data FOR EACH ROW EXECUTE FUNCTION remember();";

fn row<'a>(resource: &'a &'a str) -> Row<'a> {
    Row { table: "data", key_column: "resource", key: resource }
}

/// Sets the value without looking at anything.
async fn set<C: GenericClient>(client: &C, name: &str, write: Write) -> Result<(), CheckError> {
    let statement = "UPDATE data SET value = $2, last_token = $3 WHERE resource = $1";
    let token = write.token as i64;
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&name, Type::TEXT), (&write.value, Type::INT8), (&token, Type::INT8)];
    client.query_typed(statement, &values).await?;
    Ok(())
}

/// Whether it was accepted; an error is the server's.
async fn write_by_check(client: &mut Client, name: &str, write: Write) -> Result<bool, CheckError> {
    let transaction = client.transaction().await?;
    match check(&transaction, &claim(name, write.token)).await {
        Err(CheckError::Refused(Refusal::Stale { .. })) => return Ok(false),
        other => other?,
    }
    // What a fence must not do: let go of the mark before the write.
    if name.starts_with("naive") {
        transaction.commit().await?;
        set(client, name, write).await?;
    } else {
        set(&transaction, name, write).await?;
        transaction.commit().await?;
    }
    Ok(true)
}

async fn write_by_row(client: &mut Client, name: &str, write: Write) -> Result<bool, WriteError> {
    let columns: [(&str, &(dyn ToSql + Sync)); 1] = [("value", &write.value)];
    match row(&name).update(client, &claim(name, write.token), &columns).await {
        Err(WriteError::Refused(Refusal::Stale { .. })) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Writes until nothing is left, or until the server goes away.
async fn work(mut client: Client, work: Arc<Work>) -> bool {
    loop {
        let Some((name, write)) = work.next() else { return true };
        let accepted = if name.starts_with("row") {
            write_by_row(&mut client, &name, write).await.map_err(|error| error.to_string())
        } else {
            write_by_check(&mut client, &name, write).await.map_err(|error| error.to_string())
        };
        match accepted {
            Ok(true) => work.acknowledge(name, write),
            Ok(false) => {}
            Err(_) => return false,
        }
    }
}

async fn start_workers(
    server: &PostgresServer,
    shared: &Arc<Work>,
) -> Vec<tokio::task::JoinHandle<bool>> {
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        workers.push(tokio::spawn(work(server.connect().await, Arc::clone(shared))));
    }
    workers
}

/// Tables with a row for each meeting.
async fn prepare(server: &PostgresServer, meetings: &[Meeting]) {
    let mut client = server.connect().await;
    migrate(&mut client).await.unwrap();
    client.batch_execute(TABLES).await.unwrap();
    let names: Vec<&str> = meetings.iter().map(|meeting| meeting.resource.as_str()).collect();
    client.execute("INSERT INTO data SELECT unnest($1::text[])", &[&names]).await.unwrap();
}

async fn complaints(server: &PostgresServer, shared: &Work) -> Vec<String> {
    let client = server.connect().await;
    let mut histories: HashMap<String, Vec<Write>> = HashMap::new();
    let query = "SELECT resource, token, value FROM history ORDER BY number";
    for row in client.query(query, &[]).await.unwrap() {
        let write = Write { token: row.get::<_, i64>(1) as u64, value: row.get(2) };
        histories.entry(row.get(0)).or_default().push(write);
    }
    let mut complaints = Vec::new();
    for row in client.query("SELECT resource, value FROM data", &[]).await.unwrap() {
        let (name, stored): (String, Option<i64>) = (row.get(0), row.get(1));
        let history = histories.remove(&name).unwrap_or_default();
        let judgement = judge(&history, stored, &shared.acknowledged(&name));
        complaints.extend(judgement.err().map(|error| format!("{name}: {error}")));
    }
    complaints
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_tokens_never_go_back_over_a_crash_of_the_server() {
    let Some(mut server) = PostgresServer::start().await else { return };
    let started = Instant::now();
    let mut dice = Dice(13);
    let mut all = meetings("check", MEETINGS, &mut dice);
    all.extend(meetings("row", MEETINGS, &mut dice));
    prepare(&server, &all).await;

    let shared = Arc::new(Work::new(mixed(&all, &mut dice)));
    let workers = start_workers(&server, &shared).await;
    shared.half_done().await;
    server.crash();
    for worker in workers {
        assert!(!worker.await.unwrap(), "no writer noticed the crash");
    }
    server.launch().await;
    for worker in start_workers(&server, &shared).await {
        assert!(worker.await.unwrap(), "the server went away again");
    }
    assert_eq!(complaints(&server, &shared).await, [""; 0]);
    println!("PostgreSQL: {} meetings in {:.1?}", all.len(), started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_let_go_before_the_write_is_caught() {
    let Some(server) = PostgresServer::start().await else { return };
    let mut dice = Dice(13);
    let naive = meetings("naive", MEETINGS / 10, &mut dice);
    prepare(&server, &naive).await;
    let shared = Arc::new(Work::new(mixed(&naive, &mut dice)));
    for worker in start_workers(&server, &shared).await {
        assert!(worker.await.unwrap());
    }
    let complaints = complaints(&server, &shared).await;
    assert!(!complaints.is_empty(), "the test cannot tell a fence from none");
}

#[tokio::test]
async fn a_check_holds_until_the_transaction_ends_and_a_refusal_ends_it() {
    let Some(server) = PostgresServer::start().await else { return };
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    // Two at the same moment, and again.
    let (first, second) = tokio::join!(migrate(&mut one), migrate(&mut two));
    first.and(second).unwrap();
    migrate(&mut one).await.unwrap();
    one.batch_execute(TABLES).await.unwrap();

    let early = one.transaction().await.unwrap();
    check(&early, &claim("a", 5)).await.unwrap();
    let late = two.transaction().await.unwrap();
    late.batch_execute("SET LOCAL lock_timeout = '50ms'").await.unwrap();
    let waits = check(&late, &claim("a", 6)).await.unwrap_err();
    assert!(
        matches!(&waits, CheckError::Postgres(error) if error.code().unwrap().code() == "55P03")
    );
    late.rollback().await.unwrap();
    early.commit().await.unwrap();

    let late = two.transaction().await.unwrap();
    check(&late, &claim("a", 6)).await.unwrap();
    late.commit().await.unwrap();

    let stale = one.transaction().await.unwrap();
    let refused = check(&stale, &claim("a", 5)).await.unwrap_err();
    assert!(matches!(refused, CheckError::Refused(Refusal::Stale { token: 5, highest: 6, .. })));
    // A program that ignores the answer cannot write either.
    assert!(stale.execute("INSERT INTO data VALUES ('a', 1, 5)", &[]).await.is_err());
    stale.commit().await.unwrap();
    assert!(one.query("SELECT FROM data", &[]).await.unwrap().is_empty());

    // A mark that was raised in vain goes back with its transaction.
    let given_up = one.transaction().await.unwrap();
    check(&given_up, &claim("a", TOKEN_LIMIT - 1)).await.unwrap();
    given_up.rollback().await.unwrap();
    let next = one.transaction().await.unwrap();
    check(&next, &claim("a", 6)).await.unwrap();
    next.commit().await.unwrap();

    a_row_tells_stale_from_missing(&mut one).await;
    a_token_that_is_shown_on_reading_keeps_late_writers_out(&one).await;
    the_trigger_refuses_a_token_that_goes_back(&one).await;
    the_function_judges_as_the_rule_does(&one).await;
    the_function_allows_only_what_its_arguments_allow(&one).await;
}

async fn a_row_tells_stale_from_missing(client: &mut Client) {
    let row = row(&"r");
    let missing = row.update(client, &claim("r", 7), &[]).await.unwrap_err();
    assert!(matches!(missing, WriteError::Missing { .. }), "{missing}");
    client.execute("INSERT INTO data VALUES ('r', 1)", &[]).await.unwrap();
    row.update(client, &claim("r", 7), &[("value", &70_i64)]).await.unwrap();
    row.update(client, &claim("r", 7), &[("value", &71_i64)]).await.unwrap();
    let stale = row.update(client, &claim("r", 6), &[("value", &60_i64)]).await.unwrap_err();
    assert!(
        matches!(stale, WriteError::Refused(Refusal::Stale { token: 6, highest: 7, .. })),
        "{stale}"
    );
    let kept = row.take(client, &claim("r", 8)).await.unwrap();
    assert_eq!((kept.get::<_, i64>("value"), kept.get::<_, i64>("last_token")), (71, 8));
    let stale = row.take(client, &claim("r", 7)).await.unwrap_err();
    assert!(matches!(stale, WriteError::Refused(Refusal::Stale { .. })), "{stale}");
    // In a transaction as well as without.
    let transaction = client.transaction().await.unwrap();
    row.update(&transaction, &claim("r", 9), &[("value", &90_i64)]).await.unwrap();
    transaction.commit().await.unwrap();
}

/// Otherwise a late writer could write between the reading and the writing of its successor.
async fn a_token_that_is_shown_on_reading_keeps_late_writers_out(client: &Client) {
    client.execute("INSERT INTO data VALUES ('read', 100)", &[]).await.unwrap();
    let row = row(&"read");
    let (early, late) = (claim("read", 1), claim("read", 2));
    let seen: i64 = row.take(client, &early).await.unwrap().get("value");
    let seen_later: i64 = row.take(client, &late).await.unwrap().get("value");
    let refused = row.update(client, &early, &[("value", &(seen + 1))]).await.unwrap_err();
    assert!(matches!(refused, WriteError::Refused(_)), "{refused}");
    row.update(client, &late, &[("value", &(seen_later + 10))]).await.unwrap();
    assert_eq!(row.take(client, &late).await.unwrap().get::<_, i64>("value"), 110);
}

async fn the_trigger_refuses_a_token_that_goes_back(client: &Client) {
    client
        .batch_execute(
            "CREATE TRIGGER fence BEFORE UPDATE ON data FOR EACH ROW
             EXECUTE FUNCTION holdfast.refuse_going_back();
             INSERT INTO data VALUES ('t', 1, 7)",
        )
        .await
        .unwrap();
    let set = |token: i64| format!("UPDATE data SET last_token = {token} WHERE resource = 't'");
    for token in [7, 8] {
        client.execute(&set(token), &[]).await.unwrap();
    }
    let error = client.execute(&set(7), &[]).await.unwrap_err();
    assert_eq!(highest_seen(&error).unwrap().token(), 8);
    client.execute("UPDATE data SET value = 2 WHERE resource = 't'", &[]).await.unwrap();
    let none = client.execute("UPDATE data SET last_token = NULL WHERE resource = 't'", &[]).await;
    assert!(none.is_err());
}

/// The rule stands twice, in Rust and in SQL, for those who have no Rust. They must not differ.
async fn the_function_judges_as_the_rule_does(client: &Client) {
    let mut texts: Vec<Option<String>> = vec![None, Some(String::new())];
    let mut dice = Dice(3);
    for name in ["wallet:42", "Größe/ß", "other"] {
        for guarantee in [Guarantee::Linearizable, Guarantee::BestEffort] {
            for number in [0, 1, 42, (1 << 53) + 1, TOKEN_LIMIT - 1] {
                let text = Fence::new(guarantee, name, number).unwrap().to_string();
                for _ in 0..5 {
                    texts.push(Some(damaged(&text, &mut dice)));
                }
                texts.push(Some(text));
            }
        }
    }
    for text in ["hf1.L.0413a35fa3122568.9223372036854775808", "hf1.L.0413a35fa3122568.1\n", "7"] {
        texts.push(Some(text.to_owned()));
    }
    let mut seen = HashSet::new();
    for text in &texts {
        for (resource, accepts) in [
            ("wallet:42", Accepts::Linearizable),
            ("Größe/ß", Accepts::Linearizable),
            ("wallet:42", Accepts::BestEffort),
        ] {
            let code = match admit(text.as_deref(), resource, accepts) {
                Ok(_) => "",
                Err(Refusal::Missing { .. }) => "ZF002",
                Err(Refusal::Malformed { .. }) => "ZF003",
                Err(Refusal::Zero { .. }) => "ZF004",
                Err(Refusal::OtherResource { .. }) => "ZF005",
                Err(Refusal::BestEffort { .. } | Refusal::NotBestEffort { .. }) => "ZF006",
                Err(Refusal::NotFenceable { .. }) => "ZF007",
                Err(Refusal::Stale { .. }) => unreachable!("nothing was seen before"),
            };
            client.batch_execute("TRUNCATE holdfast.high_water_marks").await.unwrap();
            let best_effort = accepts == Accepts::BestEffort;
            let query = "SELECT holdfast.check_fence($1, $2, $3)";
            let answer = client.execute(query, &[&resource, text, &best_effort]).await;
            let answered = match &answer {
                Ok(_) => "",
                Err(error) => {
                    assert!(error.as_db_error().unwrap().hint().is_some(), "{error:?}");
                    error.code().unwrap().code()
                }
            };
            assert_eq!(answered, code, "{text:?} for {resource}, {accepts:?}");
            seen.insert(answered.to_owned());
        }
    }
    assert_eq!(seen.len(), 7, "not every verdict was met: {seen:?}");
}

async fn the_function_allows_only_what_its_arguments_allow(client: &Client) {
    let best_effort = Fence::new(Guarantee::BestEffort, "a", 7).unwrap().to_string();
    let linearizable = Fence::new(Guarantee::Linearizable, "a", 7).unwrap().to_string();
    for (resource, fence, code) in
        [(Some("a"), best_effort, "ZF006"), (None, linearizable, "ZF005")]
    {
        let query = "SELECT holdfast.check_fence($1, $2, NULL)";
        let error = client.execute(query, &[&resource, &fence]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), code, "{error}");
    }
}

/// One character is another, or missing.
fn damaged(text: &str, dice: &mut Dice) -> String {
    let at = dice.roll(text.len() as u64) as usize;
    let other = ["", "0", "1", "9", "a", "A", ".", "-", "+", "L", "B", " ", "\n"];
    let other = other[dice.roll(other.len() as u64) as usize];
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}
