//! Lines against those that `serde_json` makes of the message for watchers.

use holdfast_core::command::{Action, Intervention, Mode as LockMode, Owner};
use holdfast_core::{
    ActorId, EndReason as Ending, Event, FenceToken, LockName, LogicalTime, Outcome, RequestId,
    SessionId, Span,
};
use holdfast_proto::v1::{EndReason, Mode, WatchEvent};
use holdfast_replica::NodeId;
use serde::Serialize;

use super::*;

fn owner() -> Owner {
    Owner {
        application: "a \"quoted\" \\ one".to_owned(),
        host: "höst".to_owned(),
        pid: 77,
        note: "tab\tand \u{1} and \u{202e}".to_owned(),
    }
}

/// One of each, and some with what has to be escaped.
fn events() -> Vec<Event> {
    let name = |text: &str| LockName::new(text).unwrap();
    let (session, request, token) = (SessionId(7), RequestId(8), FenceToken(9));
    let (actor, granted_at) = (ActorId(3), LogicalTime::from_ms(5));
    let metadata: Box<[u8]> = Box::from(&b"a secret of the holder's"[..]);
    let names = || [name("b"), name("c\"\\</script>")].into_iter().collect();
    let mut events = vec![
        Event::SessionOpened {
            session,
            public: PublicSessionId(1),
            owner: Box::new(owner()),
            principal: None,
        },
        Event::SessionEnded { session, public: PublicSessionId(0xab), reason: Ending::Killed },
        Event::Queued { name: name("ä\u{202e}"), session, request, actor, mode: LockMode::Shared },
        Event::Refused { names: names(), session, request, outcome: Outcome::TimedOut },
        Event::WaitEnded { names: names(), session, request, outcome: Outcome::Cancelled },
        Event::Converted {
            name: name("d"),
            session,
            request,
            mode: LockMode::Permit { limit: 3 },
            token,
            metadata: metadata.clone(),
        },
        Event::Proclaimed { name: name("e"), session, token, metadata: metadata.clone() },
        Event::Released { name: name("f"), session, request, token, granted_at, by_close: false },
        Event::Reopened { name: name("g") },
        Event::Thawed { prefix: "h/\"\u{7f}".to_owned() },
        Event::Thawed { prefix: String::new() },
    ];
    for actor in [ActorId(0), actor] {
        events.push(Event::Granted {
            name: name("a"),
            session,
            request,
            actor,
            mode: LockMode::Exclusive,
            token,
            metadata: metadata.clone(),
        });
    }
    let reasons = [Ending::Ttl, Ending::MaxHold, Ending::Closed, Ending::Disconnected];
    for reason in reasons.into_iter().chain([Ending::SessionExpired, Ending::Broken]) {
        let name = name("i");
        events.push(Event::HoldEnded { name, session, request, token, granted_at, reason });
    }
    let actions = [
        Action::Freeze { prefix: Box::from("j/"), ttl: Span::from_ms(9) },
        Action::KillSession { session: PublicSessionId(2) },
        Action::SetPermits { name: name("k"), limit: None },
    ];
    for action in actions {
        let (by, reason) = (Box::from("olga\n"), Box::from("because \"so\""));
        events.push(Event::Intervened(Intervention { by, reason, action, identity: None }));
    }
    events
}

fn record(number: u32, event: Event) -> Recorded {
    // Those of one entry have their time and index in common, and then both change.
    let index = 40 + u64::from(number / 3);
    let at = LogicalTime::from_ms(index - 40);
    let position = Position { group: GroupId::FIRST, index, number: number % 3 };
    Recorded { position, at, unix_ms: 1_794_743_884_000 + index / 2, event, serial: 0 }
}

