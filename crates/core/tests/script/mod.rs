//! The language of the golden scripts: reads a command line, tells what came of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdfast_core::command::{
    AcquireAll, Action, HoldRef, Intervention, Member, Mode, OpenSession, Policy, Terms,
};
use holdfast_core::{
    AccessChange, ActorId, ChangeAccess, Command, FenceToken, GroupNumber, Identity, Limits,
    LockTable, LogIndex, LogicalTime, MapEpoch, MoveId, MoveStep, NextStep, Principal,
    PublicSessionId, Quota, QuotaSubject, RequestId, RoleName, Slot, SlotSet, Span, StreamId,
    next_step,
};

use crate::world::{World, lock_name};

mod text;

use text::{ends, event_text, mode_text, outcome_text, time};

/// Runs a script and returns it with the answers of this run.
pub(crate) fn replay(script: &str) -> String {
    let mut world = World::new(Limits::default());
    holdfast_golden::replay(script, |line, output| run(&mut world, line, output))
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
        "why" => return why(world, words[1], output),
        "freezes" => return freezes(world, output),
        "list" => return list(world, words.get(1).unwrap_or(&""), &arguments, output),
        "sessions" => return sessions(world, &arguments, output),
        "quotas" => return quotas(world, output),
        "counts" => return counts(world, output),
        "next-deadline" => {
            let next = world.table.next_deadline();
            let next = next.map_or("none".to_owned(), time);
            return writeln!(output, "next deadline: {next}").unwrap();
        }
        "snapshot-roundtrip" => return snapshot_roundtrip(world, output),
        "tick" => Command::Tick,
        "operator" => operator_command(world, words[1], &words[2..], &arguments),
        "administrator" => administrator_command(words[1], words[2], &arguments),
        "published" => published(words[1], &arguments),
        "own" => own(words[1], &arguments),
        "group" => {
            world.go_to_group(words[1].parse().unwrap());
            return writeln!(output, "in group {}", world.group).unwrap();
        }
        "seal" => seal(world, words[1], &arguments),
        "step" => match step(world, &words[1..], &arguments, output) {
            Some(command) => command,
            None => return,
        },
        "slot" => {
            let slot = Slot::of(words[1]);
            return writeln!(output, "{} is in slot {slot}", words[1]).unwrap();
        }
        "begin-term" => Command::BeginTerm { grace: Span::from_ms(ms(words[1])) },
        who => session_command(world, who, words[1], &words[2..], &arguments),
    };
    let outcome = world.apply(command);
    writeln!(output, "{}", outcome_text(&outcome)).unwrap();
    for event in &world.events {
        writeln!(output, "  {}", event_text(world, event)).unwrap();
    }
}

/// `published 3 at=7 term=1`: three events, the last of them of log entry 7.
fn published(through: &str, arguments: &Arguments<'_>) -> Command {
    Command::EventsPublished {
        through: through.parse().unwrap(),
        index: LogIndex(arguments.number("at").unwrap_or(0)),
        term: arguments.number("term").unwrap_or(0),
    }
}

/// `own all epoch=2`, or `own all epoch=1 but=wallet,keys`: all slots except those of these names; or `own nothing
/// epoch=1`.
fn own(which: &str, arguments: &Arguments<'_>) -> Command {
    let mut slots = match which {
        "all" => SlotSet::ALL,
        "nothing" => SlotSet::empty(),
        other => panic!("unknown slots {other}"),
    };
    let names = arguments.text("but").into_iter().flat_map(|names| names.split(','));
    names.for_each(|name| slots.remove(Slot::of(name)));
    Command::SetOwnership { epoch: MapEpoch(arguments.number("epoch").expect("epoch=N")), slots }
}

/// `seal wallet,keys to=2 epoch=5`: the present group gives the slots of these names to group 2.
fn seal(world: &mut World, names: &str, arguments: &Arguments<'_>) -> Command {
    let number = |key| arguments.number(key).expect("to=N epoch=N");
    let id = MoveId { source: GroupNumber(world.group), epoch: MapEpoch(number("epoch")) };
    world.moves.push(id);
    let slots = names.split(',').map(Slot::of).collect();
    Command::from(MoveStep::Seal { id, target: GroupNumber(number("to")), slots })
}

