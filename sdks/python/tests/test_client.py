"""The library against a real node."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import warnings
from typing import Any, List

import pytest

import holdfast
from holdfast.pytest_plugin import Server


def test_a_lock_is_held_within_its_block_and_free_behind_it(
    holdfast_server: Server, holdfast_client: holdfast.Client
) -> None:
    with holdfast.Client(holdfast_server.endpoint) as other:
        with holdfast_client.lock("order:42", wait=10) as guard:
            assert guard.is_held and guard.is_exclusive and guard.name == "order:42"
            assert guard.fence.endswith(f".{guard.token}") and guard.fence_token == guard.token
            assert 25 < guard.valid_for < 30 and not guard.is_at_risk
            with pytest.raises(holdfast.Busy):
                other.lock("order:42").acquire()
        first = guard
        with pytest.raises(holdfast.Lost, match="released"):
            _ = first.token
        with other.lock("order:42") as later:
            assert later.token > first._hold.held_as.token


def test_threads_of_one_client_exclude_each_other(holdfast_client: holdfast.Client) -> None:
    inside, most, counts = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            with holdfast_client.lock("threads", wait=30):
                with counts:
                    inside += 1
                    most = max(most, inside)
                with counts:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_leaving_a_block_after_a_loss_raises_lost(holdfast_server: Server, holdfast_client: holdfast.Client) -> None:
    with pytest.raises(holdfast.Lost) as raised, holdfast_client.lock("broken") as guard:
        holdfast_server.break_lock("broken")
        assert guard.wait_lost(10) == "broken"
    assert raised.value.reason == "broken"


def test_a_loss_never_hides_the_error_of_the_body(holdfast_server: Server, holdfast_client: holdfast.Client) -> None:
    with pytest.raises(ZeroDivisionError), holdfast_client.lock("broken-too") as guard:
        holdfast_server.break_lock("broken-too")
        assert guard.wait_lost(10) == "broken"
        raise ZeroDivisionError


def test_a_session_that_ends_takes_its_locks_along_and_the_next_request_opens_another(
    holdfast_server: Server, holdfast_client: holdfast.Client
) -> None:
    guard = holdfast_client.lock("ends").acquire()
    told: list = []
    lost = threading.Event()
    guard.on_lost(lambda reason: (told.append(reason), lost.set()))  # type: ignore[func-returns-value]
    holdfast_server.end_session(guard)
    assert lost.wait(10) and told == ["session_killed"]
    with holdfast_client.lock("ends", wait=5) as again:
        assert again.is_held and not guard.is_held
    guard.release()


def test_the_decorator_fills_arguments_into_the_name(holdfast_client: holdfast.Client) -> None:
    @holdfast_client.locked("report:{day}:{kind}", on_busy="skip")
    def report(day: str, kind: str = "short") -> list:
        return [it.metadata for it in holdfast_client.status(f"report:{day}:{kind}").holders]

    assert report("monday") == [b""]
    with holdfast_client.lock("report:monday:short"):
        assert report("monday") is None
        assert report("monday", kind="long") == [b""]
    with pytest.raises(ValueError, match="no argument"):
        holdfast_client.locked("report:{nothing}")(report)


def test_a_lock_with_its_own_ttl_is_renewed_unless_told_otherwise(holdfast_client: holdfast.Client) -> None:
    with (
        holdfast_client.lock("renewed", ttl=0.6) as guard,
        holdfast_client.lock("ends", ttl=0.6, auto_renew=False) as ends,
    ):
        assert ends.wait_lost(10) == "own_time_over"
        time.sleep(0.6)
        assert guard.is_held
        ends.release()


def test_several_locks_are_held_together(holdfast_client: holdfast.Client) -> None:
    with holdfast_client.lock_all(["b", "a"]) as both:
        assert both.names == ["b", "a"] and both.token_of("a") in both.tokens
        with pytest.raises(holdfast.Busy):
            holdfast_client.lock_all(["c", "a"], actor=99).acquire()
        assert holdfast_client.status("c").holder_count == 0


def test_an_election_shows_its_leader(holdfast_client: holdfast.Client) -> None:
    election = holdfast_client.election("scheduler")
    assert election.leader() is None
    with election.lead(value="worker-7") as leadership:
        assert leadership.epoch == leadership.token
        assert election.leader() == b"worker-7"
    assert election.leader() is None


def test_a_guard_that_is_garbage_is_released_with_a_warning(holdfast_client: holdfast.Client) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        holdfast_client.lock("garbage").acquire()
        gc.collect()
    assert any(issubclass(it.category, ResourceWarning) for it in caught)
    with holdfast_client.lock("garbage", wait=10):
        pass


def test_a_forked_child_has_no_lock_of_its_parent_and_a_session_of_its_own(holdfast_client: holdfast.Client) -> None:
    with holdfast_client.lock("fork") as guard:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(holdfast.Lost) as raised:
                    _ = guard.token
                with pytest.raises(holdfast.Busy):
                    holdfast_client.lock("fork").acquire()
                with holdfast_client.lock("child"):
                    code = 0 if raised.value.reason == "forked" else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert guard.is_held


def test_a_client_without_a_cluster_says_so() -> None:
    client = holdfast.Client("127.0.0.1:1")
    with pytest.raises(holdfast.Unavailable, match="refused"):
        client.lock("a").acquire()
    client.close()
    with pytest.raises(holdfast.Closed):
        client.lock("a").acquire()


@pytest.mark.parametrize("name", ["", "x" * 513, "a\nb"])
def test_a_wrong_name_is_rejected_before_it_is_sent(name: str) -> None:
    with pytest.raises(holdfast.Rejected, match="control characters"):
        holdfast.Client("127.0.0.1:1").lock(name).acquire()


def test_wrong_options_are_told_at_once() -> None:
    client = holdfast.Client("127.0.0.1:1")
    for options in ({"policy": "pray"}, {"tier": "gold"}, {"shared": True, "permits": 3}):
        with pytest.raises(ValueError):
            client.lock("a", **options)
    with pytest.raises(holdfast.InvalidEndpoints):
        holdfast.Client("localhost")
    with pytest.raises(ValueError, match="linger"):
        holdfast.Client("a:1", linger=0.01)


def test_asyncio_holds_waits_and_cancels(holdfast_server: Server) -> None:
    async def play() -> None:
        async with holdfast.AsyncClient(holdfast_server.endpoint) as client:
            async with client.lock("async", wait=5) as guard:
                queued = asyncio.Event()
                loop = asyncio.get_running_loop()
                waiting = asyncio.ensure_future(
                    client.lock("async", wait=30, on_queued=lambda _: loop.call_soon_threadsafe(queued.set)).acquire()
                )
                await asyncio.wait_for(queued.wait(), 10)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                while (await client.status("async")).waiter_count:
                    await asyncio.sleep(0.01)
                assert guard.is_held
            async with client.lock_all(["x", "y"]) as both:
                assert len(both.fences) == 2
            async with client.election("async-election").lead("me") as leadership:
                assert leadership.epoch > 0

    asyncio.run(play())


def test_asyncio_cancels_the_body_on_a_loss_and_raises_lost(holdfast_server: Server) -> None:
    async def play() -> None:
        async with holdfast.AsyncClient(holdfast_server.endpoint) as client:
            reached = []
            with pytest.raises(holdfast.Lost) as raised:
                async with client.lock("cancelled", cancel_on_loss=True):
                    await asyncio.get_running_loop().run_in_executor(None, holdfast_server.break_lock, "cancelled")
                    await asyncio.sleep(30)
                    reached.append("the end")
            assert raised.value.reason == "broken" and not reached
            # The task itself goes on.
            await asyncio.sleep(0)

            @client.locked("decorated:{number}")
            async def decorated(number: int) -> int:
                return (await client.status(f"decorated:{number}")).holder_count

            assert await decorated(3) == 1

    asyncio.run(play())


def test_a_blocked_event_loop_keeps_its_locks(holdfast_server: Server) -> None:
    async def play() -> None:
        async with holdfast.AsyncClient(holdfast_server.endpoint, ttl=1.5) as client:
            async with client.lock("blocked") as guard:
                token = guard.token
                time.sleep(2.5)
                assert guard.token == token

    asyncio.run(play())


def test_one_lock_object_serves_several_threads_and_tasks(
    holdfast_server: Server, holdfast_client: holdfast.Client
) -> None:
    lock = holdfast_client.lock("readers", shared=True)
    inside, leave = threading.Barrier(2), threading.Event()
    held: list = []

    def stay() -> None:
        with lock as guard:
            inside.wait(10)
            leave.wait(10)
            held.append(guard.is_held)

    thread = threading.Thread(target=stay)
    thread.start()
    with lock:
        inside.wait(10)
    leave.set()
    thread.join()
    assert held == [True]

    async def play() -> None:
        async with holdfast.AsyncClient(holdfast_server.endpoint) as client:
            lock = client.lock("readers", shared=True)
            entered, leave = asyncio.Event(), asyncio.Event()

            async def stay() -> bool:
                async with lock as guard:
                    entered.set()
                    await leave.wait()
                    return guard.is_held

            staying = asyncio.ensure_future(stay())
            await entered.wait()
            async with lock:
                pass
            leave.set()
            assert await staying

    asyncio.run(play())


def test_a_callback_may_block_and_ask_for_another_lock(
    holdfast_server: Server, holdfast_client: holdfast.Client
) -> None:
    guard = holdfast_client.lock("called-back").acquire()
    told: list = []
    done = threading.Event()

    def on_lost(reason: str) -> None:
        with holdfast_client.lock("in-a-callback", wait=5) as other:
            told.append((reason, other.is_held))
        done.set()

    guard.on_lost(on_lost)
    holdfast_server.break_lock("called-back")
    assert done.wait(10) and told == [("broken", True)]
    guard.release()


def test_a_traceparent_is_asked_for_at_each_request(holdfast_server: Server) -> None:
    span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    asked: List[str] = []

    def traceparent() -> str:
        asked.append(threading.current_thread().name)
        return span

    with holdfast.Client(holdfast_server.endpoint, traceparent=traceparent) as client:
        entries: List[Any] = []
        start = client._sessions.root.start
        client._sessions.root.start = lambda entry, *rest: (entries.append(entry), start(entry, *rest))[1]  # type: ignore
        with client.lock("traced"), client.lock("traced too", traceparent=span[:-1] + "0"):
            pass
    assert asked == [threading.current_thread().name], "a request that has its own is not asked for"
    sent = [entry.fields["traceparent"] for entry in entries if entry.is_acquire]
    assert sent == [span, span[:-1] + "0"]

    async def play() -> None:
        async with holdfast.AsyncClient(holdfast_server.endpoint, traceparent=traceparent) as client:
            async with client.lock("traced"):
                pass

    asyncio.run(play())
    assert len(asked) == 2
