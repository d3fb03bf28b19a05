"""Fixtures for tests of programs that use locks. pytest finds them when this package is installed.

- `holdfast_server`: a real node on loopback, for the whole run. The program `holdfast` must be in PATH, or named by
  HOLDFAST_BIN; without it the tests that need it are skipped, and in CI (CI=true) they fail.
- `holdfast_client`: a client of it, closed after the test.

`holdfast_server.break_lock(name)` and `.end_session(guard)` take locks away, as operators and expiries do.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from typing import Any, Iterator, List, Optional

import pytest

from .client import Client

_READY_TIMEOUT = 60.0


class Server:
    """A cluster, by default of one node with one Raft group."""

    def __init__(self, binary: str, directory: str, nodes: int = 1, groups: int = 1) -> None:
        self._binary = binary
        self._groups = groups
        self._process: Optional[subprocess.Popen[str]] = None
        for attempt in range(5):
            port = _free_ports(nodes)
            self.endpoint = ",".join(f"127.0.0.1:{port + 10 * node}" for node in range(nodes))
            # A directory belongs to the ports that its nodes had first.
            if self._start(port, os.path.join(directory, str(attempt)), nodes):
                return
        raise RuntimeError("no holdfast node could be started")

    def _start(self, port: int, directory: str, nodes: int) -> bool:
        shape = ["--nodes", str(nodes), "--no-http", "--port", str(port), "--data-dir", directory]
        if self._groups > 1:
            shape += ["--groups", str(self._groups)]
        arguments = [self._binary, "dev", *shape]
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        stdout = self._process.stdout
        assert stdout is not None
        giving_up = threading.Timer(_READY_TIMEOUT, self._process.kill)
        giving_up.start()
        try:
            for line in stdout:
                if line.strip() == "ready":
                    return True
        finally:
            giving_up.cancel()
        self.stop()
        return False

    def command(self, *arguments: str) -> str:
        """Runs `holdfast` with these arguments against the node, and returns what it prints."""
        environment = {**os.environ, "HOLDFAST_ENDPOINTS": self.endpoint}
        done = subprocess.run(
            [self._binary, *arguments], env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"holdfast {' '.join(arguments)} failed: {done.stderr}")
        return done.stdout

    def break_lock(self, name: str) -> None:
        """An operator takes the lock away from its holder."""
        self.command("break", name, "--reason", "a test")

    def end_session(self, guard: Any) -> None:
        """The holder's session ends with all its locks, as if it had expired."""
        with Client(self.endpoint, application="pytest") as client:
            holders = client.status(guard.name).holders
        for session in {holder.session for holder in holders}:
            self.command("kill-session", session, "--reason", "a test")

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _free_ports(nodes: int = 1) -> int:
    """A port that is free, as is the one after it, which peers use. Further nodes have ports 10 higher."""
    while True:
        held: List[socket.socket] = []
        try:
            held.append(socket.create_server(("127.0.0.1", 0)))
            port = int(held[0].getsockname()[1])
            others = [10 * node + part for node in range(nodes) for part in (0, 1)][1:]
            for other in others:
                held.append(socket.create_server(("127.0.0.1", port + other)))
            return port
        except (OSError, OverflowError):
            continue
        finally:
            for listener in held:
                listener.close()


def _find_binary() -> str:
    binary = os.environ.get("HOLDFAST_BIN") or shutil.which("holdfast")
    if binary is None:
        words = "the program `holdfast` is not in PATH; set HOLDFAST_BIN to where it is"
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    return binary


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[Server]:
    binary = _find_binary()
    with tempfile.TemporaryDirectory(prefix="holdfast-pytest-") as directory:
        server = Server(binary, os.path.join(directory, "data"))
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def holdfast_client(holdfast_server: Server) -> Iterator[Client]:
    with Client(holdfast_server.endpoint, application="pytest") as client:
        yield client
