//! The short names of kinds, modes and reasons: as in `EVENT_KIND_SESSION_OPENED`, `session_opened`.

use holdfast_proto::v1::{EndReason, EventKind, Mode};

pub(super) fn of_kind(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Unspecified => "unspecified",
        EventKind::Granted => "granted",
        EventKind::Queued => "queued",
        EventKind::Released => "released",
        EventKind::Expired => "expired",
        EventKind::Wounded => "wounded",
        EventKind::Broken => "broken",
        EventKind::Transferred => "transferred",
        EventKind::Refused => "refused",
        EventKind::WaitEnded => "wait_ended",
        EventKind::Converted => "converted",
        EventKind::Proclaimed => "proclaimed",
        EventKind::Reopened => "reopened",
        EventKind::Intervened => "intervened",
        EventKind::Frozen => "frozen",
        EventKind::Thawed => "thawed",
        EventKind::AccessChanged => "access_changed",
        EventKind::SessionOpened => "session_opened",
        EventKind::SessionEnded => "session_ended",
        EventKind::Killed => "killed",
    }
}

pub(super) fn of_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Unspecified => "",
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permit => "permit",
    }
}

pub(super) fn of_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Unspecified => "",
        EndReason::Ttl => "ttl",
        EndReason::MaxHold => "max_hold",
        EndReason::Closed => "closed",
        EndReason::Disconnected => "disconnected",
        EndReason::Wounded => "wounded",
        EndReason::Broken => "broken",
        EndReason::Killed => "killed",
        EndReason::Transferred => "transferred",
        EndReason::SessionExpired => "session_expired",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(name: &str, prefix: &str) -> String {
        name.strip_prefix(prefix).unwrap().to_ascii_lowercase()
    }

    #[test]
    fn short_names_are_those_of_the_wire() {
        for kind in (0..).map_while(|number| EventKind::try_from(number).ok()) {
            assert_eq!(of_kind(kind), short(kind.as_str_name(), "EVENT_KIND_"));
        }
        for mode in (1..).map_while(|number| Mode::try_from(number).ok()) {
            assert_eq!(of_mode(mode), short(mode.as_str_name(), "MODE_"));
        }
        for reason in (1..).map_while(|number| EndReason::try_from(number).ok()) {
            assert_eq!(of_reason(reason), short(reason.as_str_name(), "END_REASON_"));
        }
    }
}
