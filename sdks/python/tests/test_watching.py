"""Watches and observations against a real node, and the part of HTTP/2 under them."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import List

import pytest

import holdfast
from holdfast import Event, Observed
from holdfast._grpc_stream import GrpcStream, HeaderDecoder, StreamOver, _frame, _literal
from holdfast.pytest_plugin import Server


def kinds(events: List[Event]) -> List[str]:
    return [event.kind for event in events]


def take(watch: holdfast.Watch, count: int) -> List[Event]:
    return [next(watch) for _ in range(count)]


def test_a_watch_tells_what_is_and_what_happens(holdfast_client: holdfast.Client) -> None:
    with holdfast_client.lock("watched/held"), holdfast_client.watch("watched/", snapshot=True) as watch:
        present, complete = take(watch, 2)
        assert (present.kind, present.name, present.holders) == ("present", "watched/held", 1)
        assert complete.kind == "snapshot_complete"
        with holdfast_client.lock("watched/a", metadata="why") as guard:
            token = guard.token
        granted, released = take(watch, 2)
        assert kinds([granted, released]) == ["granted", "released"]
        assert (granted.token, granted.metadata, granted.mode) == (token, b"why", "exclusive")
        assert released.held_for is not None and released.time > 0


def test_a_watch_is_closed_while_a_thread_waits_for_it(holdfast_client: holdfast.Client) -> None:
    watch = holdfast_client.watch("closed/", snapshot=True)
    assert kinds(take(watch, 1)) == ["snapshot_complete"]
    told: List[Event] = []
    waiting = threading.Thread(target=lambda: told.extend(watch))
    waiting.start()
    watch.close()
    waiting.join(10)
    assert not waiting.is_alive() and told == []
    assert list(watch) == []


def test_a_client_that_is_closed_ends_its_watches(holdfast_server: Server) -> None:
    client = holdfast.Client(holdfast_server.endpoint)
    watch = client.watch("closed/")
    client.close()
    with pytest.raises(holdfast.Closed):
        next(watch)


def test_a_watch_without_a_node_is_unavailable() -> None:
    with holdfast.Client("127.0.0.1:1", request_timeout=0.2).watch("a") as watch, pytest.raises(holdfast.Unavailable):
        next(watch)


def test_a_prefix_that_is_too_long_is_rejected(holdfast_client: holdfast.Client) -> None:
    with holdfast_client.watch("x" * 600) as watch, pytest.raises(holdfast.Rejected) as caught:
        next(watch)
    assert caught.value.reason == "invalid_prefix"


def test_a_forked_child_reads_a_stream_of_its_own(holdfast_client: holdfast.Client) -> None:
    watch = holdfast_client.watch("forked/", snapshot=True)
    take(watch, 1)
    holdfast_client.lock("forked/a").acquire().release()
    child = os.fork()
    if child == 0:
        told = []
        try:
            told = kinds(take(watch, 2))
        finally:
            os._exit(0 if told == ["granted", "released"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kinds(take(watch, 2)) == ["granted", "released"]


def test_an_observation_tells_leaders_values_and_vacancies(holdfast_client: holdfast.Client) -> None:
    election = holdfast_client.election("observed")
    with election.observe() as observation:
        assert next(observation) == Observed("vacant")
        with election.lead("one") as leadership:
            told = next(observation)
            assert (told.kind, told.value, told.epoch) == ("leader", b"one", leadership.epoch)
            leadership.proclaim("two")
            assert next(observation).value == b"two"
        assert next(observation) == Observed("vacant")


def test_asyncio_watches_and_observes(holdfast_server: Server) -> None:
    async def scenario() -> None:
        async with holdfast.AsyncClient(holdfast_server.endpoint) as client:
            async with client.watch("async/", snapshot=True) as watch:
                assert (await watch.__anext__()).kind == "snapshot_complete"
                waiting = asyncio.ensure_future(watch.__anext__())
                await asyncio.sleep(0)
                async with client.lock("async/a"):
                    assert (await waiting).kind == "granted"
                assert (await watch.__anext__()).kind == "released"
                # A task that is cancelled loses no event.
                cancelled = asyncio.ensure_future(watch.__anext__())
                await asyncio.sleep(0)
                cancelled.cancel()
                async with client.lock("async/b"):
                    assert (await watch.__anext__()).name == "async/b"
            with pytest.raises(StopAsyncIteration):
                await watch.__anext__()
                await watch.__anext__()
            async with client.election("async").observe() as observation:
                async for change in observation:
                    assert change == Observed("vacant")
                    break

    asyncio.run(asyncio.wait_for(scenario(), 30))


def trailers(**headers: str) -> bytes:
    block = b"".join(b"\x00" + _literal(name.replace("_", "-")) + _literal(value) for name, value in headers.items())
    return _frame(1, 0x5, 1, block)


def stream() -> GrpcStream:
    return GrpcStream("/a", b"", "host:1", False, "")


def test_messages_are_the_same_however_they_are_cut() -> None:
    data = b"\x00\x00\x00\x00\x03abc" + b"\x00\x00\x00\x00\x00" + b"\x00\x00\x00\x00\x01d"
    written = _frame(4, 0, 0, b"") + _frame(0, 0, 1, data[:4]) + _frame(0, 0, 1, data[4:])
    for size in (1, 2, 5, len(written)):
        call, seen = stream(), []
        for at in range(0, len(written), size):
            piece = written[at : at + size]
            while True:
                messages = call.receive(piece)
                if not messages:
                    break
                seen += messages
                piece = b""
        assert seen == [b"abc", b"", b"d"]


def test_the_end_of_a_call_says_why() -> None:
    call = stream()
    with pytest.raises(StreamOver) as over:
        call.receive(
            trailers(
                grpc_status="14",
                grpc_message="not%20here",
                holdfast_reason="not_leader",
                holdfast_retryable="true",
                holdfast_leader="h2:7420",
                holdfast_retry_after_ms="250",
            )
        )
    told = {"reason": 40, "message": "not here", "retryable": True, "leader": "h2:7420", "retry_after_ms": 250}
    assert over.value.failure == told


def test_a_status_that_no_node_wrote_is_worth_another_try_unless_it_is_final() -> None:
    for code, retryable in (("14", True), ("2", True), ("16", False), ("12", False)):
        with pytest.raises(StreamOver) as over:
            stream().receive(trailers(grpc_status=code))
        assert over.value.failure["retryable"] is retryable, code


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff" + bytes(6),
        _frame(1, 0x4, 1, b"\x80"),
        _frame(1, 0x4, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
        _frame(1, 0x4, 1, b"\x00\x05ab"),
        _frame(1, 0x4, 1, b"\xfe"),
        _frame(0, 0, 1, b"\x01\x00\x00\x00\x00"),
        _frame(0, 0, 1, b"\x00\xff\xff\xff\xff"),
        _frame(3, 0, 1, bytes(4)),
        _frame(7, 0, 0, bytes(8)),
    ],
)
def test_bytes_that_are_no_call_end_it(data: bytes) -> None:
    with pytest.raises(StreamOver) as over:
        stream().receive(data)
    assert over.value.failure["retryable"]


def test_headers_are_read_as_the_examples_of_the_standard_say() -> None:
    # RFC 7541, C.6: responses with Huffman codes, and a table that changes.
    decoder = HeaderDecoder()
    first = (
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3"
    )
    assert decoder.decode(bytes.fromhex(first))[":status"] == "302"
    second = "4883640effc1c0bf"
    assert decoder.decode(bytes.fromhex(second))[":status"] == "307"
