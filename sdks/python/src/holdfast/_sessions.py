"""The sessions of a client: one in the root group, and one in each other group of the cluster whose locks it uses.

Each is an `Engine`, with a thread, a connection, a lease and a leader of its own. So nothing that happens to one group
reaches the sessions in others. The first request opens the session in the root group. Its welcome tells which group has
which locks; the cluster of one group tells nothing, and then there is no other session. A session in another group is
opened by the first request for a lock of that group.

What is decided about groups is in `_core.groups`.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

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
        self._routes_changed = threading.Condition()
        #: A node has answered a hello, and has told no map.
        self._is_one_group = False

    def _learn(self, told: Optional[GroupMap]) -> None:
        with self._routes_changed:
            if told is not None:
                self._routes.learn(told)
                self._routes_changed.notify_all()
            self._is_one_group = self._routes.map is None

    # Requests for new locks.

    def start(self, entry: Entry, wait: float, call: Call) -> Call:
        """Asks the group that owns the locks. The call has its outcome later, and the session that has the locks."""
        if self._traceparent is not None and not entry.fields.get("traceparent"):
            entry.fields["traceparent"] = self._traceparent() or None
        if self._is_one_group:
            call.engine = self.root
            return self.root.start(entry, wait, call)
        call.routed = RoutedRequest(self, entry, wait, call)
        call.routed.send()
        return call

    def acquire(
        self, entry: Entry, wait: float, on_queued: Optional[Callable[[int], None]] = None
    ) -> Tuple[Engine, List[Hold]]:
        """Sends a request, and waits for its outcome. A caller that is interrupted leaves nothing behind."""
        call = self.start(entry, wait, Call(on_queued=on_queued))
        try:
            return holds_of(call, call.wait())
        except BaseException as error:
            self.give_up(entry, call, error)
            raise

    def give_up(self, entry: Entry, call: Call, error: BaseException) -> None:
        """The caller stops waiting. If the request may still be granted, it is cancelled."""
        if error is not call.outcome or isinstance(error, Unavailable):
            self.abandon(call)

    def abandon(self, call: Call) -> None:
        if call.routed is not None:
            call.routed.abandon()
        elif call.engine is not None:
            call.engine.abandon(call)

    def owner_of(self, entry: Entry) -> int:
        return self._routes.group_of(entry)

    def redirect(self, redirects: Redirects, refusal: Rejected, entry: Entry, asked: int) -> Optional[Redirect]:
        routes = self._routes
        try:
            owner = routes.group_of(entry)
        except Rejected:
            # The locks are in several groups by now, which the next try finds out.
            return Redirect()
        return redirects.next(refusal, asked, owner, routes.epoch)

    def await_redirect(self, redirect: Redirect) -> None:
        if not redirect.map_epoch:
            time.sleep(redirect.pause / MS / 1000)
            return
        with self._routes_changed:
            self._routes_changed.wait_for(lambda: self._routes.epoch >= redirect.map_epoch, redirect.pause / MS / 1000)

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


class RoutedRequest:
    """A request for new locks that follows refusals to the group that owns the locks.

    Lock order: this lock, then that of an engine. An engine's thread calls `_answered`, which takes no lock.
    """

    def __init__(self, sessions: Sessions, entry: Entry, wait: float, call: Call) -> None:
        self._sessions, self._entry, self._wait, self._call = sessions, entry, wait, call
        self._until = _clock.now() + int(wait * 1000) * MS
        self._redirects = Redirects(random.Random())
        self._lock = threading.Lock()
        self._try: Optional[Call] = None
        self._is_abandoned = False

    def send(self) -> None:
        with self._lock:
            if self._is_abandoned:
                # No caller waits any more.
                return
            try:
                engine = self._sessions.engine_in(self._sessions.owner_of(self._entry))
                entry, wait = self._next_try()
                self._try = Call(self._answered, self._call.on_queued)
                self._call.engine = self._try.engine = engine
                engine.start(entry, wait, self._try)
            except Exception as error:
                self._call.resolve(error)

    def _next_try(self) -> Tuple[Entry, float]:
        """The request for the group that is asked next: another session gives it an id of its own."""
        if self._try is None:
            return self._entry, self._wait
        left = max(0, self._until - _clock.now()) // MS
        if self._wait and not left:
            raise TimedOut()
        fields = {**self._entry.fields, "wait_ms": left}
        return Entry(self._entry.kind, fields, renews=self._entry.renews), left / 1000

    def _answered(self, answered: Call) -> None:
        refusal, engine = answered.outcome, answered.engine
        redirect = None
        if isinstance(refusal, Rejected) and engine is not None:
            redirect = self._sessions.redirect(self._redirects, refusal, self._entry, engine.group)
        if redirect is None:
            self._call.resolve(answered.outcome)
            return
        # This is the thread of the session that refused.
        threading.Thread(target=self._follow, args=(redirect,), name="holdfast-redirect", daemon=True).start()

    def _follow(self, redirect: Redirect) -> None:
        self._sessions.await_redirect(redirect)
        self.send()

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            if self._try is not None and self._try.engine is not None:
                self._try.engine.abandon(self._try)


def holds_of(call: Call, holds: List[Hold]) -> Tuple[Engine, List[Hold]]:
    """With the session that has them."""
    assert call.engine is not None
    return call.engine, holds


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
