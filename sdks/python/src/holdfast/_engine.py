"""The thread that drives a session: it owns the connection, reads the clock, and decides nothing.

A caller's request is encoded and sent by the caller's own thread, under the engine's lock; the engine's thread reads
answers and minds the time. So a request costs one change of threads, and heartbeats go on while an event loop is
blocked.

A forked child has neither the thread nor the connection. There, guards of the parent are lost, and the next request
begins a session of the child's own.
"""

from __future__ import annotations

import atexit
import errno
import functools
import logging
import os
import queue
import random
import select
import socket
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional

from . import _clock
from ._connection import Connection, dial
from ._core.endpoints import Endpoints
from ._core.groups import ROOT, GroupMap
from ._core.hold import Hold
from ._core.lease import MS
from ._core.pacing import HandshakePatience
from ._core.requests import WAITING_KINDS, Entry
from ._core.session import Session
from ._core.state import Completed, Connect, Disconnect, Ended, Queued, Welcomed
from ._security import Denied, Security
from ._wire import Message
from .errors import Closed, Lost, Unavailable

_log = logging.getLogger("holdfast")

#: A node of which nothing came for so long, though it owes an answer, is asked whether it is there, and then left.
_PING_AFTER = 2_000 * MS
_FOR_EVER = 1 << 62


class Call:
    """A request of a program, until it has its outcome."""

    __slots__ = ("_done", "number", "on_done", "on_queued", "outcome")

    def __init__(
        self,
        on_done: Optional[Callable[["Call"], None]] = None,
        on_queued: Optional[Callable[[int], None]] = None,
    ) -> None:
        self.number = 0
        self.outcome: Any = None
        self.on_done = on_done
        self.on_queued = on_queued
        self._done = threading.Lock()
        self._done.acquire()

    def resolve(self, outcome: Any) -> None:
        self.outcome = outcome
        self._done.release()
        if self.on_done is not None:
            self.on_done(self)

    def wait(self) -> Any:
        """The outcome. Errors are raised."""
        self.await_outcome()
        return self.result()

    def await_outcome(self) -> Any:
        """The outcome, or the error."""
        self._done.acquire()
        return self.outcome

    def result(self) -> Any:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Options(NamedTuple):
    """What all sessions of a client have in common."""

    settings: Message
    #: In nanoseconds.
    request_timeout: int
    security: Security
    handshake_patience: HandshakePatience
    #: Takes what a welcome has told of the groups.
    learn: Callable[[Optional[GroupMap]], None]


class Epoch:
    """The life of an engine in one process. A fork begins another one."""

    __slots__ = ("__weakref__",)


