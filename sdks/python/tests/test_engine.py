"""The engine's own duties: refusing patched threads, and a node that says nothing."""

from __future__ import annotations

import socket
import sys
import threading
import types

import pytest

import holdfast
from holdfast._wire import GREETING


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
