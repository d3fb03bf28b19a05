"""The asyncio client. It shares the session's thread with the blocking one, so a blocked event loop loses no lock."""

from __future__ import annotations

import asyncio
import functools
import sys
import weakref
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, Iterable, List, Optional, Tuple, Type, TypeVar, Union

from ._async_feed import AsyncFeed
from ._core.groups import Redirect
from ._core.hold import Hold
from ._core.lease import MS
from ._core.requests import Entry
from ._engine import Call, Engine
from ._guards import HeldAll, HeldLock, outcome_of_all
from ._owner import default_owner, settings_of
from ._security import Credential, Security
from ._sessions import Acquisition, Sessions, outcome_of_close
from ._status import Status
from ._terms import WAIT_MAX, Metadata, Terms, check_name, metadata_bytes, mode_of, name_from, next_actor
from .errors import Busy, Lost, Rejected, TimedOut
from .watching import Event, Observation, Observed, Watch, read_status

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

_of_task: "weakref.WeakKeyDictionary[asyncio.Task[Any], int]" = weakref.WeakKeyDictionary()


def _actor_of_task() -> int:
    """Each task is an actor of its own: two tasks of one process exclude each other."""
    task = asyncio.current_task()
    if task is None:
        return 0
    actor = _of_task.get(task)
    if actor is None:
        actor = _of_task[task] = next_actor()
    return actor


