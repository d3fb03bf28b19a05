//! The language of the golden scripts: reads a command line, tells what came of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdfast_core::command::OpenSession;
use holdfast_core::{
    ActorId, Command, Event, FenceToken, Grant, Limits, LockTable, LogicalTime, Outcome,
    PublicSessionId, ReleaseAnswer, RequestId, Span, StreamId,
};

use crate::world::{World, lock_name};

/// Runs a script and returns it with the answers of this run.
pub(crate) fn replay(script: &str) -> String {
    let mut world = World::new(Limits::default());
    let mut replayed = String::new();
    for block in script.trim_end().split("\n\n") {
        let commands = block.split("\n----").next().unwrap().trim_start_matches('\n');
        let mut output = String::new();
        let mut has_command = false;
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            has_command = true;
            run(&mut world, line, &mut output);
        }
        if has_command {
            write!(replayed, "{commands}\n----\n{output}\n").unwrap();
        } else {
            write!(replayed, "{commands}\n\n").unwrap();
        }
    }
    replayed.trim_end().to_owned() + "\n"
}

fn run(world: &mut World, line: &str, output: &mut String) {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if words[0] == "at" {
        world.now = LogicalTime::from_ms(ms(words[1]));
        words.drain(..2);
    }
    let arguments = Arguments::read(&words);
    let command = match words[0] {
        "limits" => return set_limits(world, &arguments, output),
        "status" => return status(world, words[1], output),
        "list" => return list(world, words.get(1).unwrap_or(&""), &arguments, output),
        "sessions" => return sessions(world, &arguments, output),
        "counts" => return counts(world, output),
        "next-deadline" => {
            let next = world.table.next_deadline();
            let next = next.map_or("none".to_owned(), time);
            return writeln!(output, "next deadline: {next}").unwrap();
        }
        "snapshot-roundtrip" => return snapshot_roundtrip(world, output),
        "tick" => Command::Tick,
        "begin-term" => Command::BeginTerm { grace: Span::from_ms(ms(words[1])) },
        who => session_command(world, who, words[1], &words[2..], &arguments),
    };
    let outcome = world.apply(command);
    writeln!(output, "{}", outcome_text(&outcome)).unwrap();
    for event in &world.events {
        writeln!(output, "  {}", event_text(world, event)).unwrap();
    }
}

fn session_command(
    world: &mut World,
    who: &str,
    verb: &str,
    words: &[&str],
    arguments: &Arguments<'_>,
) -> Command {
    let session = world.session(who);
    let mut call = world.call(who, arguments.request.unwrap_or(0));
    call.acked_through = RequestId(arguments.number("acked").unwrap_or(0));
    let stream = arguments.number("stream").map(StreamId);
    let token = || FenceToken(arguments.number("token").expect("token=N"));
    match verb {
        "open" => {
            let ttl = arguments.span("ttl").unwrap_or(Span::from_secs(30));
            let linger = arguments.span("linger").unwrap_or(ttl);
            let open = world.opening(who, ttl);
            Command::OpenSession(OpenSession { stream, linger, ..open })
        }
        "attach" => Command::AttachStream { session, stream: stream.expect("stream=N") },
        "detach" => Command::DetachStream { session, stream: stream.expect("stream=N") },
        "touch" => Command::Touch { session, acked_through: call.acked_through },
        "close" => Command::CloseSession { session },
        "acquire" => {
            let mut acquire = world.acquiring(who, call.request.0, words[0], 0);
            acquire.call = call;
            acquire.wait = arguments.span("wait").unwrap_or(Span::ZERO);
            acquire.ttl = arguments.span("ttl");
            acquire.max_hold = arguments.span("max-hold");
            acquire.actor = ActorId(arguments.number("actor").unwrap_or(0));
            acquire.metadata = arguments.text("metadata").unwrap_or("").as_bytes().into();
            Command::Acquire(acquire)
        }
        "release" => Command::Release { call, name: lock_name(words[0]), token: token() },
        "renew" => {
            let ttl = arguments.span("ttl");
            Command::Renew { call, name: lock_name(words[0]), token: token(), ttl }
        }
        "cancel" => {
            let target = arguments.text("target").expect("target=#N");
            Command::Cancel { call, target: RequestId(target[1..].parse().unwrap()) }
        }
        other => panic!("unknown verb {other}"),
    }
}

