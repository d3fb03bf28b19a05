//! One line of the audit file, and the value of a record for Kafka.

use holdfast_core::command::Owner;
use holdfast_proto::v1::{EndReason, Mode, WatchEvent};
use holdfast_replica::Leadership;
use serde::Serialize;

use crate::driver::FIRST_GROUP;
use crate::events::{Position, Recorded};

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
    #[serde(skip_serializing_if = "is_zero")]
    token: u64,
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

pub(crate) fn of(recorded: &Recorded, event: &WatchEvent, owner: Option<&Owner>) -> Vec<u8> {
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
        token: event.token,
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

/// Events are missing here; those after the snapshot of the leader, if one stands for them, were never counted.
pub(crate) fn gap(after_index: u64, next: Position, unix_ms: u64, lost: u64) -> Vec<u8> {
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

pub(crate) fn leadership(now: Leadership, position: Position, unix_ms: u64) -> Vec<u8> {
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
        group: FIRST_GROUP.0.into(),
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

/// A time of the wall clock for people: `2026-11-15T12:00:00.000Z`.
pub fn utc(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1_000, unix_ms % 1_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// The date of a day since 1970, by counting from a 1 March, after which leap days no longer matter.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::EventKind;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_794_743_884_123), "2026-11-15T11:58:04.123Z");
        assert_eq!(utc(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn kinds_have_short_names() {
        assert_eq!(word(EventKind::SessionOpened.as_str_name(), "EVENT_KIND_"), "session_opened");
    }
}