def _call_soon(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        # The loop is closed, and with it the caller is gone.
        pass


async def _outcome_of(start: Callable[[Call], Call]) -> Call:
    """Waits for a call in the event loop."""
    loop = asyncio.get_running_loop()
    done: "asyncio.Future[None]" = loop.create_future()

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    call = start(Call(on_done=lambda _: _call_soon(loop, tell)))
    await done
    return call


async def _ask(
    engine: Engine, entry: Entry, wait: float = 0.0, on_queued: Optional[Callable[[int], None]] = None
) -> Any:
    """Sends a request, and waits for its outcome. A task that is cancelled leaves nothing behind."""
    started: List[Call] = []

    def start(call: Call) -> Call:
        started.append(call)
        call.on_queued = on_queued
        return engine.start(entry, wait, call)

    try:
        return (await _outcome_of(start)).result()
    except BaseException as error:
        if started:
            engine.give_up(entry, started[0], error)
        raise


async def _acquire(
    sessions: Sessions, entry: Entry, wait: float, on_queued: Optional[Callable[[int], None]] = None
) -> Tuple[Engine, List[Hold]]:
    acquisition = Acquisition(sessions, entry, wait)
    if acquisition.needs_root_session:
        acquisition.root_session_opened(await _opening(sessions.root, acquisition.deadline))
    while True:
        engine, request, left = acquisition.next_try()
        try:
            return engine, await _ask(engine, request, left, on_queued)
        except Rejected as refusal:
            redirect = acquisition.redirect(engine, refusal)
            if redirect is None:
                raise
        await _await_redirect(sessions, redirect)


async def _opening(root: Engine, deadline: int) -> Any:
    started: List[Call] = []

    def start(call: Call) -> Call:
        started.append(call)
        return root.open(call, deadline)

    try:
        return (await _outcome_of(start)).outcome
    except BaseException:
        for call in started:
            root.abandon(call)
        raise


async def _await_redirect(sessions: Sessions, redirect: Redirect) -> None:
    pause = redirect.pause / MS / 1000
    if not redirect.map_epoch:
        await asyncio.sleep(pause)
        return
    loop, learned = asyncio.get_running_loop(), asyncio.Event()
    with sessions.when_learned(redirect.map_epoch, lambda: _call_soon(loop, learned.set)):
        try:
            await asyncio.wait_for(learned.wait(), pause)
        except asyncio.TimeoutError:
            # It is tried by the map that there is.
            pass


class AsyncClient:
    """As `holdfast.Client`, for asyncio."""

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

    async def connect(self) -> "AsyncClient":
        """Opens the session now. Without it, the first request does."""
        (await _outcome_of(self._sessions.open)).result()
        return self

    def lock(
        self,
        name: str,
        *,
        shared: bool = False,
        permits: Optional[int] = None,
        reentrant: bool = False,
        cancel_on_loss: bool = False,
        **terms: Any,
    ) -> "AsyncLock":
        """As `holdfast.Client.lock`. With `cancel_on_loss`, a loss cancels the body of the `async with` block."""
        mode = mode_of(shared, permits)
        return AsyncLock(self._sessions, name, mode, permits or 0, reentrant, Terms(**terms), cancel_on_loss)

    def lock_all(self, names: Iterable[str], *, cancel_on_loss: bool = False, **terms: Any) -> "AsyncLockAll":
        """As `holdfast.Client.lock_all`."""
        return AsyncLockAll(self._sessions, list(names), Terms(**terms), cancel_on_loss)

    def locked(self, name: str, *, on_busy: str = "raise", **options: Any) -> Callable[[F], F]:
        """As `holdfast.Client.locked`, for coroutine functions."""
        if on_busy not in ("raise", "skip"):
            raise ValueError(f"on_busy is 'raise' or 'skip', and not {on_busy!r}")

        def decorate(function: F) -> F:
            name_of = name_from(name, function)

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                lock = self.lock(name_of(*args, **kwargs), **options)
                try:
                    await lock.__aenter__()
                except (Busy, TimedOut):
                    if on_busy == "skip":
                        return None
                    raise
                try:
                    result = await function(*args, **kwargs)
                except BaseException as error:
                    await lock.__aexit__(type(error), error, error.__traceback__)
                    raise
                await lock.__aexit__(None, None, None)
                return result

            return call  # type: ignore[return-value]

        return decorate

    def election(self, name: str) -> "AsyncElection":
        return AsyncElection(self, name)

    def watch(self, prefix: str = "", *, snapshot: bool = False) -> AsyncFeed[Event]:
        """As `holdfast.Client.watch`: `async for event in hf.watch("billing/")`."""
        return AsyncFeed(Watch(self._sessions.root, prefix, snapshot))

    async def status(self, name: str) -> Status:
        """Who holds a lock, and who waits for it."""
        check_name(name)
        if not self._sessions.has_learned:
            await self.connect()
        engine = self._sessions.session_of(name)
        if engine is not None:
            try:
                return Status(await _ask(engine, Entry("status", {"name": name})))
            except Rejected as refusal:
                if refusal.reason != "wrong_group":
                    raise
        loop = asyncio.get_running_loop()
        return Status(await loop.run_in_executor(None, read_status, self._sessions.root, name))

    @property
    def circuit(self) -> str:
        """`closed`, or `open` and `half_open` while no node serves: then calls fail at once."""
        return self._sessions.circuit

    async def close(self) -> None:
        """Ends the session: all its locks and places in queues are freed at once."""
        calls = await asyncio.gather(*[_outcome_of(engine.close) for engine in self._sessions.begin_close()])
        outcome_of_close([call.outcome for call in calls])

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class AsyncGuard(HeldLock):
    """A held lock. Leaving its `async with` block releases it, and raises `Lost` if it was lost meanwhile."""

    async def release(self) -> str:
        entries = self._release_entries()
        return str(await _ask(self._engine, entries[0])) if entries else "already_released"

    async def renew(self, ttl: Optional[float] = None) -> None:
        """Starts the hold's own TTL again. A hold without one needs no renewal."""
        self.check()
        fields = {"ttl_ms": None if ttl is None else int(ttl * 1000)}
        await _ask(self._engine, Entry("renew", fields, hold=self._hold))

    async def convert_to_shared(self) -> None:
        await self._convert(2, 0.0)

    async def convert_to_exclusive(self, wait: float = 0.0) -> None:
        await self._convert(1, wait)

    async def _convert(self, mode: int, wait: float) -> None:
        self.check()
        fields = {"mode": mode, "wait_ms": int(wait * 1000), "policy": 1}
        await _ask(self._engine, Entry("convert", fields, hold=self._hold), wait)

    async def proclaim(self, metadata: Metadata) -> None:
        self.check()
        await _ask(self._engine, Entry("proclaim", {"metadata": metadata_bytes(metadata)}, hold=self._hold))

    async def transfer(self, public_session_id: str) -> int:
        self.check()
        entry = Entry("transfer", {"to_public_session_id": public_session_id}, hold=self._hold)
        return int(await _ask(self._engine, entry))

    async def wait_lost(self) -> str:
        """Waits until the lock is lost, and returns the reason."""
        return await _wait_lost(self)


class AsyncGuardAll(HeldAll):
    """Several held locks."""

    async def release(self) -> List[str]:
        releases = [_ask(self._engine, entry) for entry in self._release_entries()]
        return outcome_of_all(await asyncio.gather(*releases, return_exceptions=True))

    async def wait_lost(self) -> str:
        return await _wait_lost(self)


class _Block:
    """What an `async with` block does for its guard."""

    def __init__(self, cancel_on_loss: bool) -> None:
        self._cancel_on_loss = cancel_on_loss
        #: The blocks that each task is in.
        self._entered: "weakref.WeakKeyDictionary[Any, List[Dict[str, Any]]]" = weakref.WeakKeyDictionary()

    def _enter(self, guard: Any) -> None:
        block: Dict[str, Any] = {"guard": guard, "cancelled": False, "left": False}
        self._entered.setdefault(asyncio.current_task(), []).append(block)
        if self._cancel_on_loss:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()

            def cancel() -> None:
                if task is not None and not block["left"]:
                    block["cancelled"] = True
                    task.cancel()

            guard.on_lost(lambda _: _call_soon(loop, cancel))

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        block = self._entered[asyncio.current_task()].pop()
        block["left"] = True
        guard = block["guard"]
        loss = None
        try:
            guard._loss_at_exit(None)
        except Lost as lost:
            loss = lost
        if block["cancelled"] and isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if sys.version_info >= (3, 11) and task is not None:
                task.uncancel()
            error = None
        try:
            await guard.release()
        except Exception:
            if error is None and loss is None:
                raise
        if error is None and loss is not None:
            raise loss


class AsyncLock(_Block):
    """A lock that is about to be taken: by `async with`, or by `await acquire()`."""

    def __init__(
        self,
        sessions: Sessions,
        name: str,
        mode: int,
        permits: int,
        reentrant: bool,
        terms: Terms,
        cancel_on_loss: bool,
    ) -> None:
        super().__init__(cancel_on_loss)
        self._sessions, self._name, self._terms = sessions, name, terms
        self._mode, self._permits, self._reentrant = mode, permits, reentrant

    async def acquire(self) -> AsyncGuard:
        entry = self._terms.acquire(self._name, self._mode, self._permits, self._reentrant, _actor_of_task())
        held = await _acquire(self._sessions, entry, self._terms.wait, self._terms.on_queued)
        return await _checked(AsyncGuard(*held))

    async def __aenter__(self) -> AsyncGuard:
        guard = await self.acquire()
        self._enter(guard)
        return guard


class AsyncLockAll(_Block):
    """Several locks that are about to be taken."""

    def __init__(self, sessions: Sessions, names: List[str], terms: Terms, cancel_on_loss: bool) -> None:
        super().__init__(cancel_on_loss)
        self._sessions, self._names, self._terms = sessions, names, terms

    async def acquire(self) -> AsyncGuardAll:
        entry = self._terms.acquire_all(self._names, _actor_of_task())
        held = await _acquire(self._sessions, entry, self._terms.wait, self._terms.on_queued)
        return await _checked(AsyncGuardAll(*held))

    async def __aenter__(self) -> AsyncGuardAll:
        guard = await self.acquire()
        self._enter(guard)
        return guard


class AsyncLeadership(AsyncGuard):
    """The leadership: a held lock whose token is the epoch."""

    @property
    def epoch(self) -> int:
        return self.token

    async def resign(self) -> str:
        return await self.release()


class _Candidacy(_Block):
    def __init__(self, client: AsyncClient, name: str, value: Metadata, wait: Optional[float]) -> None:
        super().__init__(cancel_on_loss=False)
        self._client, self._name, self._value, self._wait = client, name, value, wait

    async def acquire(self) -> AsyncLeadership:
        sessions, wait = self._client._sessions, self._wait
        while True:
            terms = Terms(wait=WAIT_MAX if wait is None else wait, metadata=self._value)
            entry = terms.acquire(self._name, 1, 0, False, _actor_of_task())
            try:
                held = await _acquire(sessions, entry, terms.wait)
            except TimedOut:
                if wait is None:
                    continue
                raise
            return await _checked(AsyncLeadership(*held))

    def __await__(self) -> Any:
        return self.acquire().__await__()

    async def __aenter__(self) -> AsyncLeadership:
        leadership = await self.acquire()
        self._enter(leadership)
        return leadership


class AsyncElection:
    """As `holdfast.Election`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client, self.name = client, name

    def lead(self, value: Metadata = b"", *, wait: Optional[float] = None) -> _Candidacy:
        """Stands for election: `async with election.lead() as leadership`, or `await election.lead()`."""
        return _Candidacy(self._client, self.name, value, wait)

    def observe(self) -> AsyncFeed[Observed]:
        """Who leads, from now on: `async for change in election.observe()`."""
        return AsyncFeed(Observation(self._client._sessions.root, self.name))

    async def leader(self) -> Optional[bytes]:
        """The value of the present leader; `None` if there is none."""
        holders = (await self._client.status(self.name)).holders
        return holders[0].metadata if holders else None


G = TypeVar("G", AsyncGuard, AsyncGuardAll, AsyncLeadership)


async def _checked(guard: G) -> G:
    """A grant may have been so long on its way that it is over by now."""
    try:
        guard.check()
    except Lost:
        await guard.release()
        raise
    return guard


async def _wait_lost(guard: Union[AsyncGuard, AsyncGuardAll]) -> str:
    try:
        guard.check()
    except Lost as lost:
        return lost.reason
    loop = asyncio.get_running_loop()
    told: "asyncio.Future[str]" = loop.create_future()

    def tell(reason: str) -> None:
        if not told.done():
            told.set_result(reason)

    guard.on_lost(lambda reason: _call_soon(loop, lambda: tell(reason)))
    return await told
