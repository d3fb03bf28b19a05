//! Redis, as a real server.

use std::sync::Arc;
use std::time::Instant;

use holdfast_fence::redis::{FencedKey, SCRIPT, WriteError};
use holdfast_fence::{Refusal, TOKEN_LIMIT};
use redis::aio::MultiplexedConnection;

use crate::meeting::{Dice, MEETINGS, Meeting, Work, Write, claim, judge, meetings, mixed};
use crate::servers::redis::{Durability, RedisServer};

const WRITERS: usize = 24;

/// A list is its own history: what was pushed last is what it says now. A string keeps the last alone.
async fn write_once(
    connection: &mut MultiplexedConnection,
    name: &str,
    write: Write,
) -> Result<bool, WriteError> {
    let key = FencedKey::new(name).unwrap();
    let claim = claim(name, write.token);
    let text = format!("{} {}", write.token, write.value);
    let push = redis::Cmd::rpush(name, &text);
    let done = if name.starts_with("list") {
        key.run::<_, u64>(connection, &claim, &push).await.map(drop)
    } else if name.starts_with("naive") {
        // What a fence must not do: check in one step, and write in another.
        let nothing = redis::cmd("ECHO").arg("").to_owned();
        match key.run::<_, String>(connection, &claim, &nothing).await {
            Ok(_) => push.exec_async(connection).await.map_err(WriteError::from),
            Err(error) => Err(error),
        }
    } else {
        key.set(connection, &claim, text).await
    };
    match done {
        Err(WriteError::Refused(Refusal::Stale { .. })) => Ok(false),
        other => other.map(|()| true),
    }
}

fn parse(text: &str) -> Write {
    let (token, value) = text.split_once(' ').unwrap();
    Write { token: token.parse().unwrap(), value: value.parse().unwrap() }
}

/// Writes until nothing is left, or until the server goes away.
async fn work(mut connection: MultiplexedConnection, work: Arc<Work>) -> bool {
    loop {
        let Some((name, write)) = work.next() else { return true };
        match write_once(&mut connection, &name, write).await {
            Ok(true) => work.acknowledge(name, write),
            Ok(false) => {}
            Err(_) => return false,
        }
    }
}

async fn start_workers(
    server: &RedisServer,
    shared: &Arc<Work>,
) -> Vec<tokio::task::JoinHandle<bool>> {
    let mut workers = Vec::new();
    for _ in 0..WRITERS {
        workers.push(tokio::spawn(work(server.connect().await, Arc::clone(shared))));
    }
    workers
}

async fn complaints_of_lists(
    connection: &mut MultiplexedConnection,
    lists: &[Meeting],
    shared: &Work,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for lists in lists.chunks(1_000) {
        let mut pipe = redis::pipe();
        for list in lists {
            pipe.lrange(&list.resource, 0, -1).get(FencedKey::new(&list.resource).unwrap().mark());
        }
        let answers: Vec<redis::Value> = pipe.query_async(connection).await.unwrap();
        let mut answers = answers.into_iter();
        for list in lists {
            let name = &list.resource;
            let items: Vec<String> = redis::from_redis_value(answers.next().unwrap()).unwrap();
            let mark: Option<u64> = redis::from_redis_value(answers.next().unwrap()).unwrap();
            let history: Vec<Write> = items.iter().map(|item| parse(item)).collect();
            let last = history.last();
            let mut judgement =
                judge(&history, last.map(|write| write.value), &shared.acknowledged(name));
            if mark != last.map(|write| write.token) {
                judgement = Err(format!("the mark is {mark:?}, the last write {last:?}"));
            }
            complaints.extend(judgement.err().map(|error| format!("{name}: {error}")));
        }
    }
    complaints
}

