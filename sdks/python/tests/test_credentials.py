"""Users that an administrator limits or turns away, on a real node."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import threading
import time
from pathlib import Path
from typing import Iterator, Tuple

import pytest

import holdfast
from holdfast.pytest_plugin import _find_binary, _free_ports


class Secured:
    """A node that demands credentials, and its administrator."""

    def __init__(self, binary: str, directory: Path) -> None:
        self._binary, self._directory = binary, directory
        port = _free_ports()
        self.endpoint = f"127.0.0.1:{port}"
        arguments = ["dev", "--secure", "--nodes", "1", "--no-http", "--port", str(port)]
        self._process = subprocess.Popen(
            [binary, *arguments, "--data-dir", str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        giving_up = threading.Timer(60, self._process.kill)
        giving_up.start()
        assert any(line == "ready\n" for line in self._process.stdout), "the node did not start"
        giving_up.cancel()

    def command(self, *arguments: str) -> None:
        environment = {**os.environ, "HOLDFAST_CONFIG": str(self._directory / "client.toml")}
        done = subprocess.run([self._binary, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def user(self, name: str, **options: float) -> "Tuple[holdfast.Client, str]":
        """A client of a new user, and the id of the user's token."""
        file = self._directory / f"{name}.token"
        self.command("access", "user", "create", f"token:{name}", "--role", "user", "--to", str(file))
        return self.client(file, **options), file.read_text(encoding="utf-8").split("_")[1]

    def client(self, file: Path, **options: float) -> holdfast.Client:
        ca = str(self._directory / "certs" / "ca.pem")
        return holdfast.Client(self.endpoint, ca=ca, auth_file=str(file), **options)  # type: ignore[arg-type]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    node = Secured(_find_binary(), tmp_path_factory.mktemp("secured") / "data")
    try:
        yield node
    finally:
        node.stop()


def test_a_caller_that_does_not_wait_as_long_as_a_rate_demands_is_told_when_to_come_back(secured: Secured) -> None:
    client, _ = secured.user("greedy", request_timeout=1)
    with client:
        client.lock("g").acquire().release()
        secured.command("access", "quota", "set", "token:greedy", "--rate", "1", "--burst", "1")
        with pytest.raises(holdfast.QuotaExceeded, match="1 requests a second") as refused:
            for _ in range(20):
                client.lock("g").acquire().release()
        assert refused.value.reason == "rate_limited" and refused.value.retryable
        assert not refused.value.may_have_happened
        assert refused.value.retry_after is not None and 0 < refused.value.retry_after <= 1
        again = pickle.loads(pickle.dumps(refused.value))
        assert again.retry_after == refused.value.retry_after
        # A caller that waits longer gets the lock later.
        client.lock("g", wait=10).acquire().release()


def test_a_used_up_quota_is_told_at_once(secured: Secured) -> None:
    client, _ = secured.user("hoarder")
    secured.command("access", "quota", "set", "token:hoarder", "--locks", "1")
    with client, client.lock("first") as guard:
        with pytest.raises(holdfast.QuotaExceeded, match="1 locks") as refused:
            client.lock("second", wait=60).acquire()
        assert (refused.value.reason, refused.value.retry_after) == ("quota_exceeded", None)
        assert guard.is_held


def test_a_client_whose_token_is_revoked_loses_its_locks_with_its_next_heartbeat(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    ttl = 6
    client, token = secured.user("revoked", ttl=ttl)
    guard = client.lock("revoked").acquire()
    also = client.lock("revoked too").acquire()
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        secured.command("access", "token", "revoke", token)
        began = time.monotonic()
        assert guard.wait_lost(10 * ttl) == "denied"
    # The lease alone would have told it after 98 % of the TTL.
    assert time.monotonic() - began < ttl * 0.9
    began = time.monotonic()
    for held in (guard, also):
        with pytest.raises(holdfast.Lost) as lost:
            held.release()
        assert lost.value.reason == "denied"
    with pytest.raises(holdfast.Unauthenticated, match="may have been revoked"):
        client.lock("another").acquire()
    client.close()
    assert time.monotonic() - began < 2
    assert "may have been revoked" in caplog.text


def test_a_client_whose_token_has_expired_resumes_with_the_one_that_its_file_has_then(
    secured: Secured, tmp_path: Path
) -> None:
    # The token lives for longer than a client needs to take a lock on this machine.
    began = time.monotonic()
    with secured.user("rotated")[0] as warm:
        warm.lock("rotated").acquire().release()
    valid = 2 + 4 * (time.monotonic() - began)
    short, lasting = tmp_path / "short", tmp_path / "lasting"
    secured.command("access", "token", "create", "token:rotated", "--to", str(lasting))
    expiry = f"{int(valid * 1000)}ms"
    secured.command("access", "token", "create", "token:rotated", "--to", str(short), "--expires", expiry)
    expires = time.monotonic() + valid
    with secured.client(short) as rotated, rotated.lock("rotated") as guard:
        token = guard.token
        lasting.rename(short)
        # The node ends the stream then. It takes no other request of the old token.
        while time.monotonic() < expires + 0.2:
            assert guard.wait_lost(0.1) is None
        rotated.lock("after", wait=5).acquire().release()
        assert guard.token == token
