"""The blocking client."""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import Any, Callable, Iterable, List, Optional, Type, TypeVar, Union

from ._core.requests import Entry
from ._engine import Call
from ._guards import HeldAll, HeldLock, outcome_of_all
from ._owner import default_owner, settings_of
from ._security import Credential, Security
from ._sessions import Sessions
from ._status import Status
from ._terms import WAIT_MAX, Metadata, Terms, actor_of_thread, check_name, metadata_bytes, mode_of, name_from
from .errors import Busy, Lost, Rejected, TimedOut
from .watching import Observation, Watch, read_status

F = TypeVar("F", bound=Callable[..., Any])


class Client:
    """One session with the cluster, for all threads of a program. It is opened by the first call that needs it.

    In a cluster with several Raft groups, it is one session in each group whose locks are used.

    `endpoints` are one or more `host:port`, separated by commas or as a list. Times are in seconds.

    With `ca`, the file of the cluster's authority, the client speaks TLS and nothing else. `cert` and `key` are the
    files of its own certificate. `verify` compares the node's certificate with the `cluster` or with the `host`.
    `auth_file` is a file with a token, which is read again for each connection. `credential` is a token (`hft_…`)
    itself, or a function that returns the present one.

    `traceparent` is a function that returns the `traceparent` of the present span, or nothing. It is called in the
    thread or task that asks for a lock. Spans of the cluster become children of that span.
    """

    def __init__(
        self,
        endpoints: Union[str, Iterable[str]] = "127.0.0.1:7420",
        *,
        ttl: float = 30.0,
        linger: Optional[float] = None,
        request_timeout: float = 10.0,
        application: Optional[str] = None,
        note: str = "",
        discover: bool = True,
        ca: Optional[str] = None,
        cert: Optional[str] = None,
        key: Optional[str] = None,
        verify: str = "cluster",
        auth_file: Optional[str] = None,
        credential: Optional[Credential] = None,
        traceparent: Optional[Callable[[], str]] = None,
    ) -> None:
        text = endpoints if isinstance(endpoints, str) else ",".join(endpoints)
        settings = settings_of(ttl, linger, default_owner(application, note))
        security = Security(ca, cert, key, verify, credential, auth_file)
        self._sessions = Sessions(text, settings, request_timeout, discover, security, traceparent)

    def connect(self) -> "Client":
        """Opens the session now. Without it, the first request does."""
        self._sessions.open(Call()).wait()
        return self

    def lock(
        self,
        name: str,
        *,
        shared: bool = False,
        permits: Optional[int] = None,
        reentrant: bool = False,
        **terms: Any,
    ) -> "Lock":
        """A lock that is about to be taken: by `with`, or by `acquire()`.

        - `wait`: how long to wait in the queue; 0, the default, means try once.
        - `ttl`: the hold's own TTL. The library renews it, unless `auto_renew=False`.
        - `shared`: together with other readers. `permits`: one of so many.
        - `reentrant`: if this thread holds the lock already, count one more.
        - `max_hold`, `lock_delay`, `metadata`, `actor`, `policy`, `since`, `preemptible`, `tier`, `traceparent`,
          `on_queued`: see the README.
        """
        return Lock(self._sessions, name, mode_of(shared, permits), permits or 0, reentrant, Terms(**terms))

    def lock_all(self, names: Iterable[str], **terms: Any) -> "LockAll":
        """Several locks, all at one moment or none: a part of them is never held.

        In a cluster with several Raft groups they must be in one group: put the same tag into their names, such as
        `{order-42}/header` and `{order-42}/lines`. Otherwise it raises `Rejected` with the reason `several_groups`.
        """
        return LockAll(self._sessions, list(names), Terms(**terms))

    def locked(self, name: str, *, on_busy: str = "raise", **options: Any) -> Callable[[F], F]:
        """A decorator: each call holds the lock. Arguments of the call can stand in the name: `report:{day}`.

        With `on_busy="skip"`, a call that does not get the lock returns `None` instead of raising.
        """
        if on_busy not in ("raise", "skip"):
            raise ValueError(f"on_busy is 'raise' or 'skip', and not {on_busy!r}")

        def decorate(function: F) -> F:
            name_of = name_from(name, function)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                try:
                    guard = self.lock(name_of(*args, **kwargs), **options).acquire()
                except (Busy, TimedOut):
                    if on_busy == "skip":
                        return None
                    raise
                with guard:
                    return function(*args, **kwargs)

            return call  # type: ignore[return-value]

        return decorate

    def election(self, name: str) -> "Election":
        return Election(self, name)

    def watch(self, prefix: str = "", *, snapshot: bool = False) -> Watch:
        """What happens to the locks whose names begin with `prefix`: `for event in hf.watch("billing/")`.

        With `snapshot`, the locks that are held or awaited come first, as events of the kind `present`. The prefix ""
        tells of all locks and sessions.
        """
        return Watch(self._sessions.root, prefix, snapshot)

    def status(self, name: str) -> Status:
        """Who holds a lock, and who waits for it."""
        check_name(name)
        if not self._sessions.has_learned:
            self.connect()
        engine = self._sessions.session_of(name)
        if engine is not None:
            try:
                return Status(engine.run(Entry("status", {"name": name})))
            except Rejected as refusal:
                if refusal.reason != "wrong_group":
                    raise
        return Status(read_status(self._sessions.root, name))

    @property
    def circuit(self) -> str:
        """`closed`, or `open` and `half_open` while no node serves: then calls fail at once."""
        return self._sessions.circuit

    def close(self) -> None:
        """Ends the session: all its locks and places in queues are freed at once."""
        self._sessions.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Guard(HeldLock):
    """A held lock. Leaving its `with` block releases it, and raises `Lost` if it was lost meanwhile."""

    def release(self) -> str:
        """`released`, or what had become of the lock before: `expired`, `already_released`, `not_owner`."""
        entries = self._release_entries()
        return str(self._engine.run(entries[0])) if entries else "already_released"

    def renew(self, ttl: Optional[float] = None) -> None:
        """Starts the hold's own TTL again. A hold without one needs no renewal."""
        self.check()
        fields = {"ttl_ms": None if ttl is None else int(ttl * 1000)}
        self._engine.run(Entry("renew", fields, hold=self._hold))

    def convert_to_shared(self) -> None:
        """At once, and under the same token."""
        self._convert(2, 0.0)

    def convert_to_exclusive(self, wait: float = 0.0) -> None:
        """When the other readers are gone, under a new token. The lock is held all the time."""
        self._convert(1, wait)

    def _convert(self, mode: int, wait: float) -> None:
        self.check()
        fields = {"mode": mode, "wait_ms": int(wait * 1000), "policy": 1}
        self._engine.run(Entry("convert", fields, hold=self._hold), wait)

    def proclaim(self, metadata: Metadata) -> None:
        """Other metadata for the hold, for people who look at the lock."""
        self.check()
        self._engine.run(Entry("proclaim", {"metadata": metadata_bytes(metadata)}, hold=self._hold))

    def transfer(self, public_session_id: str) -> int:
        """Hands an exclusive lock to a session that waits for it. Returns the token of that session."""
        self.check()
        entry = Entry("transfer", {"to_public_session_id": public_session_id}, hold=self._hold)
        return int(self._engine.run(entry))

    def wait_lost(self, timeout: Optional[float] = None) -> Optional[str]:
        """Waits until the lock is lost, and returns the reason; `None` if the time is over first."""
        return _wait_lost(self, timeout)

    def __enter__(self) -> "Guard":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self._loss_at_exit(error)
        finally:
            _release_quietly(self, error)