#[tokio::test(flavor = "multi_thread")]
async fn to_check_and_then_to_write_is_caught() {
    let Some(server) = RedisServer::start(Durability::None).await else { return };
    let mut dice = Dice(17);
    let naive = meetings("naive", MEETINGS / 10, &mut dice);
    let shared = Arc::new(Work::new(mixed(&naive, &mut dice)));
    for worker in start_workers(&server, &shared).await {
        assert!(worker.await.unwrap());
    }
    let mut connection = server.connect().await;
    let complaints = complaints_of_lists(&mut connection, &naive, &shared).await;
    assert!(!complaints.is_empty(), "the test cannot tell a fence from none");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_tokens_never_go_back_over_a_crash_of_the_server() {
    let Some(mut server) = RedisServer::start(Durability::Always).await else { return };
    let started = Instant::now();
    let mut dice = Dice(17);
    let lists = meetings("list", MEETINGS / 2, &mut dice);
    let strings = meetings("string", MEETINGS / 2, &mut dice);
    let all = [lists.clone(), strings.clone()].concat();
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

    let mut connection = server.connect().await;
    assert_eq!(complaints_of_lists(&mut connection, &lists, &shared).await, [""; 0]);
    for strings in strings.chunks(1_000) {
        let names: Vec<&str> = strings.iter().map(|string| string.resource.as_str()).collect();
        let stored: Vec<Option<String>> =
            redis::Cmd::mget(&names).query_async(&mut connection).await.unwrap();
        for (name, stored) in names.into_iter().zip(stored) {
            let acknowledged = shared.acknowledged(name);
            let highest = acknowledged.iter().map(|write| write.token).max().unwrap_or(0);
            let stored = stored.map_or(0, |stored| parse(&stored).token);
            assert!(stored >= highest, "{name}: {stored} is stored, {highest} was acknowledged");
        }
    }
    println!("Redis: {} meetings in {:.1?}", all.len(), started.elapsed());
}

#[tokio::test]
async fn tokens_beyond_double_precision_are_told_apart() {
    let Some(server) = RedisServer::start(Durability::None).await else { return };
    let mut connection = server.connect().await;
    let rising = [1, 9, 10, 99, 100, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, 1 << 62, (1 << 62) + 1];
    for pair in rising
        .iter()
        .copied()
        .chain([TOKEN_LIMIT - 2, TOKEN_LIMIT - 1])
        .collect::<Vec<_>>()
        .windows(2)
    {
        let (low, high) = (pair[0], pair[1]);
        let key = FencedKey::new(format!("{low}")).unwrap();
        key.set(&mut connection, &claim("a", low), "low").await.unwrap();
        key.set(&mut connection, &claim("a", high), "high").await.unwrap();
        let refused = key.set(&mut connection, &claim("a", low), "late").await.unwrap_err();
        assert!(
            matches!(refused, WriteError::Refused(Refusal::Stale { token, highest, .. })
                if (token, highest) == (low, high)),
            "{low} after {high}: {refused}"
        );
        key.set(&mut connection, &claim("a", high), "again").await.unwrap();
        let stored: String =
            redis::Cmd::get(key.data()).query_async(&mut connection).await.unwrap();
        assert_eq!(stored, "again");
    }
}

#[tokio::test]
async fn the_script_refuses_what_is_no_token_and_runs_any_command_of_the_key() {
    let Some(server) = RedisServer::start(Durability::None).await else { return };
    let mut connection = server.connect().await;
    for token in ["", "0", "-1", "01", "1.0", "1e3", "x", "99999999999999999999"] {
        let script = redis::Script::new(SCRIPT);
        let mut call = script.key("holdfast:mark:{k}");
        let answer = call.key("k").arg(token).arg("SET").arg("k").arg("v");
        let error = answer.invoke_async::<redis::Value>(&mut connection).await.unwrap_err();
        assert!(
            error.to_string().contains("FENCE") || error.code() == Some("FENCE"),
            "{token}: {error}"
        );
        assert!(error.to_string().contains("send the number of a token"), "{token}: {error}");
    }
    let key = FencedKey::new("{wallet:42}:cents").unwrap();
    let count: i64 =
        key.run(&mut connection, &claim("w", 5), &redis::Cmd::incr(key.data(), 7)).await.unwrap();
    assert_eq!(count, 7);
    // Reading shows the token too: from then on no lower one writes.
    let read: Option<i64> =
        key.run(&mut connection, &claim("w", 6), &redis::Cmd::get(key.data())).await.unwrap();
    assert_eq!(read, Some(7));
    let none: Option<i64> = key
        .run(&mut connection, &claim("w", 6), &redis::Cmd::get("{wallet:42}:none"))
        .await
        .unwrap();
    assert_eq!(none, None);
    assert!(key.set(&mut connection, &claim("w", 5), 1).await.is_err());
    // A command that fails is told, and leaves the mark.
    let failed = key
        .run::<_, i64>(&mut connection, &claim("w", 8), &redis::Cmd::lpop(key.data(), None))
        .await;
    assert!(matches!(failed, Err(WriteError::Redis(_))));
    assert_eq!(key.highest(&mut connection).await.unwrap().token(), 8);
    // A mark that another program has overwritten lets no holder in.
    redis::Cmd::set(key.mark(), "no number").exec_async(&mut connection).await.unwrap();
    let error = key.set(&mut connection, &claim("w", 9), 1).await.unwrap_err();
    assert!(error.to_string().contains("set it to the highest token"), "{error}");
}

/// Not a promise, but what the documentation warns of.
#[tokio::test]
async fn a_redis_without_a_file_forgets_its_marks_with_its_data() {
    let Some(mut server) = RedisServer::start(Durability::None).await else { return };
    let mut connection = server.connect().await;
    let key = FencedKey::new("wallet:42").unwrap();
    key.set(&mut connection, &claim("wallet:42", 9), "new").await.unwrap();
    server.crash();
    server.launch().await;
    let mut connection = server.connect().await;
    key.set(&mut connection, &claim("wallet:42", 8), "late").await.unwrap();
}
