"""What is known about the present session: its holds, its lease, and what has no answer."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from .._wire import Message, encode
from ..errors import Closed, HoldfastError, Lost, Unavailable
from .groups import ROOT, GroupMap
from .hold import Hold
from .in_flight import InFlight
from .lease import MS, Leases
from .pacing import Backoff
from .requests import Entry

#: How long an answer may take, beyond the request's own wait, before another node is asked.
_ANSWER_PATIENCE = (500 * MS, 3_000 * MS)
#: So that a frame stays far below the servers' limit.
_NAMES_PER_FRAME_MAX = 256
#: A renewal that the library makes by itself is under way at a time, and due after a third of the TTL.
_RENEWALS_PER_TTL = 3


class Completed(NamedTuple):
    """The caller gets this: a value, or an error."""

    caller: Any
    outcome: Any


class Connect(NamedTuple):
    address: str


class Disconnect(NamedTuple):
    with_farewell: bool


class Queued(NamedTuple):
    caller: Any
    position: int


class Ended(NamedTuple):
    """The session is over, with all its locks. `words` are those of the node, if it said some."""

    reason: str
    words: str


class Hello(NamedTuple):
    request_id: int
    sent_at: int
    frame: bytes


class Welcomed(NamedTuple):
    """A node serves the session. It has told which group owns which locks, unless the cluster has one group."""

    map: Optional[GroupMap]


class State:
    def __init__(self, session_id: str, span: int, jitter: random.Random, group: int = ROOT) -> None:
        self.id = session_id
        #: In which group of the cluster the session is.
        self.group = group
        #: The newest map that a welcome has told.
        self.map: Optional[GroupMap] = None
        #: A group has refused by a newer map than that.
        self.is_map_old = False
        #: Ids go on over the sessions of a client, so that a hold of a lost session is never taken for a later one.
        self.requests = InFlight()
        self.holds: Dict[Tuple[int, int], Hold] = {}
        #: Holds without a guard whose release has no answer yet: an acquire may have entered them again.
        self.releasing: Dict[Tuple[int, int], Hold] = {}
        #: Holds whose conversion has no answer yet, and the requests that wait for it.
        self.converting: Dict[int, List[int]] = {}
        self.leases: Optional[Leases] = None
        self.open_sent_at: Optional[int] = None
        self.heartbeat: Optional[int] = None
        self.retries_due: Dict[int, int] = {}
        low, high = _ANSWER_PATIENCE
        self.answer_patience = min(max(span // 4, low), high)
        #: No caller stops waiting before then. It may be too early, and is set right when it is reached.
        self.callers_wait_until: Optional[int] = None
        #: Holds of which the program wants to hear when they are lost, and a time before which none is.
        self.watched: Set[Hold] = set()
        self.watched_until: Optional[int] = None
        self.renewed: Set[Hold] = set()
        self.term = 0
        self.endpoints_told: Optional[List[str]] = None
        self.backoff = Backoff(jitter)
        self.errors: Dict[str, str] = {}
        self.outputs: Deque[Any] = deque()

    @property
    def is_open(self) -> bool:
        return self.leases is not None

    def hello(self, settings: Message, now: int) -> Hello:
        # Read before the new id is reserved: a hello must not acknowledge its own answer.
        acked_through = self.requests.acked_through()
        request_id = self.requests.reserve_id()
        operation: Message = {"session_id": self.id, "request_id": request_id}
        if self.group != ROOT:
            operation["group"] = self.group
        if self.is_open:
            kind, sent_at = "resume", now
        else:
            kind, acked_through = "open", 0
            operation.update(settings)
            if self.open_sent_at is None:
                self.open_sent_at = now
            sent_at = self.open_sent_at
        frame = {"acked_through": acked_through, "operations": [{kind: operation}]}
        return Hello(request_id, sent_at, encode("ClientFrame", frame))

    def welcomed(self, sent_at: int, welcome: Message) -> None:
        logical_ms = welcome.get("logical_time_ms", 0)
        if self.term != welcome.get("term", 0):
            self.term = welcome.get("term", 0)
            self._restart_efficiency_tier()
        if self.leases is not None:
            self.leases.answered(sent_at, logical_ms)
            return
        ttl, linger = (welcome.get(key, 0) * MS for key in ("ttl_ms", "linger_ms"))
        self.leases = Leases(sent_at, logical_ms, ttl, linger)

    def learn_map(self, welcome: Message) -> None:
        """A map that is not complete is none: the client goes on with the one that it has."""
        told = GroupMap.decode(welcome["map"]) if "map" in welcome else None
        if told is not None and (self.map is None or self.map.epoch <= told.epoch):
            self.map = told
        self.outputs.append(Welcomed(self.map))

    def heard_failure(self, failure: Message) -> Message:
        """Without the leader of another group, which does not serve this session."""
        self.is_map_old |= self.map is not None and self.map.epoch < failure.get("map_epoch", 0)
        is_other = failure.get("group", 0) not in (0, self.group)
        return {**failure, "leader": ""} if is_other else failure

    def _restart_efficiency_tier(self) -> None:
        if self.leases is not None:
            self.leases.best_effort_restarts()
        self.end_holds([it for it in self.holds.values() if it.is_best_effort], "leader_changed")
        self.ask_again_under_new_ids(lambda entry: entry.is_acquire and entry.is_best_effort)

    def ask_again_under_new_ids(self, is_meant: Callable[[Entry], bool]) -> None:
        """The cluster forgot what was asked. What is still wanted is asked for again."""
        sent = [i for i, it in self.requests.items() if it.first_sent_at is not None and is_meant(it)]
        for entry_id in sorted(sent):
            entry = self.requests.settle(entry_id)
            if entry is not None and not entry.is_abandoned:
                entry.first_sent_at = None
                entry.was_sent_before = False
                self.requests.stage(entry)

    def leader_lost(self, reason: str) -> None:
        """Another leader may grant what is held in the memory of the last one. If that still leads, it is told."""
        ended = set(self.leases.leader_lost()) if self.leases is not None else set()
        for hold in [hold for hold in self.holds.values() if hold.lease in ended]:
            hold.loss.report(reason)
            self.ask(Entry("release", hold=hold))
            if hold.lease not in self.converting:
                hold.end(reason)

    def ask(self, entry: Entry) -> int:
        """Takes a request in. Returns its id."""
        if entry.caller is not None:
            until = self.callers_wait_until
            self.callers_wait_until = entry.waits_until if until is None else min(until, entry.waits_until)
        entry_id = self.requests.park(entry)
        entry.call = entry_id
        if entry.hold is not None:
            self.start(entry_id)
        else:
            self.requests.stage_again(entry_id)
        if entry.kind == "status":
            # The servers keep no answer to it.
            self.requests.mark_waiting(entry_id)
        return entry_id

    def start(self, entry_id: int) -> None:
        """Sends a request about a hold, or lets it wait for the answer to the hold's conversion."""
        entry = self.requests.get(entry_id)
        if entry is None or entry.hold is None:
            return
        hold = entry.hold
        if hold.lease in self.converting:
            self.converting[hold.lease].append(entry_id)
            return
        if (hold.acquire, hold.entry) not in self.holds or hold.has_ended:
            outcome = outcome_if_lost(entry, hold.loss.reason or "session_closed")
            self.forget_hold(hold)
            self.settle(entry_id, outcome)
            return
        if entry.kind == "release":
            key = (hold.acquire, hold.entry)
            self.releasing[key] = self.holds.pop(key)
            self.unwatch(hold)
        elif entry.kind == "transfer":
            hold.held_as.is_leaving = True
        elif entry.kind == "convert":
            self.converting[hold.lease] = []
        self.requests.stage_again(entry_id)

    def stop_converting(self, hold: Hold) -> None:
        for entry_id in self.converting.pop(hold.lease, []):
            self.start(entry_id)

    def abandon(self, call: int) -> None:
        """The caller of an acquire or a convert is gone. What was granted meanwhile is released."""
        if call == 0:
            # The session was never asked. Its own requests have that number.
            return
        entry_id = self.requests.find_call(call)
        entry = None if entry_id is None else self.requests.get(entry_id)
        if entry_id is None or entry is None:
            for hold in [hold for hold in self.holds.values() if hold.call == call]:
                self.ask(Entry("release", hold=hold))
        elif entry.first_sent_at is None:
            was_parked = entry.is_parked
            self.requests.settle(entry_id)
            if not was_parked:
                self.note_settled(entry)
        else:
            entry.caller = None
            entry.is_abandoned = True
            self.stage_cancel(entry_id, entry)

    def stage_cancel(self, target: int, entry: Entry) -> None:
        fields = {"target": target, "tier": 2 if entry.is_best_effort else 1}
        self.requests.stage(Entry("cancel", fields))

    def next_frame(self, now: int) -> Optional[bytes]:
        if not self.requests.has_staged:
            return None
        # A session whose lease is over has probably ended. Acquires wait until the node has answered something: a lost
        # session keeps what it never sent for the next one.
        is_lease_over = self.leases is not None and self.leases.session_valid_until() <= now
        if is_lease_over:
            self._stage_heartbeat(now)

        def may_go(entry: Entry) -> bool:
            return not is_lease_over or entry.first_sent_at is not None or not entry.is_acquire

        ids = self.requests.take_staged(_NAMES_PER_FRAME_MAX, may_go)
        if not ids:
            # A frame without operations would be a farewell.
            return None
        acked_through = self.requests.acked_through()
        operations = []
        for entry_id in ids:
            entry = self.requests.get(entry_id)
            if entry is None:
                continue
            operations.append(entry.operation(entry_id))
            if entry.kind == "renew" and entry.hold is not None and self.leases is not None:
                ttl_ms = entry.fields.get("ttl_ms")
                ttl = None if ttl_ms is None else ttl_ms * MS
                self.leases.renewal_sent(entry.hold.lease, entry_id, now, ttl)
                self.watch_again(entry.hold)
            self.requests.mark_sent(entry_id, now, now + entry.own_wait() + self.answer_patience)
        return encode("ClientFrame", {"acked_through": acked_through, "operations": operations})

    def stream_broke(self) -> None:
        """What was not answered will be sent again, except heartbeats (the resume does their work) and reads."""
        self.requests.take_out(lambda entry: entry.kind == "keep_alive")
        self.retries_due.clear()
        self.heartbeat = None
        self.requests.stage_all_again()

    def end(self, reason: str, keeps_unsent: bool) -> None:
        """The session is over: each holder and each waiter is told. Acquires that it never sent are kept."""
        for hold in list(self.holds.values()):
            hold.end(reason)
        self.holds.clear()
        self.releasing.clear()
        self.converting.clear()
        self.watched.clear()
        self.renewed.clear()

        def is_over(entry: Entry) -> bool:
            return not (keeps_unsent and entry.is_acquire and entry.first_sent_at is None)

        for entry in self.requests.take_out(is_over):
            self.complete(entry, outcome_if_lost(entry, reason))
        self.leases = None
        self.open_sent_at = None
        self.heartbeat = None
        self.retries_due.clear()

    def complete(self, entry: Entry, outcome: Any) -> None:
        caller, entry.caller = entry.caller, None
        if caller is not None:
            self.outputs.append(Completed(caller, outcome))
        if self.requests.is_empty:
            self.callers_wait_until = None

    def settle(self, entry_id: int, outcome: Any) -> None:
        """Takes a request out, and tells its caller."""
        entry = self.requests.settle(entry_id)
        if entry is not None:
            self.note_settled(entry)
            self.complete(entry, outcome)

    def note_settled(self, entry: Entry) -> None:
        if entry.hold is None:
            return
        if entry.kind == "convert":
            self.stop_converting(entry.hold)
        elif entry.kind == "release":
            if self.releasing.pop((entry.hold.acquire, entry.hold.entry), None) is not None:
                self._forget_lease(entry.hold)
        elif entry.kind == "renew" and entry.caller is None:
            entry.hold.is_renewing = False

    def forget_hold(self, hold: Hold) -> None:
        if self.holds.pop((hold.acquire, hold.entry), None) is not None:
            self.unwatch(hold)
            self._forget_lease(hold)

    def _forget_lease(self, hold: Hold) -> None:
        others = [*self.holds.values(), *self.releasing.values()] if self._is_shared(hold) else []
        if self.leases is not None and not any(other.lease == hold.lease for other in others):
            self.leases.ended(hold.lease)

    def _is_shared(self, hold: Hold) -> bool:
        """Whether guards that entered the hold again may still need its lease."""
        return hold.lease != hold.entry or hold.was_entered

    def end_holds(self, ended: List[Hold], reason: str) -> None:
        for hold in ended:
            hold.end(reason)
            self.forget_hold(hold)

    def entered_by(self, acquire: int, name: str) -> Optional[Hold]:
        """The hold of this name that an acquire has entered again, if its lease is known."""
        for hold in [*self.holds.values(), *self.releasing.values()]:
            if hold.acquire == acquire and hold.name == name and hold.valid_until():
                return hold
        return None

    def watch(self, hold: Hold) -> None:
        """The program wants to hear of the loss, also if no message tells it."""
        if (hold.acquire, hold.entry) in self.holds:
            self.watched.add(hold)
            self.watch_again(hold)

    def watch_again(self, hold: Hold) -> None:
        if hold in self.watched:
            until = hold.valid_until()
            self.watched_until = until if self.watched_until is None else min(until, self.watched_until)

    def unwatch(self, hold: Hold) -> None:
        self.watched.discard(hold)
        self.renewed.discard(hold)

    def check_watched(self, now: int) -> None:
        if self.watched_until is None or now < self.watched_until:
            return
        for hold in list(self.watched):
            try:
                hold.check(now)
            except Lost:
                self.watched.discard(hold)
        ends = [hold.valid_until() for hold in self.watched]
        self.watched_until = min(ends) if ends else None

    def renew_by_itself(self, hold: Hold, ttl: int, now: int) -> None:
        hold.renews = ttl
        hold.renewal_due = now + ttl // _RENEWALS_PER_TTL
        self.renewed.add(hold)

    def stage_due(self, now: int) -> None:
        """Heartbeats, renewals and retries whose time has come."""
        self._stage_heartbeat(now)
        for hold in [it for it in self.renewed if it.renewal_due <= now and not it.is_renewing]:
            if hold.loss.reason is not None or hold.renews is None:
                self.renewed.discard(hold)
                continue
            hold.is_renewing = True
            hold.renewal_due = now + hold.renews // _RENEWALS_PER_TTL
            self.ask(Entry("renew", {"ttl_ms": hold.renews // MS}, hold=hold))
        for entry_id in [it for it, due in self.retries_due.items() if due <= now]:
            del self.retries_due[entry_id]
            self.requests.stage_again(entry_id)

    def _stage_heartbeat(self, now: int) -> None:
        if self.leases is not None and self.heartbeat is None and self.leases.heartbeat_due() <= now:
            self.heartbeat = self.requests.stage(Entry("keep_alive"))

    def let_callers_go(self, now: int) -> None:
        """Callers who have waited as long as they wanted to. What they asked for goes on until they abandon it."""
        if self.callers_wait_until is None or now < self.callers_wait_until:
            return
        waiting: List[int] = []
        for _, entry in self.requests.items():
            if entry.caller is None:
                continue
            if entry.waits_until <= now:
                self.complete(entry, self.unavailable(entry.first_sent_at is not None))
            else:
                waiting.append(entry.waits_until)
        self.callers_wait_until = min(waiting) if waiting else None

    def unavailable(self, may_have_happened: bool) -> Unavailable:
        words = "; ".join(f"{address}: {why}" for address, why in self.errors.items())
        return Unavailable(words or "the request is still on its way", may_have_happened)

    def next_due(self) -> Optional[int]:
        due = list(self.retries_due.values())
        due += [hold.renewal_due for hold in self.renewed if not hold.is_renewing]
        if self.leases is not None and self.heartbeat is None:
            due.append(self.leases.heartbeat_due())
        if self.requests.answers_due_from is not None:
            due.append(self.requests.answers_due_from)
        return min(due) if due else None


def outcome_if_lost(entry: Entry, reason: str) -> Any:
    """What a request comes to if its hold, or its session, has ended."""
    if entry.kind == "close" or (entry.kind == "release" and reason != "denied"):
        # The end of the session freed the lock. A session that the client was denied lives on, until its TTL.
        return "expired" if entry.kind == "release" else None
    error: HoldfastError = Lost(reason)
    if reason == "session_closed" and entry.hold is None:
        error = Closed()
    return error