/// `step epoch=6` or `step abort epoch=6`: what the move out of the present group needs next. The story goes on in the
/// group of that step; then it comes back.
fn step(
    world: &mut World,
    words: &[&str],
    arguments: &Arguments<'_>,
    output: &mut String,
) -> Option<Command> {
    let epoch = MapEpoch(arguments.number("epoch").expect("epoch=N"));
    let Some(outgoing) = world.table.moves().outgoing() else {
        writeln!(output, "nothing moves").unwrap();
        return None;
    };
    let target = outgoing.target().0;
    let next = match world.table_of(target) {
        Some(table) => next_step(&world.table, table, epoch, words.contains(&"abort")),
        None => panic!("there is no group {target} yet"),
    };
    let source = world.group;
    match next {
        NextStep::Nothing | NextStep::Wait => {
            writeln!(output, "the source is at work").unwrap();
            None
        }
        NextStep::ToSource(step) => {
            writeln!(output, "group {source}: {}", step_text(&step)).unwrap();
            Some(Command::from(step))
        }
        NextStep::ToTarget(step) => {
            writeln!(output, "group {target}: {}", step_text(&step)).unwrap();
            world.go_to_group(target);
            let outcome = world.apply(Command::from(step));
            writeln!(output, "{}", outcome_text(&outcome)).unwrap();
            for event in &world.events {
                writeln!(output, "  {}", event_text(world, event)).unwrap();
            }
            world.go_to_group(source);
            None
        }
    }
}

