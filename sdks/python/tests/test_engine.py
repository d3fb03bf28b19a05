"""The engine's own duties: refusing patched threads, and a node that says nothing."""

from __future__ import annotations

import logging
import logging.handlers
import queue
import socket
import sys
import threading
import types

import pytest

import holdfast
from holdfast._core.session import Session
from holdfast._wire import GREETING
from holdfast.pytest_plugin import Server


def test_patched_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = types.ModuleType("gevent.monkey")
    patched.is_module_patched = lambda name: name == "threading"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    with pytest.raises(RuntimeError, match="thread=False"):
        holdfast.Client("a:1")


def serve(listener: socket.socket, answer: bytes) -> None:
    """Answers each connection with these bytes, and then says nothing more."""
    kept = []
    while True:
        try:
            connected, _ = listener.accept()
        except OSError:
            for each in kept:
                each.close()
            return
        connected.sendall(answer)
        kept.append(connected)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", GREETING], ids=["http", "silent", "stalled"]
)
def test_a_program_that_is_no_node_is_reported_with_its_address(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener, answer), daemon=True)
        server.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = holdfast.Client(address, request_timeout=3)
        with pytest.raises(holdfast.Unavailable, match=address) as raised:
            client.lock("a").acquire()
        assert not raised.value.may_have_happened
        client.close()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(10)


def test_no_thread_is_left_behind_by_a_client_that_never_had_a_session() -> None:
    client = holdfast.Client("127.0.0.1:1")
    with pytest.raises(holdfast.Unavailable):
        client.lock("a").acquire()
    thread = client._sessions.root._thread
    client.close()
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()


def test_a_thread_that_fails_loses_its_locks_and_says_so(
    holdfast_client: holdfast.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guard = holdfast_client.lock("failing").acquire()

    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "handle_timeout", fail)
    holdfast_client._sessions.root._wake()
    assert guard.wait_lost(10) == "session_closed"
    assert "its locks are lost" in caplog.text
    with holdfast_client.lock("another") as other:
        assert other.is_held and not guard.is_held
    guard.release()


def test_records_of_the_log_say_in_fields_what_happened(holdfast_server: Server) -> None:
    records: "queue.SimpleQueue[logging.LogRecord]" = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(records)  # type: ignore[arg-type]
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def next_of(event: str) -> logging.LogRecord:
        while True:
            record = records.get(timeout=10)
            if getattr(record, "holdfast_event", None) == event:
                return record

    try:
        with holdfast.Client(f"127.0.0.1:1,{holdfast_server.endpoint}") as client:
            guard = client.lock("logged").acquire()
            record = next_of("unreachable")
            assert record.holdfast_address == "127.0.0.1:1" and record.levelno == logging.DEBUG
            holdfast_server.end_session(guard)
            assert guard.wait_lost(10) == "session_killed"
            record = next_of("session_ended")
            assert record.holdfast_reason == "session_killed" and record.levelno == logging.WARNING
            guard.release()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_a_credential_that_cannot_be_had_is_reported() -> None:
    def credential() -> str:
        raise RuntimeError("no token today")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener, GREETING), daemon=True)
        server.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = holdfast.Client(address, request_timeout=2, credential=credential)
        with pytest.raises(holdfast.Unavailable, match="no token today"):
            client.lock("a").acquire()
        client.close()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(10)
