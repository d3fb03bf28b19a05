"""The sessions of a client: one in the root group, and one in each other group of the cluster whose locks it uses.

Each is an `Engine`, with a thread, a connection, a lease and a leader of its own. So nothing that happens to one group
reaches the sessions in others. The first request opens the session in the root group before it is sent. The welcome
tells which group has which locks; the cluster of one group tells nothing, and then there is no other session. A session
in another group is opened by the first request for a lock of that group.

What is decided about groups is in `_core.groups`.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import _clock
from ._core.endpoints import Endpoints
from ._core.groups import ROOT, GroupMap, Redirect, Redirects, Routes, SessionIds
from ._core.hold import Hold
from ._core.lease import MS
from ._core.pacing import HandshakePatience
from ._core.requests import Entry
from ._engine import Call, Engine, Options
from ._security import Security
from ._wire import Message
from .errors import Closed, Rejected, TimedOut, Unavailable

_PLAIN = Security()
#: Of the circuits of all sessions the first of these is that of the client.
_WORST_FIRST = ("open", "half_open")


class Sessions:
    def __init__(
        self,
        endpoints: str,
        settings: Message,
        request_timeout: float,
        discover: bool,
        security: Security = _PLAIN,
        traceparent: Optional[Callable[[], str]] = None,
    ) -> None:
        _refuse_patched_threads()
        # To find mistakes at once, and not in a thread.
        Endpoints(endpoints)
        patience = HandshakePatience(settings["ttl_ms"] * MS)
        timeout = int(request_timeout * 1000) * MS
        self._options = Options(settings, timeout, security.check(), patience, self._learn)
        self._traceparent = traceparent
        self._is_closed = False
        self._ids = SessionIds(lambda: secrets.token_hex(16))
        self.root = Engine(ROOT, lambda: Endpoints(endpoints, discover), self._ids.of_one_group(), self._options)
        self._begin_epoch()
        _all.add(self)

    def _begin_epoch(self) -> None:
        self._lock = threading.Lock()
        self._others: Dict[int, Engine] = {}
        self._routes = Routes()
        #: Callers who wait for a map with this epoch.
        self._learners: Dict[Callable[[], None], int] = {}
        #: A node has answered a hello, and has told no map.
        self._is_one_group = False

    def _learn(self, told: Optional[GroupMap]) -> None:
        """A session calls it under its engine's lock. So nothing here takes that of an engine while it has this one."""
        with self._lock:
            if told is not None:
                self._routes.learn(told)
            self._is_one_group = self._routes.map is None
            told_now = [tell for tell, epoch in self._learners.items() if epoch <= self._routes.epoch]
        for tell in told_now:
            tell()

    # Requests for new locks.

    def acquire(
        self,
        entry: Entry,
        wait: float,
        on_queued: Optional[Callable[[int], None]] = None,
        new_call: Callable[[], Call] = Call,
    ) -> Tuple[Engine, List[Hold]]:
        """Sends a request, and waits for its outcome. A caller that is interrupted leaves nothing behind."""
        acquisition = Acquisition(self, entry, wait)
        if acquisition.needs_root_session:
            call = new_call()
            try:
                acquisition.root_session_opened(self.root.open(call, acquisition.deadline).await_outcome())
            except BaseException:
                self.root.abandon(call)
                raise
        while True:
            engine, request, left = acquisition.next_try()
            call = new_call()
            call.on_queued = on_queued
            try:
                return engine, engine.run(request, left, call)
            except Rejected as refusal:
                redirect = acquisition.redirect(engine, refusal)
                if redirect is None:
                    raise
            self._await_redirect(redirect)

    def _await_redirect(self, redirect: Redirect) -> None:
        if not redirect.map_epoch:
            time.sleep(redirect.pause / MS / 1000)
            return
        learned = threading.Event()
        with self.when_learned(redirect.map_epoch, learned.set):
            learned.wait(redirect.pause / MS / 1000)

    @contextlib.contextmanager
    def when_learned(self, epoch: int, tell: Callable[[], None]) -> Iterator[None]:
        """Calls back, in any thread, when the map has this epoch or a higher one. It must not block."""
        with self._lock:
            self._learners[tell] = epoch
            is_known = self._routes.epoch >= epoch
        if is_known:
            tell()
        try:
            yield
        finally:
            with self._lock:
                self._learners.pop(tell, None)

    @property
    def routes(self) -> Routes:
        return self._routes

    @property
    def is_one_group(self) -> bool:
        return self._is_one_group

    def add_traceparent(self, entry: Entry) -> None:
        if self._traceparent is not None and not entry.fields.get("traceparent"):
            entry.fields["traceparent"] = self._traceparent() or None

    def engine_in(self, group: int) -> Engine:
        """Its session is opened by its first request."""
        if group == ROOT:
            return self.root
        with self._lock:
            if self._is_closed:
                raise Closed()
            if group not in self._others:
                nodes = lambda: self.root.endpoints_for(self._routes.leader_of(group))  # noqa: E731
                self._others[group] = Engine(group, nodes, self._ids.of_one_group(), self._options)
            return self._others[group]

    # Everything else.

    def open(self, call: Call) -> Call:
        return self.root.open(call)

    @property
    def has_learned(self) -> bool:
        """Whether a node has told if there are several groups. A group says that the locks of others are free."""
        return self._is_one_group or self._routes.map is not None

    def session_of(self, name: str) -> Optional[Engine]:
        """That of the lock's group, if there is one: a read opens no session outside of the root group."""
        group = self._routes.group_of_name(name)
        return self.root if group == ROOT else self._others.get(group)

    def begin_close(self) -> List[Engine]:
        """No further session is opened. Those that there are have to be closed, all at the same time."""
        with self._lock:
            self._is_closed = True
            return [self.root, *self._others.values()]

    def close(self) -> None:
        calls = [engine.close(Call()) for engine in self.begin_close()]
        outcome_of_close([call.await_outcome() for call in calls])

    @property
    def circuit(self) -> str:
        """The worst one of all sessions."""
        states = [engine.circuit for engine in [self.root, *list(self._others.values())]]
        return next((state for state in _WORST_FIRST if state in states), "closed")

    def after_fork_in_child(self) -> None:
        self._ids.begin_anew_after_fork()
        self._begin_epoch()


