//! A line for each lock and each event.

use holdfast_proto::v1;
use serde_json::json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// For programs.
    Json,
    /// For people.
    Words,
}

pub(super) fn held(lock: &v1::LockSummary, style: Style) -> String {
    match style {
        Style::Json => json!({
            "event": if lock.holder_count == 0 { "free" } else { "held" },
            "names": [lock.name],
            "session": lock.public_session_id,
            "token": lock.token,
            "holder_count": lock.holder_count,
            "waiter_count": lock.waiter_count,
            "held_for_ms": lock.held_for_ms,
            "metadata": String::from_utf8_lossy(&lock.metadata),
        })
        .to_string(),
        Style::Words if lock.holder_count == 0 => {
            format!("{:<14} {}  {} waiting", "free", lock.name, lock.waiter_count)
        }
        Style::Words => format!(
            "{:<14} {}  session {}  token {}  {} waiting",
            "held", lock.name, lock.public_session_id, lock.token, lock.waiter_count
        ),
    }
}

pub(super) fn happened(event: &v1::WatchEvent, style: Style) -> String {
    let kind = kind_name(event.kind());
    match style {
        Style::Json => {
            let position = event.position.unwrap_or_default();
            json!({
                "event": kind,
                "position": { "group": position.group, "index": position.index, "number": position.number },
                "logical_time_ms": event.logical_time_ms,
                "unix_ms": event.unix_ms,
                "names": event.names,
                "session": event.public_session_id,
                "request_id": event.request_id,
                "actor": event.actor,
                "token": event.token,
                "metadata": String::from_utf8_lossy(&event.metadata),
                "by": event.by,
                "detail": event.detail,
            })
            .to_string()
        }
        Style::Words => {
            let mut line = format!("{kind:<14} {}", event.names.join(" "));
            let mut add = |label: &str, value: &str| {
                if !value.is_empty() {
                    line.push_str("  ");
                    line.push_str(label);
                    line.push_str(value);
                }
            };
            add("session ", &event.public_session_id);
            add("token ", &number(event.token));
            add("by ", &event.by);
            add("", &event.detail);
            line
        }
    }
}

fn number(value: u64) -> String {
    if value == 0 { String::new() } else { value.to_string() }
}

/// As in `EVENT_KIND_SESSION_OPENED`: `session_opened`.
pub(crate) fn kind_name(kind: v1::EventKind) -> String {
    let name = kind.as_str_name();
    name.strip_prefix("EVENT_KIND_").unwrap_or(name).to_ascii_lowercase()
}