fn set_limits(world: &mut World, arguments: &Arguments<'_>, output: &mut String) {
    let mut limits = Limits::default();
    for (key, value) in &arguments.named {
        let value: usize = value.parse().unwrap();
        match *key {
            "sessions" => limits.sessions_max = value,
            "holds-per-session" => limits.holds_per_session_max = value,
            "waits-per-session" => limits.waits_per_session_max = value,
            "waiters-per-resource" => limits.waiters_per_resource_max = value,
            "unacknowledged-answers" => limits.unacknowledged_answers_max = value,
            "remembered-losses" => limits.remembered_losses_max = value,
            "expiries-per-tick" => limits.expiries_per_tick_max = value,
            other => panic!("unknown limit {other}"),
        }
    }
    *world = World::new(limits);
    writeln!(output, "an empty table").unwrap();
}

fn status(world: &World, name: &str, output: &mut String) {
    let status = world.table.status(name, 10);
    if status.holders.is_empty() {
        writeln!(output, "{name} is free").unwrap();
    }
    for holder in status.holders {
        let who = holder.owner.application;
        let since = time(holder.granted_at);
        let ends = ends(holder.deadline, holder.session_deadline);
        write!(output, "{who} holds {name} since {since}: token {}, {ends}", holder.token).unwrap();
        if !holder.metadata.is_empty() {
            write!(output, ", says '{}'", String::from_utf8_lossy(&holder.metadata)).unwrap();
        }
        writeln!(output).unwrap();
    }
    for waiter in status.waiters {
        let who = waiter.owner.application;
        let (since, until) = (time(waiter.queued_at), time(waiter.deadline));
        writeln!(output, "{}. {who} waits since {since} until {until}", waiter.position).unwrap();
    }
}

fn list(world: &World, prefix: &str, arguments: &Arguments<'_>, output: &mut String) {
    let prefix = if prefix.contains('=') { "" } else { prefix };
    let limit = arguments.number("limit").unwrap_or(100) as usize;
    let locks = world.table.list(prefix, arguments.text("after"), limit);
    if locks.is_empty() {
        writeln!(output, "none").unwrap();
    }
    for lock in locks {
        let (who, token, waiters) = (lock.owner.application, lock.token, lock.waiter_count);
        let name = lock.name;
        writeln!(
            output,
            "{name}: {who} since {}, token {token}, {waiters} waiting",
            time(lock.granted_at)
        )
        .unwrap();
    }
}

fn sessions(world: &World, arguments: &Arguments<'_>, output: &mut String) {
    let after = arguments.number("after").map(PublicSessionId);
    let limit = arguments.number("limit").unwrap_or(100) as usize;
    for session in world.table.sessions(after, limit) {
        writeln!(
            output,
            "{} {}: {}, opened at {}, ends at {}, holds {}, waits for {}",
            session.public,
            session.owner.application,
            if session.connected { "connected" } else { "not connected" },
            time(session.opened_at),
            time(session.deadline),
            session.hold_count,
            session.wait_count,
        )
        .unwrap();
    }
}

fn counts(world: &World, output: &mut String) {
    let table = &world.table;
    let (locks, waiters) = (table.lock_count(), table.waiter_count());
    let (sessions, token) = (table.session_count(), table.last_token());
    writeln!(output, "{locks} locks, {waiters} waiters, {sessions} sessions, last token {token}")
        .unwrap();
}

fn snapshot_roundtrip(world: &mut World, output: &mut String) {
    let bytes = world.table.encode();
    let restored = LockTable::decode(&bytes, world.limits.clone()).expect("a readable snapshot");
    assert_eq!(restored.encode(), bytes);
    assert_eq!(restored.digest(), world.table.digest());
    world.table = restored;
    writeln!(output, "the same bytes").unwrap();
}