class GuardAll(HeldAll):
    """Several held locks."""

    def release(self) -> List[str]:
        calls = [self._engine.start(entry, 0.0, Call()) for entry in self._release_entries()]
        return outcome_of_all([call.await_outcome() for call in calls])

    def wait_lost(self, timeout: Optional[float] = None) -> Optional[str]:
        """As `Guard.wait_lost`, of any of them."""
        return _wait_lost(self, timeout)

    def __enter__(self) -> "GuardAll":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self._loss_at_exit(error)
        finally:
            _release_quietly(self, error)


class Blocks(threading.local):
    """The guards of the `with` blocks that this thread is in."""

    def __init__(self) -> None:
        self.guards: List[Any] = []


class Lock:
    """A lock that is about to be taken. It can be used again: each `acquire` is another hold."""

    def __init__(self, sessions: Sessions, name: str, mode: int, permits: int, reentrant: bool, terms: Terms) -> None:
        self._sessions, self._name, self._terms = sessions, name, terms
        self._mode, self._permits, self._reentrant = mode, permits, reentrant
        self._blocks = Blocks()

    def acquire(self) -> Guard:
        entry = self._terms.acquire(self._name, self._mode, self._permits, self._reentrant, actor_of_thread())
        return _checked(Guard(*self._sessions.acquire(entry, self._terms.wait, self._terms.on_queued)))

    def __enter__(self) -> Guard:
        guard = self.acquire()
        self._blocks.guards.append(guard)
        return guard

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._blocks.guards.pop().__exit__(kind, error, trace)