class Engine:
    """The session in one group, which is opened when a request needs it."""

    def __init__(
        self, group: int, endpoints: Callable[[], Endpoints], new_session_id: Callable[[], str], options: Options
    ) -> None:
        self.group = group
        self._endpoints, self._new_session_id, self._options = endpoints, new_session_id, options
        self._is_closed = False
        self._begin_epoch()
        _engines.add(self)

    def _begin_epoch(self) -> None:
        self.epoch = Epoch()
        self._lock = threading.Lock()
        self._session: Optional[Session] = None
        self._thread: Optional[threading.Thread] = None
        self._connection: Optional[Connection] = None
        self._wake_in: Optional[socket.socket] = None
        self._wake_out: Optional[socket.socket] = None
        self._posts: Deque[Callable[[int], None]] = deque()
        self._callbacks_lock = threading.Lock()
        self._callbacks: Optional[queue.SimpleQueue[Optional[Callable[[], None]]]] = None
        self._dial_number = 0
        self._sleeps_until = 0
        self._heard_at = 0
        self._pinged_at = 0

    # What callers do.

    def start(self, entry: Entry, wait: float, call: Call) -> Call:
        """Sends a request. The call has its outcome later."""
        with self._lock:
            session, now = self._running(), _clock.now()
            # A guard that was dropped is released before its thread asks again.
            self._take_posts(now)
            if entry.kind != "release" and not session.breaker.is_closed:
                call.resolve(session.state.unavailable(False))
                return call
            self._note_idle(session, now)
            entry.caller = call
            entry.waits_until = entry.waits_until or self.deadline(wait)
            call.number = session.handle_request(now, entry)
            self._pump(session, now)
        return call

    def open(self, call: Call, deadline: Optional[int] = None) -> Call:
        """Opens the session now, and not with the first request."""
        with self._lock:
            session, now = self._running(), _clock.now()
            session.handle_open(now, call, self.deadline(0) if deadline is None else deadline)
            self._pump(session, now)
        return call

    def deadline(self, wait: float) -> int:
        """Until when a caller waits for the outcome of a request that is made now."""
        return _clock.now() + min(int(wait * 1000) * MS + self._options.request_timeout, _FOR_EVER)

    def run(self, entry: Entry, wait: float = 0.0, call: Optional[Call] = None) -> Any:
        """Sends a request, and waits for its outcome. A caller that is interrupted leaves nothing behind."""
        call = self.start(entry, wait, call or Call())
        try:
            return call.wait()
        except BaseException as error:
            self.give_up(entry, call, error)
            raise

    def give_up(self, entry: Entry, call: Call, error: BaseException) -> None:
        """The caller stops waiting. If the request may still be granted, it is cancelled."""
        is_outcome = error is call.outcome
        if entry.kind in WAITING_KINDS and (not is_outcome or isinstance(error, Unavailable)):
            self.abandon(call)

    def abandon(self, call: Call) -> None:
        with self._lock:
            if self._session is not None:
                now = _clock.now()
                self._session.handle_abandoned(now, call.number, call)
                self._pump(self._session, now)

    def drop(self, hold: Hold, epoch: Epoch) -> None:
        """A guard was garbage. It may be called at any moment, so it takes no lock."""
        if epoch is self.epoch:
            self._post(lambda now: self._release_dropped(now, hold))

    def _release_dropped(self, now: int, hold: Hold) -> None:
        if self._session is not None:
            self._session.handle_request(now, Entry("release", hold=hold))

    def watch(self, hold: Hold, callback: Callable[[str], None]) -> None:
        """Calls back, in a thread for that, when the hold is lost, also if no message tells it."""
        with self._lock:
            hold.loss.when_reported(lambda reason: self._defer(lambda: callback(reason)))
            if self._session is not None:
                self._session.state.watch(hold)
                self._wake_if_late(self._session)

    def _defer(self, what: Callable[[], None]) -> None:
        """The program's own code runs in a thread of its own: it may block, and may ask for other locks."""
        with self._callbacks_lock:
            if self._callbacks is None:
                self._callbacks = queue.SimpleQueue()
                arguments = (self._callbacks,)
                threading.Thread(target=_call_back, args=arguments, name="holdfast-callbacks", daemon=True).start()
            self._callbacks.put(what)

    def close(self, call: Call) -> Call:
        with self._lock:
            self._is_closed = True
            if self._session is None:
                call.resolve(None)
            else:
                now = _clock.now()
                self._session.handle_close(now, call)
                self._pump(self._session, now)
                self._wake()
        return call

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def security(self) -> Security:
        return self._options.security

    @property
    def handshake_patience(self) -> HandshakePatience:
        return self._options.handshake_patience

    @property
    def request_timeout(self) -> float:
        """In seconds."""
        return self._options.request_timeout / MS / 1000

    @property
    def addresses(self) -> List[str]:
        """The nodes that are known."""
        return self.endpoints_for("").addresses

    def endpoints_for(self, leader: str) -> Endpoints:
        """The nodes that are known, for another session, in a group that this node leads."""
        with self._lock:
            known = self._endpoints() if self._session is None else self._session.endpoints
            return known.of_other_group(leader)

    @property
    def circuit(self) -> str:
        session = self._session
        return "closed" if session is None else session.breaker.state

    def _running(self) -> Session:
        if self._is_closed:
            raise Closed()
        if self._session is None:
            self._wake_in, self._wake_out = socket.socketpair()
            self._wake_in.setblocking(False)
            self._wake_out.setblocking(False)
            settings = self._options.settings
            session = Session(
                self._endpoints(),
                {**settings, "owner": {**settings["owner"], "pid": os.getpid()}},
                self._new_session_id,
                random.Random(),
                _clock.now(),
                self.group,
            )
            thread = threading.Thread(target=self._run, args=(self.epoch, session), name="holdfast", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # There is no session that no thread serves: the next request tries again.
                self._wake_in.close()
                self._wake_out.close()
                raise
            self._session, self._thread = session, thread
        return self._session

    # What the thread does.

    def _run(self, epoch: Epoch, session: Session) -> None:
        has_failed = False
        try:
            self._loop(epoch, session)
        except Exception:
            has_failed = True
            _log.exception("the thread of a session failed: its locks are lost, and the next request opens another")
        with self._lock:
            if has_failed:
                session.handle_failure()
                self._pump(session, _clock.now())
            if epoch is self.epoch:
                self._end_thread()
                self._session = None if has_failed else session

    def _end_thread(self) -> None:
        for end in (self._wake_in, self._wake_out):
            if end is not None:
                end.close()
        with self._callbacks_lock:
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            callbacks.put(None)

    def _loop(self, epoch: Epoch, session: Session) -> None:
        assert self._wake_in is not None
        while epoch is self.epoch:
            with self._lock:
                now = _clock.now()
                self._take_posts(now)
                self._note_idle(session, now)
                session.handle_timeout(now)
                self._pump(session, now)
                if session.is_finished:
                    break
                due = self._next_timeout(session)
                self._sleeps_until = _FOR_EVER if due is None else due
                timeout = None if due is None else max(0, due - now) // MS + 1
                poll = select.poll()
                poll.register(self._wake_in, select.POLLIN)
                # Another thread may leave the connection meanwhile, and then it wakes this one.
                connection, descriptor = self._connection, -1
                if connection is not None:
                    descriptor = connection.fileno()
                    poll.register(descriptor, select.POLLIN | (0 if connection.has_room else select.POLLOUT))
            ready = {it for it, _ in poll.poll(timeout)}
            with self._lock:
                self._sleeps_until = 0
                if self._wake_in.fileno() in ready:
                    self._empty_wake()
                if connection is not None and connection is self._connection:
                    self._mind_connection(session, connection, descriptor in ready)

    def _take_posts(self, now: int) -> None:
        while self._posts:
            self._posts.popleft()(now)

    def _mind_connection(self, session: Session, connection: Connection, is_ready: bool) -> None:
        now = _clock.now()
        if not is_ready:
            session.handle_quiet(now)
            self._mind_silence(session, connection, now)
            return
        connection.flush()
        frames, ended = connection.read()
        self._heard_at = now
        for frame in frames:
            session.handle_frame(now, frame)
        if ended is not None:
            words = ended.failure.get("message", "")
            self._tell(logging.DEBUG, "a stream ended: %s", words, event="disconnected")
            session.handle_disconnected(now, ended.failure)

    def _tell(self, level: int, message: str, *arguments: object, **fields: str) -> None:
        """Logs in the thread for callbacks, because a handler of the program may block. `fields` become attributes of
        the record, for handlers that write JSON.
        """
        if _log.isEnabledFor(level):
            if self.group != ROOT:
                fields["group"] = str(self.group)
            extra = {f"holdfast_{name}": value for name, value in fields.items()}
            self._defer(functools.partial(_log.log, level, message, *arguments, extra=extra))

    def _pump(self, session: Session, now: int) -> None:
        """Does what the session wants, and sends what it has to send."""
        while session.outputs:
            output = session.outputs.popleft()
            if isinstance(output, Completed):
                output.caller.resolve(output.outcome)
            elif isinstance(output, Queued):
                if output.caller is not None and output.caller.on_queued is not None:
                    told, position = output.caller.on_queued, output.position
                    self._defer(lambda told=told, position=position: told(position))  # type: ignore[misc]
            elif isinstance(output, Connect):
                self._dial_number += 1
                arguments = (self.epoch, self._dial_number, output.address)
                try:
                    threading.Thread(target=self._dial, args=arguments, name="holdfast-dial", daemon=True).start()
                except RuntimeError as error:
                    # The process has as many threads as it may have. The session tries again after a pause.
                    session.handle_connect_failed(now, str(error), "not_made")
            elif isinstance(output, Disconnect):
                self._dial_number += 1
                if self._connection is not None:
                    self._connection.leave(output.with_farewell)
                    self._connection = None
            elif isinstance(output, Welcomed):
                self._options.learn(output.map)
            elif isinstance(output, Ended):
                words = output.words or str(Lost(output.reason))
                which = "" if self.group == ROOT else f" in group {self.group}"
                told = f"the session{which} ended, and with it all its locks: %s"
                self._tell(logging.WARNING, told, words, event="session_ended", reason=output.reason)
        connection = self._connection
        while connection is not None and connection.has_room:
            frame = session.next_frame(now)
            if frame is None:
                break
            connection.send(frame)
        if connection is not None and not connection.has_room and session.has_frame:
            session.handle_blocked(now)
            self._wake()
        self._wake_if_late(session)

    def _dial(self, epoch: Epoch, number: int, address: str) -> None:
        connected, words, contact = None, "", "not_made"
        try:
            connected = dial(address, self.security, self.handshake_patience)
        except Denied as error:
            words, contact = str(error), "denied"
        except Exception as error:
            # Also what the program's own function for credentials raises.
            words = "no connection within a second" if isinstance(error, socket.timeout) else str(error)
            if getattr(error, "errno", None) == errno.ECONNREFUSED:
                contact = "refused"
                words = "connection refused: no node listens there; start one, or correct the endpoints"

        def dialled(now: int) -> None:
            session = self._session
            if session is None or number != self._dial_number:
                if connected is not None:
                    connected.close()
            elif connected is None:
                session.handle_connect_failed(now, words, contact)
            elif session.handle_connected(now):
                # The old connection is left first.
                self._pump(session, now)
                self._connection = Connection(connected)
                self._heard_at = self._pinged_at = now
            else:
                connected.close()

        if epoch is self.epoch:
            self._post(dialled)
        elif connected is not None:
            connected.close()
        if connected is None:
            fields = {"holdfast_event": "unreachable", "holdfast_address": address}
            _log.debug("the node %s cannot be reached: %s", address, words, extra=fields)

    def _mind_silence(self, session: Session, connection: Connection, now: int) -> None:
        """A connection can stand long after its other end has gone. To be called when nothing is left to be read."""
        if not session.is_owed_an_answer or now - max(self._heard_at, self._pinged_at) < _PING_AFTER:
            return
        if self._pinged_at > self._heard_at:
            session.handle_disconnected(now, {"message": "the node has fallen silent", "retryable": True})
        else:
            self._pinged_at = now
            connection.ping()

    def _note_idle(self, session: Session, now: int) -> None:
        """Silence counts from when the node owes an answer."""
        if not session.is_owed_an_answer:
            self._heard_at = now

    def _next_timeout(self, session: Session) -> Optional[int]:
        due = session.next_timeout()
        if self._connection is not None and session.is_owed_an_answer:
            silence = max(self._heard_at, self._pinged_at) + _PING_AFTER
            due = silence if due is None else min(due, silence)
        return due

    def _wake_if_late(self, session: Session) -> None:
        due = self._next_timeout(session)
        if due is not None and due < self._sleeps_until:
            self._wake()

    def _post(self, what: Callable[[int], None]) -> None:
        self._posts.append(what)
        self._wake()

    def _wake(self) -> None:
        try:
            if self._wake_out is not None:
                self._wake_out.send(b"\0")
        except OSError:
            # It is full, or closed: the thread wakes, or has ended.
            pass

    def _empty_wake(self) -> None:
        try:
            while self._wake_in is not None and self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass

    def after_fork_in_child(self) -> None:
        # The parent's connection is closed here, and not shut down: that would end it there, too.
        for inherited in (self._connection, self._wake_in, self._wake_out):
            if inherited is not None:
                inherited.close()
        self._begin_epoch()


def _call_back(callbacks: "queue.SimpleQueue[Optional[Callable[[], None]]]") -> None:
    while True:
        callback = callbacks.get()
        if callback is None:
            return
        try:
            callback()
        except Exception:
            _log.exception("a callback of the program failed")


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()


def _close_all() -> None:
    """At the end of the program, locks are given back instead of kept for their TTL."""
    calls = [engine.close(Call()) for engine in list(_engines) if engine.circuit == "closed"]
    for call in calls:
        try:
            call.wait()
        except Exception:
            _log.debug("a session was not closed at the end of the program", exc_info=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