#[test]
fn every_event_becomes_the_line_that_a_general_writer_makes() {
    let owner = SessionOwner { owner: owner(), principal: None };
    let mut stamp = Stamp::default();
    for (number, happened) in (0..).zip(events()) {
        let recorded = record(number, happened);
        for known in [None, Some(&owner)] {
            let view = EventView::of(&recorded);
            let mut line = b"before".to_vec();
            let session = view.session.public().map(|public| session(public, known, None));
            let session = session.unwrap_or_default();
            event(&mut line, &mut stamp, &recorded, &view, session.as_bytes());
            let known = known.filter(|_| view.session.public().is_some());
            let known = known.map(|known| &known.owner);
            let expected = of(&recorded, &crate::events::message(&recorded), known);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(text(&line), format!("before{}", text(&expected)));
            assert!(!text(&line).contains("a secret"), "{}", text(&line));
        }
    }
}

#[test]
fn gaps_and_leaders_have_lines_like_events() {
    let (position, unix_ms) =
        (Position { group: GroupId::FIRST, index: 7, number: 0 }, 1_794_743_884_123);
    assert_eq!(gap(5, position, unix_ms, 0), reference_gap(5, position, unix_ms, 0));
    for (leader, is_here) in [(Some(NodeId(2)), false), (Some(NodeId(1)), true), (None, false)] {
        let now = Leadership { leader, is_here, term: 4 };
        let expected = reference_leadership(now, position, unix_ms);
        assert_eq!(leadership(now, position, unix_ms), expected);
    }
}

/// What does not apply is left out.
#[derive(Default, Serialize)]
struct Fields<'a> {
    event: &'a str,
    time: String,
    unix_ms: u64,
    group: u64,
    index: u64,
    number: u32,
    #[serde(skip_serializing_if = "is_zero")]
    logical_time_ms: u64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    names: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerFields<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    request_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    actor: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    mode: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    token: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
}

#[derive(Serialize)]
struct OwnerFields<'a> {
    application: &'a str,
    host: &'a str,
    pid: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn of(recorded: &Recorded, event: &WatchEvent, owner: Option<&Owner>) -> Vec<u8> {
    let kind = word(event.kind().as_str_name(), "EVENT_KIND_");
    let fields = Fields {
        event: &kind,
        logical_time_ms: event.logical_time_ms,
        names: &event.names,
        session: &event.public_session_id,
        owner: owner.map(|owner| OwnerFields {
            application: &owner.application,
            host: &owner.host,
            pid: owner.pid,
            note: &owner.note,
        }),
        request_id: event.request_id,
        actor: event.actor,
        mode: match event.mode() {
            Mode::Unspecified => String::new(),
            mode => word(mode.as_str_name(), "MODE_"),
        },
        token: if event.token == 0 { String::new() } else { event.token.to_string() },
        reason: match event.reason() {
            EndReason::Unspecified => String::new(),
            reason => word(reason.as_str_name(), "END_REASON_"),
        },
        by: &event.by,
        detail: &event.detail,
        ..at(recorded.position, recorded.unix_ms)
    };
    json(&fields)
}

fn reference_gap(after_index: u64, next: Position, unix_ms: u64, lost: u64) -> Vec<u8> {
    let detail = "events are missing: the writer was too far behind, or a snapshot stands for them";
    let fields = Fields {
        event: "gap",
        lost: Some(lost),
        after_index: Some(after_index),
        detail,
        ..at(next, unix_ms)
    };
    json(&fields)
}

fn reference_leadership(now: Leadership, position: Position, unix_ms: u64) -> Vec<u8> {
    let detail = if now.is_here { "this node leads" } else { "" };
    let leader = Some(now.leader.map_or(0, |node| node.0));
    let fields = Fields {
        event: "leadership",
        leader,
        term: Some(now.term),
        detail,
        ..at(position, unix_ms)
    };
    json(&fields)
}

fn at<'a>(position: Position, unix_ms: u64) -> Fields<'a> {
    let (index, number) = (position.index, position.number);
    Fields {
        time: utc(unix_ms),
        unix_ms,
        group: GroupId::FIRST.0.into(),
        index,
        number,
        ..Default::default()
    }
}

fn json(fields: &Fields<'_>) -> Vec<u8> {
    // Texts and numbers only: it cannot fail.
    let mut line = serde_json::to_vec(fields).unwrap_or_default();
    line.push(b'\n');
    line
}

/// As in `EVENT_KIND_SESSION_OPENED`: `session_opened`.
fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}
