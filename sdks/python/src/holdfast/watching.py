"""What happens to locks, and who leads: iterators that go on at another node when a connection breaks.

They are for people and dashboards. A program that needs to know whether it holds a lock asks its guard.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._core.answers import reason_of, rejected
from ._core.endpoints import Endpoints
from ._core.lease import MS
from ._core.pacing import Backoff
from ._engine import Engine
from ._grpc_stream import GrpcStream, StreamOver
from ._messages import END_REASONS, EVENT_KINDS, MODES
from ._security import Denied
from ._wire import Message, NotDecodable, decode, encode
from .errors import Closed, Unauthenticated, Unavailable

__all__ = ["Event", "Observation", "Observed", "Watch"]

_CONNECT_TIMEOUT = 1.0
#: A node from which nothing came for so long is asked whether it is there, and left after as long again.
_SILENCE = 10.0
_READ_BYTES = 64 * 1024
#: Reasons for which a stream cannot go on where it was.
_GAPS = frozenset({"compacted", "slow_reader"})
_MODE_NAMES = {number: name for name, number in MODES.items()}


class Event(NamedTuple):
    """Something that happened, or a lock of the snapshot.

    `kind` is `granted`, `queued`, `released`, `expired`, `wounded`, `broken`, `transferred`, `refused`, `wait_ended`,
    `converted`, `proclaimed`, `reopened`, `intervened`, `frozen`, `thawed`, `session_opened`, `session_ended` or
    `killed`. Later versions may add others. Three kinds are no events of the cluster:

    - `present`: a lock of the snapshot, with `holders` and `waiters`.
    - `snapshot_complete`: the snapshot is over.
    - `restarted`: events may be missing. A snapshot follows.
    """

    kind: str
    name: str = ""
    names: Tuple[str, ...] = ()
    token: int = 0
    session: str = ""
    mode: str = ""
    #: Why a hold or a session ended.
    reason: str = ""
    metadata: bytes = b""
    by: str = ""
    detail: str = ""
    #: Of a hold that ended, or that is there: for how many seconds.
    held_for: Optional[float] = None
    #: Seconds since 1970, by the clock of the node that tells.
    time: float = 0.0
    holders: int = 0
    waiters: int = 0


class Observed(NamedTuple):
    """A change of an election.

    `kind` is `leader` (with `value`, `epoch` and `session`), `vacant`, or `missed`: leaders may have come and gone
    unseen, and the present one is told next.
    """

    kind: str
    value: bytes = b""
    epoch: int = 0
    session: str = ""


class _Gap(Exception):
    """The stream cannot go on where it was."""


class _Over(Exception):
    """The program has ended the feed."""


class _Feed:
    """The answers of one call, from whichever node gives them."""

    def __init__(self, engine: Engine, path: str, request_kind: str, answer_kind: str) -> None:
        self._engine, self._path = engine, path
        self._request_kind, self._answer_kind = request_kind, answer_kind
        self._epoch = engine.epoch
        self._endpoints = Endpoints(",".join(engine.addresses))
        self._backoff = Backoff(random.Random())
        self._socket: Optional[socket.socket] = None
        self._stream: Optional[GrpcStream] = None
        self._answers: Deque[bytes] = deque()
        self._failing_since: Optional[float] = None
        self.is_closed = False

    def next(self, request: Message, can_go_on: bool) -> Message:
        """The next answer. `request` is what to ask for if there is no stream; it may not fit after a break."""
        while True:
            if self.is_closed:
                raise _Over
            if self._engine.is_closed:
                raise Closed()
            if self._epoch is not self._engine.epoch:
                # The connection is that of the process from which this one was forked.
                self._leave()
                self._epoch = self._engine.epoch
            try:
                if self._answers:
                    return decode(self._answer_kind, self._answers.popleft())
                if self._stream is None:
                    self._open(request)
                self._read()
                self._failing_since = None
                self._backoff.reset()
            except StreamOver as over:
                self._on_over(over.failure)
            except (OSError, NotDecodable, ValueError) as error:
                self._on_broken(error)
            else:
                continue
            if not can_go_on:
                raise _Gap("the connection broke during the snapshot")

    def close(self) -> None:
        """May be called by another thread."""
        self.is_closed = True
        connected = self._socket
        if connected is not None:
            try:
                connected.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._leave()

    def __del__(self) -> None:
        # A loop that was left by `break` does not close it.
        self._leave()

    def _open(self, request: Message) -> None:
        for address in self._engine.addresses:
            if address not in self._endpoints.addresses:
                self._endpoints = Endpoints(",".join(self._engine.addresses))
                break
        self._address = self._endpoints.next_address()
        host, _, port = self._address.rpartition(":")
        host, security = host.strip("[]"), self._engine.security
        connected = socket.create_connection((host, int(port)), _CONNECT_TIMEOUT)
        try:
            connected = security.wrap(connected, host, self._engine.handshake_patience, "h2")
            connected.settimeout(_SILENCE)
            message = encode(self._request_kind, request)
            is_tls = isinstance(connected, ssl.SSLSocket)
            self._stream = GrpcStream(self._path, message, self._address, is_tls, security.present_credential())
        except BaseException:
            connected.close()
            raise
        self._socket = connected

    def _read(self) -> None:
        """Waits until something has come. The end of the stream is told after the answers before it."""
        connected, stream = self._socket, self._stream
        if connected is None or stream is None:
            raise StreamOver({"retryable": True})
        has_pinged, data = False, b""
        while True:
            self._answers.extend(stream.receive(data))
            if self._answers:
                return
            sending, stream.outgoing = stream.outgoing, b""
            if sending:
                connected.sendall(sending)
            try:
                data = connected.recv(_READ_BYTES)
            except socket.timeout:
                if has_pinged or self._engine.is_closed:
                    raise
                has_pinged, data = True, b""
                stream.ping()
                continue
            if not data:
                raise StreamOver({"message": "the node closed the connection", "retryable": True})
            has_pinged = False
            self._endpoints.reached()

    def _on_over(self, failure: Message) -> None:
        self._leave()
        if reason_of(failure) in _GAPS:
            raise _Gap(failure.get("message", ""))
        if not failure.get("retryable"):
            raise rejected(failure)
        self._endpoints.follow_leader(failure.get("leader", ""))
        self._pause(failure.get("message", ""), False)

    def _on_broken(self, error: Exception) -> None:
        self._leave()
        self._endpoints.could_not_reach(self._address)
        if self._endpoints.has_tried_all() and isinstance(error, Denied):
            raise Unauthenticated("unauthenticated", str(error)) from error
        self._pause(f"{self._address}: {error}", True)

    def _pause(self, words: str, is_broken: bool) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > self._engine.request_timeout and not self.is_closed:
            self._failing_since = None
            raise Unavailable(words, False)
        if not is_broken or self._endpoints.has_tried_all():
            time.sleep(self._backoff.next_delay() / MS / 1000)

    def _leave(self) -> None:
        connected, self._socket, self._stream = self._socket, None, None
        self._answers.clear()
        if connected is not None:
            connected.close()


class Watch(Iterator[Event]):
    """Everything that happens to the locks under a prefix, each event once and in order. In a cluster with several Raft
    groups there is no order between the groups; the events of a lock are in order.

    A broken connection is not seen: the watch goes on after the last event that it gave. It raises `Unavailable` if no
    node serves it for the client's `request_timeout`; it can then be asked again, and goes on where it was.
    """

    def __init__(self, engine: Engine, prefix: str, snapshot: bool) -> None:
        self._feed = _Feed(engine, "/holdfast.v1.WatchService/Watch", "WatchRequest", "WatchFrame")
        self._prefix, self._with_snapshot = prefix, snapshot
        #: After what to go on, by group.
        self._positions: Dict[int, Message] = {}
        self._snapshot_begun = False
        self._events: Deque[Event] = deque()

    def __next__(self) -> Event:
        while not self._events:
            request: Message = {"prefix": self._prefix}
            positions = [position for _, position in sorted(self._positions.items())]
            if len(positions) == 1:
                # As nodes that know one group understand it.
                request["after"] = positions[0]
            elif positions:
                request["after_groups"] = positions
            if not self._with_snapshot:
                request["without_snapshot"] = True
            try:
                self._take(self._feed.next(request, bool(positions) or not self._snapshot_begun))
            except _Gap as gap:
                self._restart(str(gap))
            except _Over:
                raise StopIteration from None
        return self._events.popleft()

    def _take(self, frame: Message) -> None:
        if "position" in frame:
            self._positions[frame["position"].get("group", 0)] = frame["position"]
        self._events.extend(_present(lock) for lock in frame.get("locks", ()))
        if frame.get("locks"):
            self._snapshot_begun = True
        if frame.get("snapshot_complete"):
            self._snapshot_begun = True
            self._events.append(Event("snapshot_complete"))
        self._events.extend(_event(it) for it in frame.get("events", ()))

    def _restart(self, why: str) -> None:
        self._positions.clear()
        self._snapshot_begun, self._with_snapshot = False, True
        self._events.append(Event("restarted", detail=why))

    def close(self) -> None:
        """Ends the watch, also while another thread waits for its next event."""
        self._feed.close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Observation(Iterator[Observed]):
    """Who leads: the leader of the moment first, then each leader, each value and each vacancy, once and in order."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._feed = _Feed(engine, "/holdfast.v1.ElectionService/Observe", "ObserveRequest", "ObserveResponse")
        self._name = name
        self._position: Optional[Message] = None
        self._epoch_told = 0

    def __next__(self) -> Observed:
        while True:
            request = {"name": self._name, "after": self._position, "after_epoch": self._epoch_told}
            try:
                told = self._feed.next(request, True)
            except _Gap:
                self._position, self._epoch_told = None, 0
                return Observed("missed")
            except _Over:
                raise StopIteration from None
            self._position = told.get("position", self._position)
            if "leader" in told:
                leader = told["leader"]
                self._epoch_told = leader.get("epoch", 0)
                session = leader.get("public_session_id", "")
                return Observed("leader", leader.get("value", b""), self._epoch_told, session)
            if "vacancy" in told:
                self._epoch_told = 0
                return Observed("vacant")

    def close(self) -> None:
        """Ends the observation, also while another thread waits for its next change."""
        self._feed.close()

    def __enter__(self) -> "Observation":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def read_status(engine: Engine, name: str) -> Message:
    """Reads a lock of a group in which the client has no session: the node that is called asks the group."""
    feed = _Feed(engine, "/holdfast.v1.LockService/Status", "StatusRequest", "StatusResponse")
    try:
        return feed.next({"name": name}, True)
    finally:
        feed.close()


