"""TLS and credentials against a real node that demands both."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NamedTuple

import pytest

import holdfast
from holdfast._core.lease import MS
from holdfast._core.pacing import HandshakePatience
from holdfast.pytest_plugin import _free_ports

CONFIGURATION = """
cluster = "test"
node = 1
data_dir = "{directory}/data"
[tls]
cert = "{directory}/certs/node-1.pem"
key = "{directory}/certs/node-1-key.pem"
client_ca = "{directory}/certs/ca.pem"
[auth]
mode = "required"
[[nodes]]
id = 1
client = "127.0.0.1:{port}"
peer = "127.0.0.1:{peer_port}"
"""


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
        certificates = Path(directory) / "certs"
        for arguments in ("ca --cluster test", "node --id 1 --host 127.0.0.1", "client billing"):
            command = [binary, "cert", *arguments.split(), "--dir", str(certificates)]
            subprocess.run(command, check=True, capture_output=True)
        port = _free_ports()
        file = Path(directory) / "node.toml"
        file.write_text(CONFIGURATION.format(directory=directory, port=port, peer_port=port + 1), encoding="utf-8")
        process = subprocess.Popen(
            [binary, "server", "--config", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        giving_up = threading.Timer(60, process.kill)
        giving_up.start()
        # It says so once it has a leader.
        assert any("serving clients" in line for line in process.stdout), "the node did not start"
        giving_up.cancel()
        reading = threading.Thread(target=process.stdout.read)
        reading.start()
        try:
            token = (Path(directory) / "data" / "bootstrap").read_text(encoding="utf-8")
            yield Secure(f"127.0.0.1:{port}", certificates, token)
        finally:
            process.kill()
            process.wait()
            reading.join(10)
            process.stdout.close()


def test_a_token_opens_a_session_and_is_asked_for_at_each_connection(secure: Secure) -> None:
    asked = []

    def credential() -> str:
        asked.append(1)
        return secure.token

    ca = secure.file("ca.pem")
    with holdfast.Client(secure.endpoint, ca=ca, credential=credential) as client:
        assert client.lock("a").acquire().release() == "released"
        # Many pieces in few records, both ways.
        with client.lock_all([f"many/{number}" for number in range(200)]) as many:
            assert len(many.tokens) == 200
    assert asked
    with holdfast.Client(secure.endpoint, ca=ca, credential=secure.token, verify="host") as client:
        assert client.lock("a").acquire().release() == "released"


def test_a_certificate_without_a_role_is_known_and_may_do_nothing(secure: Secure) -> None:
    ca, cert, key = map(secure.file, ("ca.pem", "client-billing.pem", "client-billing-key.pem"))
    client = holdfast.Client(secure.endpoint, ca=ca, cert=cert, key=key, request_timeout=5)
    with pytest.raises(holdfast.PermissionDenied, match="cert:billing"):
        client.lock("a").acquire()
    client.close()


def test_a_client_without_a_credential_is_told_so(secure: Secure) -> None:
    client = holdfast.Client(secure.endpoint, ca=secure.file("ca.pem"), request_timeout=5)
    with pytest.raises(holdfast.Unauthenticated):
        client.lock("a").acquire()
    client.close()


def test_a_wrong_credential_is_refused(secure: Secure) -> None:
    wrong = f"hft_{'0' * 16}_{'0' * 43}"
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
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secure.file("client-billing.pem"), secure.file("client-billing-key.pem"))
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


@contextmanager
def slow_handshakes(node: str, delay: float) -> Iterator[str]:
    """An address in front of a node, where each connection waits before anything passes."""
    host, port = node.split(":")

    def carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve(accepted: socket.socket) -> None:
        time.sleep(delay)
        with accepted, socket.create_connection((host, int(port))) as connected:
            back = threading.Thread(target=carry, args=(connected, accepted), daemon=True)
            back.start()
            carry(accepted, connected)
            back.join()

    def accept() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(accepted,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join(10)


def test_a_node_that_is_slow_with_its_handshakes_is_reached_at_last(secure: Secure) -> None:
    """The first handshake has a second, and the next one two."""
    with slow_handshakes(secure.endpoint, 1.2) as address:
        ca = secure.file("ca.pem")
        with holdfast.Client(address, ca=ca, credential=secure.token, discover=False) as client:
            assert client.lock("slow").acquire().release() == "released"
            # Watches have connections of their own.
            watch = client.watch("slow", snapshot=True)
            assert next(watch).kind == "snapshot_complete"
            watch.close()


@pytest.mark.parametrize(("ttl", "seconds"), [(30, [1, 2, 4, 8, 10, 10]), (2, [1, 1, 1])])
def test_the_patience_with_handshakes_grows_while_they_take_too_long(ttl: int, seconds: List[int]) -> None:
    patience = HandshakePatience(ttl * 1000 * MS)
    for wanted in seconds:
        assert patience.duration == wanted * 1000 * MS
        patience.note(True)
    patience.note(False)
    assert patience.duration == 1000 * MS


def test_wrong_files_are_told_at_once(secure: Secure, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.pem")
    with pytest.raises(holdfast.InvalidSecurity, match=r"ca='.*nothing.pem' cannot be read: No such file"):
        holdfast.Client("a:1", ca=nothing)
    with pytest.raises(holdfast.InvalidSecurity, match=r"key='.*nothing.pem' cannot be read"):
        holdfast.Client("a:1", ca=secure.file("ca.pem"), cert=secure.file("client-billing.pem"), key=nothing)
    with pytest.raises(holdfast.InvalidSecurity, match="belong together"):
        holdfast.Client("a:1", ca=secure.file("ca.pem"), cert=secure.file("client-billing.pem"))
    with pytest.raises(holdfast.InvalidSecurity, match="is no such file in PEM format"):
        holdfast.Client("a:1", ca=__file__)
    with pytest.raises(holdfast.InvalidSecurity, match=r"auth_file='.*nothing.pem' cannot be read"):
        holdfast.Client("a:1", auth_file=nothing)
    readable = tmp_path / "readable.token"
    readable.write_text("hft_0_0", encoding="utf-8")
    readable.chmod(0o644)
    with pytest.raises(holdfast.InvalidSecurity, match="chmod 600"):
        holdfast.Client("a:1", auth_file=str(readable))
    with pytest.raises(ValueError, match="need TLS"):
        holdfast.Client("a:1", cert=secure.file("client-billing.pem"))
    with pytest.raises(ValueError, match="verify= is"):
        holdfast.Client("a:1", verify="nothing")
    with pytest.raises(ValueError, match="does not say of which cluster"):
        holdfast.Client("a:1", ca=secure.file("client-billing.pem"))
