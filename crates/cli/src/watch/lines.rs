//! The output of `watch` line by line: one line for each lock at the start, and one for each event.

use holdfast_proto::v1;
use holdfast_server::utc;
use serde_json::json;

use super::owners::Owners;
use crate::duration::in_words;
use crate::status::OwnerInfo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// For programs.
    Json,
    /// For people.
    Text,
}

/// The line of a lock when the watch begins.
pub(super) fn held(lock: &v1::LockSummary, style: Style) -> String {
    let owner = OwnerInfo::from(lock.owner.clone());
    match style {
        Style::Json => json!({
            "event": if lock.holder_count == 0 { "free" } else { "held" },
            "names": [lock.name],
            "session": lock.public_session_id,
            "owner": owner,
            "token": lock.token.to_string(),
            "holder_count": lock.holder_count,
            "waiter_count": lock.waiter_count,
            "held_for_ms": lock.held_for_ms,
            "metadata": String::from_utf8_lossy(&lock.metadata),
        })
        .to_string(),
        Style::Text if lock.holder_count == 0 => {
            format!("{:<24}  {:<14} {}  {} waiting", "now", "free", lock.name, lock.waiter_count)
        }
        Style::Text => format!(
            "{:<24}  {:<14} {}  {}  session {}  token {}  for {}  {} waiting",
            "now",
            "held",
            lock.name,
            owner.in_words(),
            lock.public_session_id,
            lock.token,
            in_words(lock.held_for_ms),
            lock.waiter_count
        ),
    }
}

/// The line of an event. Only the text for people has the owner of the session, if it is known.
pub(super) fn happened(event: &v1::WatchEvent, owners: &Owners, style: Style) -> String {
    let kind = kind_name(event.kind());
    let time = utc(event.unix_ms);
    match style {
        Style::Json => {
            let position = event.position.unwrap_or_default();
            json!({
                "event": kind,
                "position": { "group": position.group, "index": position.index, "number": position.number },
                "logical_time_ms": event.logical_time_ms,
                "unix_ms": event.unix_ms,
                "time": time,
                "names": event.names,
                "session": event.public_session_id,
                "request_id": event.request_id,
                "actor": event.actor,
                "token": event.token.to_string(),
                "reason": end_reason(event),
                "held_for_ms": event.held_for_ms,
                "metadata": String::from_utf8_lossy(&event.metadata),
                "by": event.by,
                "detail": event.detail,
            })
            .to_string()
        }
        Style::Text => {
            let mut line = format!("{time}  {kind:<14} {}", event.names.join(" "));
            let mut add = |label: &str, value: &str| {
                if !value.is_empty() {
                    line.push_str("  ");
                    line.push_str(label);
                    line.push_str(value);
                }
            };
            add("", owners.of(&event.public_session_id));
            add("session ", &event.public_session_id);
            add("token ", &number(event.token));
            add("", &end_reason(event).unwrap_or_default());
            add("held for ", &event.held_for_ms.map(in_words).unwrap_or_default());
            add("by ", &event.by);
            add("", &event.detail);
            line
        }
    }
}

/// How a hold or a session ended, by the names of the audit file. `None` if the event ended nothing.
pub(crate) fn end_reason(event: &v1::WatchEvent) -> Option<String> {
    let name = event.reason().as_str_name();
    let word = name.strip_prefix("END_REASON_").unwrap_or(name).to_ascii_lowercase();
    (event.reason() != v1::EndReason::Unspecified).then_some(word)
}

fn number(value: u64) -> String {
    if value == 0 { String::new() } else { value.to_string() }
}

/// The name of the kind in the output, such as `session_opened` for `EVENT_KIND_SESSION_OPENED`.
pub(crate) fn kind_name(kind: v1::EventKind) -> String {
    let name = kind.as_str_name();
    name.strip_prefix("EVENT_KIND_").unwrap_or(name).to_ascii_lowercase()
}