class Acquisition:
    """A request for new locks, and its tries in the groups that it is sent to.

    It decides, and waits for nothing: its caller does, in a thread or in a task of the program. So a request that is
    refused costs no thread of its own, and no session waits for it.
    """

    def __init__(self, sessions: Sessions, entry: Entry, wait: float) -> None:
        sessions.add_traceparent(entry)
        self._sessions, self._entry, self._wait = sessions, entry, int(wait * 1000) * MS
        #: However many groups are asked.
        self.deadline = sessions.root.deadline(wait)
        entry.waits_until = self.deadline
        self._wait_ends: Optional[int] = None
        self._redirects = Redirects(random.Random())
        self._refusal: Optional[Rejected] = None

    @property
    def needs_root_session(self) -> bool:
        """Its welcome tells which group has the locks. While no node serves, the request fails at once."""
        return not self._sessions.has_learned and self._sessions.root.circuit == "closed"

    def root_session_opened(self, outcome: Any) -> None:
        if isinstance(outcome, Unavailable):
            # Nothing but a session was asked for.
            raise Unavailable(outcome.args[0], may_have_happened=False)
        if isinstance(outcome, BaseException):
            raise outcome

    def next_try(self) -> Tuple[Engine, Entry, float]:
        """The session to ask next, the request, and how long it is to wait."""
        sessions, now = self._sessions, _clock.now()
        engine = sessions.engine_in(sessions.routes.group_of(self._entry))
        if self._wait_ends is None:
            self._wait_ends = now + self._wait
            return engine, self._entry, self._wait / MS / 1000
        left = max(0, self._wait_ends - now) // MS
        if self._wait and not left:
            raise TimedOut()
        if self._refusal is not None and self.deadline <= now:
            raise self._refusal
        # Another session gives it an id of its own.
        fields = {**self._entry.fields, "wait_ms": left}
        request = Entry(self._entry.kind, fields, renews=self._entry.renews, waits_until=self.deadline)
        return engine, request, left / 1000

    def redirect(self, asked: Engine, refusal: Rejected) -> Optional[Redirect]:
        """When it is tried again; `None` if the caller gets the refusal."""
        self._refusal = refusal
        routes, now = self._sessions.routes, _clock.now()
        if self._sessions.is_one_group or self.deadline <= now:
            return None
        try:
            owner = routes.group_of(self._entry)
        except Rejected:
            # The locks are in several groups by now, which the next try finds out.
            return Redirect()
        redirect = self._redirects.next(refusal, asked.group, owner, routes.epoch)
        if redirect is None:
            return None
        ends = self._wait_ends if self._wait and self._wait_ends is not None else self.deadline
        return redirect._replace(pause=min(redirect.pause, max(0, ends - now)))


def outcome_of_close(outcomes: List[Any]) -> None:
    """The first session that could not be closed is the error."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _refuse_patched_threads() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise RuntimeError(
            "gevent has patched `threading`: then a greenlet that does not yield stops the heartbeats, and locks are"
            " lost. Call monkey.patch_all(thread=False), or use holdfast in a process of its own"
        )
    if "eventlet.patcher" in sys.modules and sys.modules["eventlet.patcher"].is_monkey_patched("thread"):
        raise RuntimeError("eventlet has patched `thread`; call eventlet.monkey_patch(thread=False)")


_all: "weakref.WeakSet[Sessions]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for sessions in list(_all):
        sessions.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