class LockAll:
    """Several locks that are about to be taken."""

    def __init__(self, sessions: Sessions, names: List[str], terms: Terms) -> None:
        self._sessions, self._names, self._terms = sessions, names, terms
        self._blocks = Blocks()

    def acquire(self) -> GuardAll:
        entry = self._terms.acquire_all(self._names, actor_of_thread())
        return _checked(GuardAll(*self._sessions.acquire(entry, self._terms.wait, self._terms.on_queued)))

    def __enter__(self) -> GuardAll:
        guard = self.acquire()
        self._blocks.guards.append(guard)
        return guard

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._blocks.guards.pop().__exit__(kind, error, trace)


class Leadership(Guard):
    """The leadership: a held lock whose token is the epoch."""

    @property
    def epoch(self) -> int:
        return self.token

    def resign(self) -> str:
        return self.release()


class Election:
    """An election is an exclusive lock. The leader holds it, and its value is the metadata of the hold."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    def lead(self, value: Metadata = b"", *, wait: Optional[float] = None) -> Leadership:
        """Stands for election, and returns when elected. Without `wait`, for as long as it takes."""
        while True:
            terms = Terms(wait=WAIT_MAX if wait is None else wait, metadata=value)
            entry = terms.acquire(self.name, 1, 0, False, actor_of_thread())
            try:
                held = self._client._sessions.acquire(entry, terms.wait)
            except TimedOut:
                if wait is None:
                    continue
                raise
            return _checked(Leadership(*held))

    def observe(self) -> Observation:
        """Who leads, from now on: `for change in election.observe()`."""
        return Observation(self._client._sessions.root, self.name)

    def leader(self) -> Optional[bytes]:
        """The value of the present leader; `None` if there is none."""
        holders = self._client.status(self.name).holders
        return holders[0].metadata if holders else None


G = TypeVar("G", Guard, GuardAll, Leadership)


def _checked(guard: G) -> G:
    """A grant may have been so long on its way that it is over by now."""
    try:
        guard.check()
    except Lost:
        guard.release()
        raise
    return guard


def _release_quietly(guard: Union[Guard, GuardAll], error: Optional[BaseException]) -> None:
    """A release that fails does not hide the body's own error. The session goes on trying."""
    try:
        guard.release()
    except Exception:
        if error is None:
            raise


def _wait_lost(guard: Union[Guard, GuardAll], timeout: Optional[float]) -> Optional[str]:
    try:
        guard.check()
    except Lost as lost:
        return lost.reason
    lost_event = threading.Event()
    reasons: List[str] = []

    def told(reason: str) -> None:
        reasons.append(reason)
        lost_event.set()

    guard.on_lost(told)
    lost_event.wait(timeout)
    return reasons[0] if reasons else None