def _present(lock: Message) -> Event:
    name = lock.get("name", "")
    return Event(
        "present",
        name,
        (name,),
        token=lock.get("token", 0),
        session=lock.get("public_session_id", ""),
        mode=_MODE_NAMES.get(lock.get("mode", 0), ""),
        metadata=lock.get("metadata", b""),
        held_for=lock.get("held_for_ms", 0) / 1000,
        holders=lock.get("holder_count", 0),
        waiters=lock.get("waiter_count", 0),
    )


def _event(told: Message) -> Event:
    names: List[str] = told.get("names", [])
    held_for_ms: Optional[int] = told.get("held_for_ms")
    reason = told.get("reason", 0)
    return Event(
        EVENT_KINDS.get(told.get("kind", 0), "unknown"),
        names[0] if names else "",
        tuple(names),
        token=told.get("token", 0),
        session=told.get("public_session_id", ""),
        mode=_MODE_NAMES.get(told.get("mode", 0), ""),
        reason=END_REASONS.get(reason, "unknown") if reason else "",
        metadata=told.get("metadata", b""),
        by=told.get("by", ""),
        detail=told.get("detail", ""),
        held_for=None if held_for_ms is None else held_for_ms / 1000,
        time=told.get("unix_ms", 0) / 1000,
    )
