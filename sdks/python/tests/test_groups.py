"""Clusters with several Raft groups: which group is asked, and what becomes of refusals.

The slot of `orders` is 138, that of `a` 816, and that of `wallet` 2814.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import socket
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from played_node import TTL_MS, PlayedNode, Stream, route

import holdfast
from holdfast._core.groups import SLOTS, GroupMap, Redirect, Redirects, Routes, SessionIds
from holdfast._core.requests import Entry
from holdfast._engine import Call
from holdfast._sessions import Acquisition
from holdfast.errors import Closed, Rejected
from holdfast.pytest_plugin import Server, _find_binary

GROUPS = 4
KILLED = 7


def a_map(epoch: int, *runs: Tuple[int, int]) -> Dict[str, Any]:
    """Each group has one run of slots, in the order that is given."""
    first, groups = 0, []
    for group, count in runs:
        groups.append(route(group, f"node-{group}:1", first, count))
        first += count
    return {"epoch": epoch, "groups": sorted(groups, key=lambda it: it["group"])}


def learned(*maps: Dict[str, Any]) -> Routes:
    routes = Routes()
    for told in maps:
        decoded = GroupMap.decode(told)
        assert decoded is not None
        routes.learn(decoded)
    return routes


def acquire_all(*names: str, **fields: Any) -> Entry:
    return Entry("acquire_all", {"members": [{"name": name} for name in names], **fields})


# The map.


def test_without_a_map_everything_is_in_the_root_group() -> None:
    routes = Routes()
    assert (routes.epoch, routes.group_of_name("wallet"), routes.group_of(acquire_all("a", "wallet"))) == (0, 1, 1)


def test_a_name_belongs_to_the_group_of_its_slot_and_names_with_one_tag_belong_together() -> None:
    routes = learned(a_map(1, (2, 190), (1, 600), (7, 3306)))
    assert [routes.group_of_name(name) for name in ("orders", "b", "a")] == [2, 1, 7]
    assert routes.group_of(acquire_all("{orders}/1", "lines/{orders}")) == 2
    assert (routes.leader_of(7), routes.leader_of(3)) == ("node-7:1", "")


def test_locks_in_several_groups_are_refused_with_a_hint_and_not_in_the_efficiency_tier() -> None:
    routes = learned(a_map(1, (2, 190), (1, 600), (7, 3306)))
    with pytest.raises(Rejected, match=r"'a' and 'b' .* \(7 and 1\).*\{order\}/a and \{order\}/b") as raised:
        routes.group_of(acquire_all("a", "a", "b"))
    assert raised.value.reason == "several_groups"
    assert not raised.value.retryable and not raised.value.may_have_happened
    assert routes.group_of(acquire_all("a", "b", tier=2)) == 1
    assert routes.group_of(Entry("acquire", {"name": "a", "tier": 2})) == 1


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [route(1, "", 0, SLOTS - 1)],
        [route(1, "", 0, SLOTS + 1)],
        [route(0, "", 0, SLOTS)],
        [route(65, "", 0, SLOTS)],
        [route(1, "", 0, 0), route(2, "", 0, SLOTS)],
        [route(1, "", 0, 2000), route(2, "", 1999, SLOTS - 1999)],
        [route(2, "", 0, 2000), route(1, "", 2000, SLOTS - 2000)],
        [route(1, "", 0, 2000), route(1, "", 2000, SLOTS - 2000)],
    ],
    ids=["empty", "gap", "beyond", "group-0", "group-65", "empty-run", "overlap", "disorder", "twice"],
)
def test_a_map_that_does_not_give_each_slot_to_one_group_is_none(groups: List[Dict[str, Any]]) -> None:
    assert GroupMap.decode({"epoch": 9, "groups": groups}) is None


def test_the_newest_map_counts_in_whatever_order_they_come() -> None:
    older, newer = a_map(3, (1, 2000), (2, 2096)), a_map(4, (1, 3000), (2, 1096))
    for maps in ([older, newer], [newer, older]):
        assert learned(*maps).group_of_name("wallet") == 1
    moved = a_map(3, (1, 2000), (2, 2096))
    moved["groups"][1]["leader"] = "another:1"
    assert learned(older, moved).leader_of(2) == "another:1"
    # With the same epoch, only the leaders can differ.
    assert learned(older, a_map(3, (1, 4000), (2, 96))).group_of_name("wallet") == 2


# Refusals.


def refusal(map_epoch: int, reason: str = "wrong_group", may_have_happened: bool = False) -> Rejected:
    error = Rejected(reason, "elsewhere", may_have_happened)
    error.map_epoch = map_epoch
    return error


def test_a_refusal_is_followed_to_the_owner_after_a_newer_map_or_after_a_pause() -> None:
    redirects = Redirects(random.Random(1))
    # The map was learned after the request was sent.
    assert redirects.next(refusal(3), 1, 2, 3) == Redirect()
    # The group knows a newer map.
    newer = redirects.next(refusal(4), 2, 2, 3)
    assert newer is not None and newer.map_epoch == 4 and newer.pause > 0
    # The group does not know the newest map yet.
    later = redirects.next(refusal(2), 2, 2, 3)
    assert later is not None and later.map_epoch == 0 and later.pause > 0


def test_only_a_refusal_that_certainly_did_nothing_is_followed() -> None:
    for error in (refusal(3, may_have_happened=True), refusal(9, "several_groups"), refusal(3, "frozen")):
        assert Redirects(random.Random(1)).next(error, 1, 2, 3) is None


def test_groups_that_never_agree_do_not_keep_a_request_for_ever() -> None:
    redirects = Redirects(random.Random(1))
    tries = [redirects.next(refusal(0), 1, 1, 0) for _ in range(9)]
    assert tries.index(None) == 8


def test_groups_share_the_newest_id_and_no_group_sees_one_again() -> None:
    drawn = iter("abcdef")
    ids = SessionIds(lambda: next(drawn))
    one, other = ids.of_one_group(), ids.of_one_group()
    assert (one(), other()) == ("a", "a")
    # Both lose their sessions, one of them twice.
    assert (one(), one(), other()) == ("b", "c", "c")
    ids.begin_anew_after_fork()
    assert (ids.of_one_group()(), other(), one()) == ("d", "d", "d")


# A client and the nodes that it talks to.


def drop(*guards: holdfast.Guard) -> None:
    """The client may be closed."""
    for guard in guards:
        with contextlib.suppress(Closed):
            guard.release()


class Played:
    """The leaders of the root group and of group 2, a client, and its stream in the root group."""

    def __init__(self, second_from: int) -> None:
        self.root_node, self.second_node = PlayedNode(), PlayedNode()
        self.client = holdfast.Client(self.root_node.address, ttl=TTL_MS / 1000)
        self.threads: List[threading.Thread] = []
        connecting = self.begin(self.client.connect)
        self.root = self.accept(self.root_node, 1, second_from)
        connecting.result(10)
        kind, hello = self.root.hello
        assert kind == "open" and "group" not in hello
        self.id = hello["session_id"]

    def welcome(self, epoch: int, second_from: int) -> Dict[str, Any]:
        """Group 2 owns the slots from there on."""
        groups = [
            route(1, self.root_node.address, 0, second_from),
            route(2, self.second_node.address, second_from, SLOTS - second_from),
        ]
        return {"map": {"epoch": epoch, "groups": groups}}

    def accept(self, node: PlayedNode, epoch: int, second_from: int) -> Stream:
        return node.accept(**self.welcome(epoch, second_from))

    def begin(self, what: Callable[[], Any]) -> "Future[Any]":
        future: "Future[Any]" = Future()

        def run() -> None:
            try:
                future.set_result(what())
            except BaseException as error:
                future.set_exception(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()
        return future

    def acquiring(self, name: str, wait: float = 60) -> "Future[holdfast.Guard]":
        return self.begin(self.client.lock(name, wait=wait).acquire)

    def hold(self, name: str, stream: Stream, token: int) -> holdfast.Guard:
        acquiring = self.acquiring(name)
        operation = stream.next_of("acquire")
        assert operation["name"] == name
        stream.grant(operation, token)
        return acquiring.result(10)

    def hold_both(self) -> Tuple[holdfast.Guard, holdfast.Guard, Stream]:
        """`orders` in the root group, and `wallet` in group 2."""
        orders = self.hold("orders", self.root, 7)
        acquiring = self.acquiring("wallet")
        second = self.accept(self.second_node, 1, 2000)
        second.grant(second.next_of("acquire"), 8)
        return orders, acquiring.result(10), second

    def close(self, *streams: Stream) -> None:
        """All sessions are closed at the same time."""
        closing = self.begin(self.client.close)
        asked = [(stream, stream.next_of("close")) for stream in streams]
        for stream, close in asked:
            stream.answer(close, "close")
        closing.result(10)


@pytest.fixture
def play() -> Iterator[Callable[[int], Played]]:
    begun: List[Played] = []

    def begin(second_from: int) -> Played:
        begun.append(Played(second_from))
        return begun[-1]

    yield begin
    for played in begun:
        played.root_node.close()
        played.second_node.close()
        with contextlib.suppress(holdfast.Unavailable):
            played.client.close()
        for thread in played.threads:
            thread.join(10)


def test_a_client_has_a_session_with_one_id_in_each_group_whose_locks_it_uses(play: Callable[[int], Played]) -> None:
    played = play(2000)
    orders, wallet, second = played.hold_both()
    kind, hello = second.hello
    assert (kind, hello["session_id"], hello["group"]) == ("open", played.id, 2)
    assert (orders.token, wallet.token) == (7, 8)
    # What is about a hold goes to the session that has it.
    releasing = played.begin(wallet.release)
    release = second.next_of("release")
    assert release["token"] == 8
    second.answer(release, "release", outcome=1)
    assert releasing.result(10) == "released"
    played.close(played.root, second)
    assert orders.wait_lost(10) == "session_closed"
    with pytest.raises(Closed):
        played.client.lock("wallet").acquire()
    drop(orders)


def test_the_end_of_a_session_in_one_group_leaves_the_locks_of_others_alone(play: Callable[[int], Played]) -> None:
    played = play(2000)
    orders, wallet, second = played.hold_both()
    second.send(notices=[{"session_ended": {"reason": KILLED}}])
    assert wallet.wait_lost(10) == "session_killed"
    assert orders.token == 7
    wallet.release()
    # The next lock of that group is asked for in another session there.
    acquiring = played.acquiring("wallet")
    second = played.accept(played.root_node, 1, 2000)
    kind, hello = second.hello
    assert (kind, hello["group"]) == ("open", 2) and hello["session_id"] != played.id
    second.grant(second.next_of("acquire"), 9)
    again = acquiring.result(10)
    assert (again.token, orders.token) == (9, 7)
    played.close(played.root, second)
    drop(orders, again)


def test_a_refusal_by_a_newer_map_is_followed_to_the_group_that_owns_the_lock(play: Callable[[int], Played]) -> None:
    # By this map `wallet` is in the root group.
    played = play(3000)
    acquiring = played.acquiring("wallet")
    played.root.refuse(played.root.next_of("acquire"), 2)
    # The newer map comes with another welcome; the present stream ends with a farewell.
    fresh = played.accept(played.root_node, 2, 2000)
    assert fresh.hello[0] == "resume"
    farewell = played.root.next_frame()
    assert farewell is not None and not farewell.get("operations")
    second = played.accept(played.second_node, 2, 2000)
    again = second.next_of("acquire")
    assert again["name"] == "wallet" and 50_000 < again["wait_ms"] <= 60_000
    second.grant(again, 8)
    wallet = acquiring.result(10)
    assert wallet.token == 8
    # The root group is not asked for it again.
    orders = played.hold("orders", fresh, 7)
    played.close(fresh, second)
    drop(orders, wallet)


def test_groups_that_never_agree_refuse_the_request_to_its_caller(play: Callable[[int], Played]) -> None:
    played = play(2000)
    acquiring = played.acquiring("orders")
    for _ in range(9):
        played.root.refuse(played.root.next_of("acquire"), 1)
    with pytest.raises(Rejected) as raised:
        acquiring.result(10)
    assert raised.value.reason == "wrong_group" and not raised.value.may_have_happened
    played.close(played.root)


def test_a_wait_ends_while_the_groups_do_not_agree(play: Callable[[int], Played]) -> None:
    played = play(2000)
    acquiring = played.acquiring("orders", wait=0.05)
    # It waits for a map that no node knows, and then its time is over.
    played.root.refuse(played.root.next_of("acquire"), 2)
    fresh = played.accept(played.root_node, 1, 2000)
    with pytest.raises(holdfast.TimedOut):
        acquiring.result(10)
    played.close(fresh)


def test_an_acquire_all_in_several_groups_is_refused_before_it_is_sent(play: Callable[[int], Played]) -> None:
    played = play(2000)
    with pytest.raises(Rejected, match=r"\{order\}/orders and \{order\}/wallet") as raised:
        played.client.lock_all(["orders", "wallet"]).acquire()
    assert raised.value.reason == "several_groups"
    # Nothing of it is on the stream.
    orders = played.hold("orders", played.root, 7)
    played.close(played.root)
    drop(orders)


def test_a_task_that_is_cancelled_cancels_in_the_group_that_it_asks(play: Callable[[int], Played]) -> None:
    played = play(3000)

    async def ask(client: holdfast.AsyncClient) -> None:
        acquiring = asyncio.ensure_future(client.lock("wallet", wait=60).acquire())
        loop = asyncio.get_running_loop()
        root = await loop.run_in_executor(None, played.accept, played.root_node, 1, 3000)
        root.refuse(await loop.run_in_executor(None, root.next_of, "acquire"), 2)
        root = await loop.run_in_executor(None, played.accept, played.root_node, 2, 2000)
        second = await loop.run_in_executor(None, played.accept, played.second_node, 2, 2000)
        asked = await loop.run_in_executor(None, second.next_of, "acquire")
        acquiring.cancel()
        cancel = await loop.run_in_executor(None, second.next_of, "cancel")
        assert cancel["target"] == asked["request_id"]
        second.answer(cancel, "cancel", cancelled={})
        closing = asyncio.ensure_future(client.close())
        for stream in (root, second):
            stream.answer(await loop.run_in_executor(None, stream.next_of, "close"), "close")
        await closing

    asyncio.run(ask(holdfast.AsyncClient(played.root_node.address, ttl=TTL_MS / 1000)))
    played.close(played.root)


def test_the_circuit_of_a_client_is_the_worst_of_its_sessions(play: Callable[[int], Played]) -> None:
    played = play(2000)
    orders, wallet, second = played.hold_both()
    played.client._sessions.engine_in(2)._session.breaker.state = "open"  # type: ignore[union-attr]
    assert played.client.circuit == "open"
    # A call fails at once only if the circuit of its own group is open.
    with pytest.raises(holdfast.Unavailable):
        played.client.lock("wallet").acquire()
    other = played.hold("a", played.root, 9)
    played.client._sessions.engine_in(2)._session.breaker.state = "closed"  # type: ignore[union-attr]
    assert played.client.circuit == "closed"
    played.close(played.root, second)
    drop(orders, wallet, other)


def unconnected(play: Callable[[int], Played], **options: Any) -> Tuple[Played, holdfast.Client]:
    """The nodes, and a client that knows no map."""
    played = play(2000)
    played.close(played.root)
    played.client = holdfast.Client(played.root_node.address, ttl=TTL_MS / 1000, **options)
    return played, played.client


def test_a_client_that_knows_no_map_opens_the_session_in_the_root_group_before_it_asks(
    play: Callable[[int], Played],
) -> None:
    played, _ = unconnected(play)
    acquiring = played.acquiring("wallet", wait=0.4)
    # The cluster takes longer for its first answer than the caller wants to wait for the lock.
    hello = played.root_node.take()
    assert hello.hello[0] == "open"
    with pytest.raises(socket.timeout):
        hello.next_frame_within(0.5)
    root = played.root_node.welcome(hello, **played.welcome(1, 2000))
    second = played.accept(played.second_node, 1, 2000)
    asked = second.next_of("acquire")
    assert (asked["name"], asked["wait_ms"]) == ("wallet", 400)
    second.grant(asked, 8)
    wallet = acquiring.result(10)
    # The first request in the root group is the close.
    played.close(root, second)
    drop(wallet)


def test_a_task_that_is_cancelled_before_there_is_a_session_asks_for_nothing(play: Callable[[int], Played]) -> None:
    played = play(2000)

    async def ask(client: holdfast.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        acquiring = asyncio.ensure_future(client.lock("orders", wait=60).acquire())
        await loop.run_in_executor(None, played.root_node.take)
        acquiring.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await acquiring
        session = client._sessions.root._session
        assert session is not None and not session._openers and session.state.requests.is_empty
        await client.close()

    asyncio.run(ask(holdfast.AsyncClient(played.root_node.address, ttl=TTL_MS / 1000)))
    played.close(played.root)


def test_a_refusal_needs_no_thread_and_ends_no_lock_where_none_can_start(
    play: Callable[[int], Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(2000)
    orders = played.hold("orders", played.root, 7)
    acquiring = played.acquiring("a")
    asked = played.root.next_of("acquire")

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        played.root.refuse(asked, 1)
        again = played.root.next_of("acquire")
        played.root.grant(again, 9)
        a = acquiring.result(10)
    assert (orders.token, a.token) == (7, 9)
    played.close(played.root)
    drop(orders, a)


def test_a_dial_that_gets_no_thread_is_a_node_that_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "holdfast-dial":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    client = holdfast.Client("127.0.0.1:1", request_timeout=0.5)
    with pytest.raises(holdfast.Unavailable, match="can't start new thread") as raised:
        client.lock("orders").acquire()
    assert not raised.value.may_have_happened
    client.close()


def test_a_session_that_gets_no_thread_does_not_keep_later_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "holdfast":
            raise RuntimeError("can't start new thread")
        start(thread)

    client = holdfast.Client("127.0.0.1:1", request_timeout=0.5)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            client.lock("orders").acquire()
    with pytest.raises(holdfast.Unavailable):
        client.lock("orders").acquire()
    client.close()


def test_requests_that_wait_for_a_newer_map_cost_no_threads(play: Callable[[int], Played]) -> None:
    played = play(3000)

    async def ask(client: holdfast.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        connecting = asyncio.ensure_future(client.connect())
        root = await loop.run_in_executor(None, played.accept, played.root_node, 1, 3000)
        await connecting
        acquiring = [asyncio.ensure_future(client.lock("wallet", shared=True, wait=60).acquire()) for _ in range(50)]
        asked = [await loop.run_in_executor(None, root.next_of, "acquire") for _ in acquiring]
        before = threading.active_count()
        root.refuse_all(asked, 2)
        hello = await loop.run_in_executor(None, played.root_node.take)
        # All refusals have come, and no welcome has brought the newer map yet.
        assert threading.active_count() <= before + 2
        played.root_node.welcome(hello, **played.welcome(2, 2000))
        second = await loop.run_in_executor(None, played.accept, played.second_node, 2, 2000)
        for _ in acquiring:
            second.grant(await loop.run_in_executor(None, second.next_of, "acquire"), 8)
        guards = await asyncio.gather(*acquiring)
        assert {guard.token for guard in guards} == {8}
        closing = asyncio.ensure_future(client.close())
        for stream in (hello, second):
            stream.answer(await loop.run_in_executor(None, stream.next_of, "close"), "close")
        await closing
        for guard in guards:
            with contextlib.suppress(Closed):
                await guard.release()

    asyncio.run(ask(holdfast.AsyncClient(played.root_node.address, ttl=TTL_MS / 1000)))
    played.close(played.root)


def test_one_request_timeout_is_for_all_tries_together(play: Callable[[int], Played]) -> None:
    played, client = unconnected(play, request_timeout=0.5)
    acquiring = played.begin(client.lock("orders").acquire)
    root = played.accept(played.root_node, 1, 2000)
    began = time.monotonic()
    root.refuse(root.next_of("acquire"), 9)
    # No node knows the newer map, for which a request may wait for two seconds.
    fresh = played.accept(played.root_node, 1, 2000)
    with pytest.raises(Rejected) as raised:
        acquiring.result(10)
    assert raised.value.reason == "wrong_group" and time.monotonic() - began < 1.5
    played.close(fresh)


def test_requests_for_locks_of_several_groups_leave_no_cyclic_garbage(play: Callable[[int], Played]) -> None:
    played = play(2000)
    gc.collect()
    gc.disable()
    try:
        guards = [played.hold(f"{{a}}{number}", played.root, number) for number in range(10)]
        assert not [it for it in gc.get_objects() if isinstance(it, (Call, Acquisition))]
    finally:
        gc.enable()
    played.close(played.root)
    drop(*guards)


# A real cluster.


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(_find_binary(), str(Path(tmp_path_factory.mktemp("divided")) / "data"), nodes=3, groups=GROUPS)
    try:
        yield server
    finally:
        server.stop()


def names_of(server: Server, stem: str) -> List[str]:
    """A name in each group, that in the root group first, as the nodes say."""
    names: Dict[int, str] = {}
    for number in range(200):
        name = f"{stem}-{number}"
        group = json.loads(server.command("status", name, "--output", "json"))["group"]
        names.setdefault(int(group), name)
        if len(names) == GROUPS:
            break
    return [names[group] for group in range(1, GROUPS + 1)]


def test_locks_of_all_groups_are_held_by_clients_that_were_not_connected_before(divided: Server) -> None:
    names = names_of(divided, "held")
    with holdfast.Client(divided.endpoint) as client:
        # The first request is for a lock outside of the root group.
        guards = [client.lock(name, wait=5).acquire() for name in reversed(names)]
        holders = {client.status(name).holders[0].session for name in names}
        assert len(holders) == 1, "one id in all groups"
        assert all(guard.is_held for guard in guards)
        with holdfast.Client(divided.endpoint) as other:
            # It has no session in these groups, and reads all the same.
            assert [other.status(name).holder_count for name in reversed(names)] == [1] * GROUPS
            assert set(other._sessions._others) == set()
            for name in names:
                with pytest.raises(holdfast.Busy):
                    other.lock(name).acquire()
        tokens = [guard.token for guard in guards]
        for guard in guards:
            assert guard.release() == "released"
        again = [client.lock(name).acquire() for name in reversed(names)]
        assert all(later.token > token for later, token in zip(again, tokens))
    assert [guard.wait_lost(10) for guard in again] == ["session_closed"] * GROUPS
    drop(*again)


def test_asyncio_holds_locks_of_all_groups(divided: Server) -> None:
    names = names_of(divided, "async")

    async def hold() -> None:
        async with holdfast.AsyncClient(divided.endpoint) as client:
            guards = [await client.lock(name, wait=5).acquire() for name in names]
            assert all(guard.is_held for guard in guards)
            async with holdfast.AsyncClient(divided.endpoint) as other:
                counts = [(await other.status(name)).holder_count for name in names]
                assert counts == [1] * GROUPS
                with pytest.raises(holdfast.TimedOut):
                    await other.lock(names[2], wait=0.1).acquire()
            for guard in guards:
                assert await guard.release() == "released"

    asyncio.run(hold())


def test_a_watch_tells_the_events_of_all_groups(divided: Server) -> None:
    names = names_of(divided, "watched")
    with holdfast.Client(divided.endpoint) as client, client.watch("watched-", snapshot=True) as watch:
        assert next(watch).kind == "snapshot_complete"
        for round in range(2):
            for name in names:
                client.lock(name, wait=5).acquire().release()
                told = [next(watch), next(watch)]
                assert [(event.kind, event.name) for event in told] == [("granted", name), ("released", name)]
            if round == 0:
                # It goes on after the last event of each group.
                connected = watch._feed._socket
                assert connected is not None
                connected.shutdown(2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_other_sessions_in_all_groups(divided: Server) -> None:
    names = names_of(divided, "forked")
    with holdfast.Client(divided.endpoint) as client:
        guards = [client.lock(name, wait=5).acquire() for name in names[:3]]
        parent = client.status(names[0]).holders[0].session
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            told = b"failed"
            try:
                are_lost = not any(guard.is_held for guard in guards)
                # The parent had no session in this group.
                with client.lock(names[3], wait=5):
                    session = client.status(names[3]).holders[0].session
                told = session.encode() if are_lost else b"held"
                client.close()
            finally:
                os.write(writing, told)
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        told = os.read(reading, 100).decode()
        os.close(reading)
        assert told not in ("held", "failed", parent)
        assert all(guard.is_held for guard in guards)
        for guard in guards:
            guard.release()


def test_a_kill_ends_the_sessions_in_all_groups_and_the_next_ones_share_an_id(divided: Server) -> None:
    names = names_of(divided, "killed")
    with holdfast.Client(divided.endpoint) as client:
        guards = [client.lock(name, wait=5).acquire() for name in names]
        before = client.status(names[0]).holders[0].session
        divided.end_session(guards[2])
        assert [guard.wait_lost(10) for guard in guards] == ["session_killed"] * GROUPS
        again = [client.lock(name, wait=5).acquire() for name in names]
        sessions = {client.status(name).holders[0].session for name in names}
        assert len(sessions) == 1 and before not in sessions
        for guard in [*guards, *again]:
            guard.release()
