//! One line of the audit file, and the value of a record for Kafka. What does not apply is left out.
//!
//! A node writes one for nearly every operation that it serves, so they are written field by field into the
//! buffer that goes to the file, without a value in between, and what many events in a row have in common (all
//! of an entry of the log happened at one time) is made once.
//!
//! A token is a text of digits: many readers of JSON would round it as a number.

use std::collections::BTreeSet;

use holdfast_core::{Event, LogicalTime, PublicSessionId};
use holdfast_replica::{Configuration, GroupId, Leadership, NodeId};

use super::json_writer::JsonWriter;
use super::last_positions::Positions;
use super::notes::{Note, Origin};
use super::short_names;
use crate::events::{EventView, Position, Recorded, SessionOwner};
use crate::utc::utc;

/// The kinds of lines that are about no event of the log, or about one that comes after them.
pub(super) const SPECIAL: [&str; 4] = ["leadership", "membership", "gap", POSITIONS];
/// The kind of the line that has the positions of all groups.
pub(super) const POSITIONS: &str = "positions";

/// The parts of a line that tell when and where, around the number in the entry.
#[derive(Debug, Default)]
pub(crate) struct Stamp {
    of: Option<(u64, GroupId, u64, LogicalTime)>,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Stamp {
    fn renew(&mut self, unix_ms: u64, Position { group, index, .. }: Position, at: LogicalTime) {
        if self.of == Some((unix_ms, group, index, at)) {
            return;
        }
        self.of = Some((unix_ms, group, index, at));
        self.before.clear();
        let mut before = JsonWriter::append_to(&mut self.before);
        before.text(b",\"time\":", &utc(unix_ms));
        before.number(b",\"unix_ms\":", unix_ms);
        before.number(b",\"group\":", group.0.into());
        before.number(b",\"index\":", index);
        before.put(b",\"number\":");
        before.finish();
        self.after.clear();
        let mut after = JsonWriter::append_to(&mut self.after);
        after.number_above_zero(b",\"logical_time_ms\":", at.as_ms());
        after.finish();
    }
}

/// With what [`session`] says of its session.
pub(crate) fn event(
    lines: &mut Vec<u8>,
    stamp: &mut Stamp,
    recorded: &Recorded,
    view: &EventView<'_>,
    session: &[u8],
) {
    stamp.renew(recorded.unix_ms, recorded.position, recorded.at);
    let mut json = JsonWriter::append_to(lines);
    let kind = match &recorded.event {
        Event::SessionEnding { .. } => "session_ending",
        _ => short_names::of_kind(view.kind),
    };
    begin(&mut json, stamp, kind, recorded.position);
    let mut is_first = true;
    for name in view.names.iter() {
        if std::mem::take(&mut is_first) {
            json.text(b",\"names\":[", name);
        } else {
            json.text(b",", name);
        }
    }
    if !is_first {
        json.put(b"]");
    }
    json.put_slice(session);
    json.number_above_zero(b",\"request_id\":", view.request_id);
    json.number_above_zero(b",\"actor\":", view.actor);
    json.word_if_any(b",\"mode\":", short_names::of_mode(view.mode));
    json.number_as_text(b",\"token\":", view.token);
    json.word_if_any(b",\"reason\":", short_names::of_reason(view.reason));
    json.text_if_any(b",\"by\":", view.by);
    json.text_if_any(b",\"detail\":", &view.detail);
    end(json);
}

/// Its public id, its owner if that is known, and from where its client came to this node.
pub(crate) fn session(
    session: PublicSessionId,
    owner: Option<&SessionOwner>,
    origin: Option<&Origin>,
) -> String {
    let mut bytes = Vec::new();
    let mut json = JsonWriter::append_to(&mut bytes);
    json.text(b",\"session\":", &session.to_string());
    if let Some(SessionOwner { owner, .. }) = owner {
        json.text(b",\"owner\":{\"application\":", &owner.application);
        json.text(b",\"host\":", &owner.host);
        json.number(b",\"pid\":", owner.pid.into());
        json.text_if_any(b",\"note\":", &owner.note);
        json.put(b"}");
    }
    let principal = owner.and_then(|owner| owner.principal.as_ref());
    match (origin, principal) {
        (Some(origin), _) => origin.write(&mut json),
        (None, Some(principal)) => json.text(b",\"principal\":", principal.as_str()),
        (None, None) => {}
    }
    json.finish();
    // It is made of texts.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Of a file that was begun later than the log: nothing up to this position is in it.
pub(crate) fn beginning(oldest: Position, unix_ms: u64) -> Vec<u8> {
    let detail = "the file begins here; what happened before is not in it";
    special("beginning", oldest, unix_ms, |json| json.text(b",\"detail\":", detail))
}

/// Events are missing here; those after the snapshot of the leader, if one stands for them, were never counted.
pub(crate) fn gap(after_index: u64, next: Position, unix_ms: u64, lost: u64) -> Vec<u8> {
    let detail = "events are missing: the writer was too far behind, or a snapshot stands for them";
    special("gap", next, unix_ms, |json| {
        json.text(b",\"detail\":", detail);
        json.number(b",\"lost\":", lost);
        json.number(b",\"after_index\":", after_index);
    })
}

/// What was noted of callers. The position is that of the event before it.
pub(super) fn note(note: &Note, position: Position, unix_ms: u64) -> Vec<u8> {
    match note {
        Note::Denied { denial, count } => {
            let event = if denial.is_enforced { "denied" } else { "would_be_denied" };
            special(event, position, unix_ms, |json| {
                json.word(b",\"method\":", &format!("{:?}", denial.method));
                json.word(b",\"reason\":", &denial.reason.wire_name());
                denial.origin.write(json);
                json.number(b",\"count\":", *count);
            })
        }
        Note::DeniedOtherwise { principal, count } => {
            special("denied", position, unix_ms, |json| {
                json.text(b",\"principal\":", principal);
                json.text(b",\"detail\":", "of more kinds than have lines of their own");
                json.number(b",\"count\":", *count);
            })
        }
        Note::LoggedIn { origin, public, is_new, .. } => {
            special("login", position, unix_ms, |json| {
                json.text(b",\"session\":", &public.to_string());
                json.word(b",\"method\":", if *is_new { "OpenSession" } else { "ResumeSession" });
                origin.write(json);
            })
        }
        Note::DashboardLogin(origin) => special("login", position, unix_ms, |json| {
            json.word(b",\"method\":", "HttpLogin");
            origin.write(json);
        }),
        Note::Requested { origin, method } => special("requested", position, unix_ms, |json| {
            json.word(b",\"method\":", &format!("{method:?}"));
            origin.write(json);
        }),
    }
}

/// Denials, logins or requests for which the writer had no room.
pub(super) fn lost_notes(lost: u64, position: Position, unix_ms: u64) -> Vec<u8> {
    let detail =
        "denials, logins or requests are missing: there were more than the writer has room for";
    special("notes_lost", position, unix_ms, |json| {
        json.text(b",\"detail\":", detail);
        json.number(b",\"lost\":", lost);
    })
}

pub(crate) fn leadership(now: Leadership, position: Position, unix_ms: u64) -> Vec<u8> {
    special("leadership", position, unix_ms, |json| {
        json.text_if_any(b",\"detail\":", if now.is_here { "this node leads" } else { "" });
        json.number(b",\"leader\":", now.leader.map_or(0, |node| node.0));
        json.number(b",\"term\":", now.term);
    })
}

pub(crate) fn membership(now: &Configuration, position: Position, unix_ms: u64) -> Vec<u8> {
    special("membership", position, unix_ms, |json| {
        nodes_if_any(json, b",\"voters\":[", &now.voters);
        nodes_if_any(json, b",\"outgoing\":[", &now.outgoing);
        nodes_if_any(json, b",\"learners\":[", &now.learners);
    })
}

/// Where all groups are that have a position. `root` is the position of the root group.
pub(super) fn positions(all: &Positions, root: Position, unix_ms: u64) -> Vec<u8> {
    special(POSITIONS, root, unix_ms, |json| {
        json.put(b",\"positions\":[");
        let mut is_first = true;
        for Position { group, index, number } in all.values() {
            if !std::mem::take(&mut is_first) {
                json.put(b",");
            }
            json.number(b"{\"group\":", group.0.into());
            json.number(b",\"index\":", *index);
            json.number(b",\"number\":", (*number).into());
            json.put(b"}");
        }
        json.put(b"]");
    })
}

fn nodes_if_any<const N: usize>(
    json: &mut JsonWriter<'_>,
    label: &[u8; N],
    nodes: &BTreeSet<NodeId>,
) {
    let mut nodes = nodes.iter();
    if let Some(first) = nodes.next() {
        json.number(label, first.0);
        nodes.for_each(|node| json.number(b",", node.0));
        json.put(b"]");
    }
}

fn special(
    event: &str,
    position: Position,
    unix_ms: u64,
    more: impl FnOnce(&mut JsonWriter<'_>),
) -> Vec<u8> {
    let (mut line, mut stamp) = (Vec::new(), Stamp::default());
    stamp.renew(unix_ms, position, LogicalTime::ZERO);
    let mut json = JsonWriter::append_to(&mut line);
    begin(&mut json, &stamp, event, position);
    more(&mut json);
    end(json);
    line
}

fn begin(json: &mut JsonWriter<'_>, stamp: &Stamp, event: &str, position: Position) {
    json.word(b"{\"event\":", event);
    json.put_slice(&stamp.before);
    json.number(b"", position.number.into());
    json.put_slice(&stamp.after);
}

fn end(mut json: JsonWriter<'_>) {
    json.put(b"}\n");
    json.finish();
}

#[cfg(test)]
mod tests;
