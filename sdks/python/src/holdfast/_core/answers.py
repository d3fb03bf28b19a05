"""What answers and notices change."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from .._messages import END_REASONS, REASONS, RELEASE_OUTCOMES
from .._wire import Message
from ..errors import (
    Busy,
    Closed,
    Deadlock,
    Died,
    HoldfastError,
    Lost,
    PermissionDenied,
    QuotaExceeded,
    Rejected,
    TimedOut,
    Unauthenticated,
)
from .hold import SHARED, HeldAs, Hold, Loss
from .lease import MS, safe_end
from .pacing import Backoff
from .requests import Entry
from .state import Queued, State

#: Reasons for which another node has to serve the session.
_MOVES = frozenset({"not_leader", "no_quorum", "shutting_down", "out_of_space", "audit_unavailable"})
#: The time of a read is in no entry of the log. And a principal that was revoked may still give up what it has, which
#: does not keep its session alive.
_NO_SAMPLES = frozenset({"status", "close", "release", "cancel"})
#: A node that tells more is asked again all the same: its quota may be another one by then.
_RETRY_AFTER_MS_MAX = 60_000
_QUOTAS = frozenset({"quota_exceeded", "rate_limited"})
_DENIALS = {
    "unauthenticated": Unauthenticated,
    "credential_expired": Unauthenticated,
    "permission_denied": PermissionDenied,
}
_UNKNOWN = "an answer that this version does not know"
_LOSSES = {"ttl": "hold_ttl", "closed": "session_closed", "killed": "session_killed", "unspecified": "ended"}


class Verdict(NamedTuple):
    """What a frame means for the stream it came on. Of several the one with the highest rank counts."""

    rank: int
    kind: str
    leader: str = ""
    words: str = ""


GO_ON = Verdict(0, "go_on")
CLOSED = Verdict(5, "closed")


def _move(leader: str, words: str) -> Verdict:
    return Verdict(2 if leader else 1, "move", leader, words)


def _session_lost(reason: str) -> Verdict:
    # What an answer was refused with ranks below a notice of the same frame, which tells more.
    return Verdict(3 if reason == "session_expired" else 4, "session_lost", words=reason)


def reason_of(failure: Message) -> str:
    return REASONS.get(failure.get("reason", 0), "unspecified")


def rejected(failure: Message) -> Rejected:
    reason, words = reason_of(failure), failure.get("message", "")
    may_have_happened = failure.get("may_have_happened", False)
    if reason in _QUOTAS:
        told = retry_after(failure)
        return QuotaExceeded(reason, words, may_have_happened, told / MS / 1000 if told else None)
    error = _DENIALS.get(reason, Rejected)(reason, words, may_have_happened)
    error.map_epoch = failure.get("map_epoch", 0)
    return error


def retry_after(failure: Message) -> int:
    """For how long the node refuses the same request; 0 if it does not say."""
    return int(min(failure.get("retry_after_ms", 0), _RETRY_AFTER_MS_MAX)) * MS


def is_denial(failure: Message) -> bool:
    """Whether the node does not accept the client, or does not allow the request."""
    return reason_of(failure) in _DENIALS


def on_frame(state: State, now: int, frame: Message) -> Verdict:
    """Takes in the whole frame, whatever its first answers say: what is dropped here is not told again."""
    verdict = GO_ON
    for answer in frame.get("answers", ()):
        verdict = max(verdict, _on_answer(state, now, answer), key=lambda it: it.rank)
    for notice in frame.get("notices", ()):
        verdict = max(verdict, _on_notice(state, notice), key=lambda it: it.rank)
    return verdict


def _on_answer(state: State, now: int, answer: Message) -> Verdict:
    request_id = answer.get("request_id", 0)
    kind = next((key for key in answer if key != "request_id"), None)
    if kind == "failure":
        verdict = _on_failure(state, now, request_id, answer["failure"])
    elif kind is None:
        state.settle(request_id, Rejected("unspecified", _UNKNOWN, True))
        verdict = GO_ON
    else:
        _note_time(state, request_id, kind, answer[kind])
        verdict = _on_result(state, now, request_id, kind, answer[kind])
    if state.heartbeat == request_id and state.requests.get(request_id) is None:
        state.heartbeat = None
    return verdict


def _note_time(state: State, request_id: int, kind: str, result: Message) -> None:
    entry = state.requests.get(request_id)
    if entry is None or entry.first_sent_at is None or state.leases is None or kind in _NO_SAMPLES:
        return
    answered = state.leases.answered_best_effort if entry.is_best_effort else state.leases.answered
    answered(entry.first_sent_at, result.get("logical_time_ms", 0))


def _on_notice(state: State, notice: Message) -> Verdict:
    if "queued" in notice:
        queued = notice["queued"]
        request_id = queued.get("request_id", 0)
        entry = state.requests.get(request_id)
        # The answer to a convert is not found again by what it holds: it stays unacknowledged.
        if entry is not None and entry.is_acquire:
            state.outputs.append(Queued(entry.caller, queued.get("position", 0)))
            state.requests.mark_waiting(request_id)
    elif "hold_ended" in notice:
        ended = notice["hold_ended"]
        reason = END_REASONS.get(ended.get("reason", 0), "unspecified")
        acquire, name = ended.get("acquire_request_id", 0), ended.get("name", "")
        if name:
            meant = [it for it in state.holds.values() if it.acquire == acquire and it.name == name]
            state.end_holds(meant, _LOSSES.get(reason, reason))
        else:
            state.end_holds(_lost_unseen(state, ended.get("token", 0), acquire), "ended")
    elif "session_ended" in notice:
        reason = END_REASONS.get(notice["session_ended"].get("reason", 0), "unspecified")
        return _session_lost("session_expired" if reason == "ttl" else _LOSSES.get(reason, reason))
    elif "leader_moved" in notice:
        leader = notice["leader_moved"].get("leader", "")
        if leader:
            state.leader_lost("leader_changed")
        return _move(leader, "the leader moved")
    elif "members_changed" in notice:
        state.endpoints_told = notice["members_changed"].get("endpoints", [])
    return GO_ON


def _lost_unseen(state: State, token: int, acquire: int) -> List[Hold]:
    """What was lost while no notice could come. Readers share a token, so of them the acquire is told as well."""

    def is_meant(hold: Hold) -> bool:
        if hold.held_as.token != token or hold.is_best_effort:
            return False
        return hold.acquire == acquire if hold.held_as.mode == SHARED else acquire == 0

    return [hold for hold in state.holds.values() if is_meant(hold)]


def _on_failure(state: State, now: int, request_id: int, failure: Message) -> Verdict:
    failure = state.heard_failure(failure)
    reason = reason_of(failure)
    leader, words = failure.get("leader", ""), failure.get("message", "")
    entry = state.requests.get(request_id)
    if reason == "unknown_session":
        return _session_lost("session_expired")
    if failure.get("retryable"):
        if reason in _MOVES:
            return _move(leader, words)
        told = retry_after(failure)
        if entry is None or not told or _may_wait(entry, now, told):
            _on_sent_back(state, now + told, request_id, entry)
            return GO_ON
    if entry is None:
        return GO_ON
    if reason == "answer_discarded" and state.requests.is_waiting(request_id):
        state.settle(request_id, _wait_ended_unseen(entry, now))
        return GO_ON
    if entry.kind == "keep_alive":
        # A session that may not even be kept alive is better resumed elsewhere.
        return _move(leader, words)
    if entry.kind == "close":
        # Refused or not, the client is done with its session.
        state.settle(request_id, None)
        return CLOSED
    if entry.was_sent_before and reason in _DENIALS:
        failure = {**failure, "may_have_happened": True}
        if entry.is_acquire or entry.kind == "convert":
            _cancel_denied_copy(state, request_id, entry, failure)
            return GO_ON
    state.settle(request_id, _refused(state, request_id, entry, reason, failure))
    return GO_ON


def _cancel_denied_copy(state: State, request_id: int, entry: Entry, failure: Message) -> None:
    """Tells the caller. A cancel finds out what became of the earlier copy: every client may cancel."""
    if not entry.is_abandoned:
        entry.is_abandoned = True
        state.stage_cancel(request_id, entry)
        state.complete(entry, rejected(failure))


def _may_wait(entry: Entry, now: int, told: int) -> bool:
    """Whether the caller still waits when the request may be sent again. One that may have been carried out must be."""
    if entry.was_sent_before or entry.caller is None:
        return True
    return now + Backoff.longest_after(told) < entry.waits_until


def _on_sent_back(state: State, not_before: int, request_id: int, entry: Optional[Entry]) -> None:
    if entry is None:
        return
    entry.answer_due = None
    if entry.is_worth_retrying():
        state.retries_due[request_id] = not_before + state.backoff.next_delay()
    elif not entry.is_abandoned:
        state.requests.settle(request_id)
        state.note_settled(entry)
    # The cancel of an abandoned one is on the way, and settles both. Until then an earlier copy may be granted.


def _wait_ended_unseen(entry: Entry, now: int) -> HoldfastError:
    """A wait that was acknowledged ended while there was no stream, and nothing is held by it."""
    sent_at = entry.first_sent_at
    may_be_over = sent_at is None or safe_end(sent_at, entry.own_wait()) <= now
    # Too early for a timeout: it was granted, and the hold's own time is over.
    return TimedOut() if may_be_over else Lost("ended")


def _refused(state: State, request_id: int, entry: Entry, reason: str, failure: Message) -> HoldfastError:
    hold = entry.hold
    if entry.is_acquire and reason == "grant_ended":
        return Lost("ended")
    if hold is None:
        return rejected(failure)
    is_gone = reason == "not_held" or (entry.kind == "convert" and reason == "grant_ended")
    if is_gone and entry.kind in ("renew", "proclaim", "transfer", "convert"):
        same = [it for it in state.holds.values() if it.acquire == hold.acquire and it.name == hold.name]
        state.end_holds(same, "ended")
        hold.end("ended")
        return Lost(hold.loss.reason or "ended")
    may_have_happened = failure.get("may_have_happened", False)
    if entry.kind == "transfer":
        # If it may have been done, the guard stays without a token.
        hold.held_as.is_leaving = may_have_happened and reason != "no_such_waiter"
    if entry.kind == "renew" and not may_have_happened and state.leases is not None:
        state.leases.renewal_refused(hold.lease, request_id)
    return rejected(failure)


def _on_result(state: State, now: int, request_id: int, kind: str, result: Message) -> Verdict:
    entry = state.requests.settle(request_id)
    if entry is None:
        return GO_ON
    outcome: Any
    hold = entry.hold
    # The answer to an acquire-all and to a convert is that of an acquire.
    asked = "acquire" if entry.kind in ("acquire_all", "convert") else entry.kind
    if asked != kind:
        outcome = Rejected("unspecified", "an answer that does not fit its request", True)
    elif entry.kind == "convert":
        assert hold is not None
        outcome = _converted(hold, result)
    elif entry.is_acquire:
        is_wanted = entry.caller is not None and not entry.is_abandoned
        outcome = _acquired(state, now, request_id, entry, result, is_wanted)
    elif kind == "cancel":
        _on_cancelled(state, entry.fields["target"], result)
        return GO_ON
    elif kind == "release":
        outcome = RELEASE_OUTCOMES.get(result.get("outcome", 0), "unspecified")
    elif kind == "renew":
        assert hold is not None
        if state.leases is not None:
            state.leases.renewed(hold.lease, request_id, result.get("deadline_ms"))
        state.watch_again(hold)
        outcome = None
    elif kind == "transfer":
        assert hold is not None
        same = [it for it in state.holds.values() if it.acquire == hold.acquire and it.name == hold.name]
        state.end_holds(same, "transferred")
        outcome = result.get("token", 0)
    elif kind == "close":
        state.complete(entry, None)
        return CLOSED
    else:
        outcome = result if kind == "status" else None
    state.note_settled(entry)
    state.complete(entry, outcome)
    return GO_ON


def _cycle(deadlock: Message) -> Deadlock:
    return Deadlock(
        [
            {
                "session": link.get("public_session_id", ""),
                "actor": link.get("actor", 0),
                "waits_for": link.get("waits_for", ""),
            }
            for link in deadlock.get("cycle", ())
        ]
    )


def _converted(hold: Hold, result: Message) -> Optional[HoldfastError]:
    if "granted" in result:
        hold.held_as.convert(result["granted"])
        return None
    if "busy" in result:
        return Busy()
    if "timed_out" in result or "cancelled" in result:
        return TimedOut()
    if "deadlock" in result:
        return _cycle(result["deadlock"])
    return Rejected("unspecified", _UNKNOWN, True)


def _acquired(state: State, now: int, request_id: int, entry: Entry, result: Message, is_wanted: bool) -> Any:
    if "granted" in result:
        grants = [result["granted"]]
    elif "all_granted" in result:
        grants = result["all_granted"].get("grants", [])
    elif "busy" in result:
        return Busy()
    elif "timed_out" in result:
        return TimedOut()
    elif "deadlock" in result:
        return _cycle(result["deadlock"])
    elif "died" in result:
        return Died(result["died"].get("since_ms", 0))
    else:
        # Only this client cancels, and only when the caller is gone.
        return Closed() if "cancelled" in result else Rejected("unspecified", _UNKNOWN, True)
    if not is_wanted:
        give_back(state, request_id, grants)
        return Closed()
    return _take_holds(state, now, request_id, entry, grants, result.get("logical_time_ms", 0))


def _take_holds(state: State, now: int, request_id: int, entry: Entry, grants: List[Message], at_ms: int) -> Any:
    members = [member["name"] for member in entry.fields.get("members", ())]
    if members:
        # A retry is told what is still held, and some may have ended in the meantime.
        if len(grants) != len(members):
            give_back(state, request_id, grants)
            return Lost("ended")
        grants = sorted(grants, key=lambda grant: members.index(grant.get("name", "")))
    since = entry.fields.get("since_ms")
    since = None if since is None else min(since, at_ms)
    loss = Loss()
    holds = [_take_hold(state, request_id, entry, grant, loss, since) for grant in grants]
    if entry.renews is not None:
        for hold in holds:
            state.renew_by_itself(hold, entry.renews, now)
    return holds


def _take_hold(state: State, request_id: int, entry: Entry, grant: Message, loss: Loss, since: Optional[int]) -> Hold:
    assert state.leases is not None
    acquire = grant.get("acquire_request_id", 0) or request_id
    number = state.requests.reserve_id() if (acquire, request_id) in state.holds else request_id
    # A hold that is entered again keeps its lease, with the renewals that are under way.
    entered = None if acquire == request_id else state.entered_by(acquire, grant.get("name", ""))
    if entered is not None:
        entered.was_entered = True
        entered.held_as.convert(grant)
    lease = number if entered is None else entered.lease
    hold = Hold(
        acquire=acquire,
        entry=number,
        lease=lease,
        call=entry.call,
        grant=grant,
        held_as=HeldAs(grant) if entered is None else entered.held_as,
        leases=state.leases,
        loss=loss,
        since=since,
    )
    if entered is None:
        state.leases.granted(lease, grant.get("deadline_ms"), hold.is_best_effort)
    state.holds[(acquire, number)] = hold
    return hold


def _on_cancelled(state: State, target: int, result: Message) -> None:
    """The request is settled here if its own answer has not come, so exactly one of the two leads to a release."""
    entry = state.requests.settle(target)
    if entry is None:
        return
    grants = [result["already_granted"]] if "already_granted" in result else []
    grants += result.get("all_already_granted", {}).get("grants", [])
    if entry.kind == "convert" and entry.hold is not None:
        # The hold is the guard's, whether it was converted or not.
        for grant in grants:
            entry.hold.held_as.convert(grant)
    else:
        give_back(state, target, grants)
    state.note_settled(entry)


def give_back(state: State, request_id: int, grants: List[Message]) -> None:
    """Releases what was granted and is not wanted."""
    for grant in grants:
        is_best_effort = grant.get("guarantee", 0) != 1
        fields = {
            "name": grant.get("name", ""),
            "token": grant.get("token", 0),
            "acquire_request_id": grant.get("acquire_request_id", 0) or request_id,
            "tier": 2 if is_best_effort else 1,
        }
        state.requests.stage(Entry("release", fields))
