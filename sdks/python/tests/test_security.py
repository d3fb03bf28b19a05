"""TLS and credentials against a real node that demands both."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

import holdfast
from holdfast.pytest_plugin import Server


class Secure(NamedTuple):
    endpoint: str
    certificates: Path
    token: str

    def file(self, name: str) -> str:
        return str(self.certificates / name)


@pytest.fixture(scope="module")
def secure() -> Iterator[Secure]:
    binary = os.environ.get("HOLDFAST_BIN") or shutil.which("holdfast")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the program `holdfast` is not there")
        pytest.skip("the program `holdfast` is not there")
    with tempfile.TemporaryDirectory(prefix="holdfast-pytest-") as directory:
        data = Path(directory) / "data"
        server = Server(binary, str(data), "--secure")
        try:
            token = (data / "dashboard.token").read_text(encoding="utf-8")
            yield Secure(server.endpoint, data / "certs", token)
        finally:
            server.stop()


def test_a_certificate_opens_a_session(secure: Secure) -> None:
    ca, cert, key = map(secure.file, ("ca.pem", "client-dev.pem", "client-dev-key.pem"))
    with holdfast.Client(secure.endpoint, ca=ca, cert=cert, key=key) as client:
        with client.lock("a") as guard:
            assert guard.is_held
        # Many pieces in few records, both ways.
        with client.lock_all([f"many/{number}" for number in range(200)]) as many:
            assert len(many.tokens) == 200
    with holdfast.Client(secure.endpoint, ca=ca, cert=cert, key=key, verify="host") as client:
        assert client.lock("a").acquire().release() == "released"


def test_a_token_opens_a_session_and_is_asked_for_at_each_connection(secure: Secure) -> None:
    asked = []

    def credential() -> str:
        asked.append(1)
        return secure.token

    with holdfast.Client(secure.endpoint, ca=secure.file("ca.pem"), credential=credential) as client:
        assert client.lock("a").acquire().release() == "released"
    assert asked


def test_a_client_without_a_credential_is_told_so(secure: Secure) -> None:
    client = holdfast.Client(secure.endpoint, ca=secure.file("ca.pem"), request_timeout=5)
    with pytest.raises(holdfast.Unauthenticated):
        client.lock("a").acquire()
    client.close()


def test_a_wrong_credential_is_refused(secure: Secure) -> None:
    wrong = f"hft_{'0' * 16}_{'0' * 32}"
    client = holdfast.Client(secure.endpoint, ca=secure.file("ca.pem"), credential=lambda: wrong, request_timeout=5)
    with pytest.raises(holdfast.Unauthenticated):
        client.lock("a").acquire()
    client.close()


def test_a_plaintext_client_gets_no_session(secure: Secure) -> None:
    client = holdfast.Client(secure.endpoint, request_timeout=3)
    with pytest.raises((holdfast.Unavailable, holdfast.Unauthenticated)):
        client.lock("a").acquire()
    client.close()


def test_a_certificate_that_is_none_of_a_node_is_not_trusted(secure: Secure, tmp_path: Path) -> None:
    """Who holds a client's certificate cannot pretend to be a node."""
    import socket
    import ssl
    import threading

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secure.file("client-dev.pem"), secure.file("client-dev-key.pem"))
    context.set_alpn_protocols(["holdfast/1"])
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connected, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connected, server_side=True) as wrapped:
                        wrapped.recv(1)
                except OSError:
                    connected.close()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = holdfast.Client(address, ca=secure.file("ca.pem"), request_timeout=5)
        with pytest.raises(holdfast.Unauthenticated, match=r"none of a node|certificate"):
            client.lock("a").acquire()
        client.close()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(10)


def test_wrong_files_are_told_at_once(secure: Secure, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        holdfast.Client("a:1", ca=str(tmp_path / "nothing.pem"))
    with pytest.raises(ValueError, match="of no use without TLS"):
        holdfast.Client("a:1", cert=secure.file("client-dev.pem"))
    with pytest.raises(ValueError, match="verify is"):
        holdfast.Client("a:1", verify="nothing")
    with pytest.raises(ValueError, match="does not say of which cluster"):
        holdfast.Client("a:1", ca=secure.file("client-dev.pem"))