fn step_text(step: &MoveStep) -> String {
    match step {
        MoveStep::Seal { .. } => "seal".to_owned(),
        MoveStep::Adopt { part, .. } => format!("adopt part {part}"),
        MoveStep::Commit { parts, last_token, .. } => {
            format!("commit {parts} parts, tokens after {last_token}")
        }
        MoveStep::Abort { .. } => "abort".to_owned(),
        MoveStep::Return { .. } => "return".to_owned(),
        MoveStep::Forget { .. } => "forget".to_owned(),
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
    let hold = || HoldRef {
        name: lock_name(words[0]),
        token: FenceToken(arguments.number("token").expect("token=N")),
        acquire: RequestId(arguments.number("acquire").unwrap_or(0)),
    };
    let actor = ActorId(arguments.number("actor").unwrap_or(0));
    match verb {
        "open" => {
            let ttl = arguments.span("ttl").unwrap_or(Span::from_secs(30));
            let linger = arguments.span("linger").unwrap_or(ttl);
            let open = world.opening(who, ttl);
            let identity = arguments.text("as").map(|principal| {
                Box::new(Identity::of(Principal::parse(principal).expect("as=PRINCIPAL")))
            });
            Command::OpenSession(OpenSession { stream, linger, identity, ..open })
        }
        "attach" => {
            Command::AttachStream { session, stream: stream.expect("stream=N"), identity: None }
        }
        "detach" => Command::DetachStream { session, stream: stream.expect("stream=N") },
        "touch" => Command::Touch { session, acked_through: call.acked_through },
        "close" => Command::CloseSession { session },
        "acquire" => {
            let mut acquire = world.acquiring(who, call.request.0, words[0], 0);
            acquire.call = call;
            acquire.actor = actor;
            acquire.mode = mode(words, arguments);
            acquire.terms = terms(words, arguments);
            Command::Acquire(acquire)
        }
        "acquire-all" => {
            let members = words[0].split(',').map(|member| {
                let (name, mode) = member.split_once(':').unwrap_or((member, "exclusive"));
                let mode = match mode {
                    "exclusive" => Mode::Exclusive,
                    "shared" => Mode::Shared,
                    permits => Mode::Permit { limit: permits.parse().expect("a limit") },
                };
                Member { name: lock_name(name), mode }
            });
            let members = members.collect();
            Command::AcquireAll(AcquireAll { call, actor, members, terms: terms(words, arguments) })
        }
        "convert" => Command::Convert {
            call,
            hold: hold(),
            to: if words.contains(&"shared") { Mode::Shared } else { Mode::Exclusive },
            wait: arguments.span("wait").unwrap_or(Span::ZERO),
            policy: policy(arguments),
        },
        "release" => Command::Release { call, hold: hold() },
        "renew" => Command::Renew { call, hold: hold(), ttl: arguments.span("ttl") },
        "proclaim" => {
            let metadata = arguments.text("metadata").unwrap_or("").as_bytes().into();
            Command::Proclaim { call, hold: hold(), metadata }
        }
        "transfer" => Command::Transfer { call, hold: hold(), to: to(world, arguments) },
        "cancel" => {
            let target = arguments.text("target").expect("target=#N");
            Command::Cancel { call, target: RequestId(target[1..].parse().unwrap()) }
        }
        other => panic!("unknown verb {other}"),
    }
}

/// `operator break wallet token=1 reason=stuck`.
fn operator_command(
    world: &mut World,
    verb: &str,
    words: &[&str],
    arguments: &Arguments<'_>,
) -> Command {
    let name = || lock_name(words[0]);
    let prefix = || words[0].trim_end_matches('*').into();
    let token = arguments.number("token").map(FenceToken);
    let action = match verb {
        "break" => Action::Break { name: name(), token },
        "transfer" => Action::Transfer {
            name: name(),
            token: token.expect("token=N"),
            to: to(world, arguments),
        },
        "freeze" => Action::Freeze { prefix: prefix(), ttl: arguments.span("ttl").expect("ttl=T") },
        "thaw" => Action::Thaw { prefix: prefix() },
        "reopen" => Action::Reopen { name: name() },
        "set-permits" => Action::SetPermits {
            name: name(),
            limit: arguments.number("limit").map(|limit| limit as u32),
        },
        "kill-session" => {
            Action::KillSession { session: PublicSessionId(world.session(words[0]).0 as u64) }
        }
        "set-limits" => {
            Action::SetLimits { bytes: arguments.number("bytes"), locks: arguments.number("locks") }
        }
        other => panic!("unknown intervention {other}"),
    };
    let reason = arguments.text("reason").unwrap_or("").into();
    Command::Intervene(Intervention { by: "olga".into(), reason, action, identity: None })
}

/// `administrator quota jobs/* locks=2`, or `administrator grant token:billing role=user`.
fn administrator_command(verb: &str, subject: &str, arguments: &Arguments<'_>) -> Command {
    let change = match verb {
        "grant" => AccessChange::Grant {
            principal: Principal::parse(subject).unwrap(),
            role: RoleName::parse(arguments.text("role").expect("role=R")).unwrap(),
        },
        "quota" => {
            let [sessions, locks, waits] =
                ["sessions", "locks", "waits"].map(|key| arguments.number(key));
            let quota = Quota { sessions, locks, waits, ..Quota::default() };
            AccessChange::SetQuotas([(QuotaSubject::parse(subject).unwrap(), quota)].into())
        }
        other => panic!("unknown change of the policy {other}"),
    };
    Command::ChangeAccess(Box::new(ChangeAccess {
        by: "anna".into(),
        identity: None,
        expected: None,
        changes: [change].into(),
        end_sessions: false,
    }))
}

fn quotas(world: &World, output: &mut String) {
    for (subject, quota, used) in world.table.quota_use() {
        let parts = [
            ("sessions", used.sessions, quota.sessions),
            ("locks", used.locks, quota.locks),
            ("waits", used.waits, quota.waits),
        ];
        let limited =
            parts.into_iter().filter_map(|(what, used, limit)| Some((what, used, limit?)));
        let words: Vec<String> =
            limited.map(|(what, used, limit)| format!("{used} of {limit} {what}")).collect();
        writeln!(output, "{subject}: {}", words.join(", ")).unwrap();
    }
}

fn to(world: &mut World, arguments: &Arguments<'_>) -> PublicSessionId {
    PublicSessionId(world.session(arguments.text("to").expect("to=WHO")).0 as u64)
}

fn mode(words: &[&str], arguments: &Arguments<'_>) -> Mode {
    match arguments.number("permits") {
        Some(limit) => Mode::Permit { limit: limit as u32 },
        None if words.contains(&"shared") => Mode::Shared,
        None => Mode::Exclusive,
    }
}

fn terms(words: &[&str], arguments: &Arguments<'_>) -> Terms {
    Terms {
        wait: arguments.span("wait").unwrap_or(Span::ZERO),
        policy: policy(arguments),
        since: arguments.text("since").map(|text| LogicalTime::from_ms(ms(text))),
        preemptible: words.contains(&"preemptible"),
        reentrant: words.contains(&"reentrant"),
        ttl: arguments.span("ttl"),
        max_hold: arguments.span("max-hold"),
        lock_delay: arguments.span("lock-delay"),
        metadata: arguments.text("metadata").unwrap_or("").as_bytes().into(),
    }
}

fn policy(arguments: &Arguments<'_>) -> Policy {
    match arguments.text("policy") {
        None => Policy::Detect,
        Some("wait") => Policy::Wait,
        Some("wait-die") => Policy::WaitDie,
        Some("wound-wait") => Policy::WoundWait,
        Some(other) => panic!("unknown policy {other}"),
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
            "waiters-per-lock" => limits.waiters_per_lock_max = value,
            "unacknowledged-answers" => limits.unacknowledged_answers_max = value,
            "remembered-losses" => limits.remembered_losses_max = value,
            "expiries-per-tick" => limits.expiries_per_tick_max = value,
            "names-per-acquire" => limits.names_per_acquire_max = value,
            "freezes" => limits.freezes_max = value,
            "reentries" => limits.reentries_max = value as u32,
            "stored-permits" => limits.stored_permits_max = value,
            "deadlock-walk" => limits.deadlock_walk_max = value,
            "move-steps" => limits.move_steps_max = value,
            "move-part-bytes" => limits.move_part_bytes = value,
            "ended-parts-per-entry" => limits.ended_parts_per_entry_max = value,
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
    if let Some(until) = status.closed_until {
        writeln!(output, "{name} is closed until {}", time(until)).unwrap();
    }
    if let Some(freeze) = status.frozen {
        let (prefix, until, by) = (freeze.prefix, time(freeze.until), freeze.by);
        writeln!(output, "{prefix}* is frozen by {by} until {until}: {}", freeze.reason).unwrap();
    }
    if let Some(permits) = status.permits {
        writeln!(output, "{name} has {permits} permits").unwrap();
    }
    for holder in status.holders {
        let who = holder.owner.application;
        let since = time(holder.granted_at);
        let ends = ends(holder.deadline, holder.session_deadline);
        let (mode, token) = (mode_text(holder.mode), holder.token);
        write!(output, "{who} holds {name}{mode} since {since}: token {token}, {ends}").unwrap();
        if holder.reentries > 0 {
            write!(output, ", entered {} times", holder.reentries + 1).unwrap();
        }
        if !holder.metadata.is_empty() {
            write!(output, ", says '{}'", String::from_utf8_lossy(&holder.metadata)).unwrap();
        }
        writeln!(output).unwrap();
    }
    for waiter in status.waiters {
        let who = waiter.owner.application;
        let (since, until) = (time(waiter.queued_at), time(waiter.deadline));
        let (position, mode) = (waiter.position, mode_text(waiter.mode));
        write!(output, "{position}. {who} waits{mode} since {since} until {until}").unwrap();
        if waiter.converts {
            write!(output, ", converts").unwrap();
        }
        for other in waiter.also {
            write!(output, ", and for {other}").unwrap();
        }
        writeln!(output).unwrap();
    }
}

fn why(world: &World, name: &str, output: &mut String) {
    let why = world.table.why(&lock_name(name), 10);
    status(world, name, output);
    for link in why.chain {
        let (depth, who) = (link.depth, link.waiter.owner.application);
        let (in_the_way_of, waits_for) = (link.in_the_way_of, link.waits_for);
        write!(output, "{depth}: {who}, in the way of {in_the_way_of}, waits for {waits_for}")
            .unwrap();
        write!(output, " in place {}", link.waiter.position).unwrap();
        for holder in link.holders {
            write!(output, ", held by {}", holder.owner.application).unwrap();
        }
        writeln!(output).unwrap();
    }
    if why.chain_is_cut {
        writeln!(output, "and more").unwrap();
    }
    for reserved in why.reserved {
        let (name, who) = (reserved.name, reserved.owner.application);
        writeln!(output, "{name} is free, and kept for {who}").unwrap();
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
        let (name, waiters) = (lock.name, lock.waiter_count);
        let Some(first) = lock.first_holder else {
            writeln!(output, "{name}: free, {waiters} waiting").unwrap();
            continue;
        };
        let (who, token, since) = (first.owner.application, first.token, time(first.granted_at));
        write!(output, "{name}: {who} since {since}, token {token}, ").unwrap();
        if lock.holder_count > 1 {
            write!(output, "{} holders, ", lock.holder_count).unwrap();
        }
        writeln!(output, "{waiters} waiting").unwrap();
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

fn freezes(world: &World, output: &mut String) {
    for freeze in world.table.freezes() {
        writeln!(output, "{}* until {}", freeze.prefix, time(freeze.until)).unwrap();
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
    assert!(bytes.ends_with(&restored.digest().0.to_le_bytes()), "the digest is that of the bytes");
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