/// `#1` is the request id, `key=value` a named argument.
struct Arguments<'a> {
    request: Option<u64>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Arguments<'a> {
    fn read(words: &[&'a str]) -> Arguments<'a> {
        let request = words.iter().find_map(|word| word.strip_prefix('#'));
        Arguments {
            request: request.map(|number| number.parse().unwrap()),
            named: words.iter().filter_map(|word| word.split_once('=')).collect(),
        }
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.named.get(key).copied()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.text(key).map(|text| text.parse().unwrap())
    }

    fn span(&self, key: &str) -> Option<Span> {
        self.text(key).map(|text| Span::from_ms(ms(text)))
    }
}

fn ms(text: &str) -> u64 {
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().unwrap();
    }
    let number = text.strip_suffix('s').expect("a time such as 500ms or 30s");
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    whole.parse::<u64>().unwrap() * 1_000 + tenth.parse::<u64>().unwrap() * 100
}

fn seconds(ms: u64) -> String {
    match (ms / 1_000, ms % 1_000) {
        (whole, 0) => format!("{whole}s"),
        (whole, rest) if rest % 100 == 0 => format!("{whole}.{}s", rest / 100),
        _ => format!("{ms}ms"),
    }
}

fn time(time: LogicalTime) -> String {
    seconds(time.as_ms())
}

fn ends(hold: Option<LogicalTime>, session: LogicalTime) -> String {
    let session = format!("session ends at {}", time(session));
    hold.map_or(session.clone(), |hold| format!("hold ends at {}, {session}", time(hold)))
}

fn grant_text(grant: &Grant) -> String {
    format!("token {}, {}", grant.token, ends(grant.deadline, grant.session_deadline))
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::SessionOpen { ttl, linger, .. } => {
            format!("open: ttl {}, linger {}", seconds(ttl.as_ms()), seconds(linger.as_ms()))
        }
        Outcome::Touched { .. } => "touched".to_owned(),
        Outcome::SessionClosed => "closed".to_owned(),
        Outcome::Granted(grant) => format!("granted: {}", grant_text(grant)),
        Outcome::Queued { position } => format!("queued: position {position}"),
        Outcome::Busy => "busy".to_owned(),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::CancelDone => "done: it will not be granted".to_owned(),
        Outcome::CancelTooLate(grant) => {
            format!("too late: holds {}, {}", grant.name, grant_text(grant))
        }
        Outcome::CancelNothing => "too late: it had ended without a hold".to_owned(),
        Outcome::Release(ReleaseAnswer::Released) => "released".to_owned(),
        Outcome::Release(ReleaseAnswer::NotOwner) => "not owner".to_owned(),
        Outcome::Release(ReleaseAnswer::AlreadyReleased) => "already released".to_owned(),
        Outcome::Release(ReleaseAnswer::Expired) => "expired".to_owned(),
        Outcome::Renewed { deadline, session_deadline } => {
            format!("renewed: {}", ends(*deadline, *session_deadline))
        }
        Outcome::Done => "done".to_owned(),
        Outcome::Rejected(rejection) => format!("rejected: {rejection:?}"),
    }
}

fn event_text(world: &World, event: &Event) -> String {
    match event {
        Event::SessionOpened { session, .. } => {
            format!("{}'s session begins", world.name_of(*session))
        }
        Event::SessionEnded { session, reason, .. } => {
            format!("{}'s session ends: {reason:?}", world.name_of(*session))
        }
        Event::Granted { name, session, request, token, .. } => {
            format!("{} #{} holds {name}: token {token}", world.name_of(*session), request.0)
        }
        Event::Queued { name, session, request, .. } => {
            format!("{} #{} waits for {name}", world.name_of(*session), request.0)
        }
        Event::WaitEnded { name, session, request, outcome } => format!(
            "{} #{} waits for {name} no more: {}",
            world.name_of(*session),
            request.0,
            outcome_text(outcome)
        ),
        Event::Released { name, session, token } => {
            format!("{} gives {name} back: token {token}", world.name_of(*session))
        }
        Event::HoldEnded { name, session, request, token, reason } => format!(
            "{} #{} loses {name}: token {token}, {reason:?}",
            world.name_of(*session),
            request.0
        ),
    }
}
