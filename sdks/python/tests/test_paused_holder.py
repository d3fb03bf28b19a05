"""A process stands still past its TTL with a token in its hands, and PostgreSQL refuses what it writes afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import psycopg
import pytest
import wallets

import holdfast
from holdfast.pytest_plugin import Server, _find_binary

WALLET = "wallet:user_123"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Server]:
    server = Server(_find_binary(), str(tmp_path / "data"), nodes=3)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def account(postgres: str) -> Iterator[wallets.Database]:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, balance int)")
        connection.execute("DELETE FROM accounts")
        connection.execute("INSERT INTO accounts VALUES (%s, 1000)", (WALLET,))
    database = wallets.Database(postgres)
    yield database
    database.close()


def start(cluster: Server, postgres: str) -> "subprocess.Popen[str]":
    """A process that runs the lines, and stands still with its token in its hands until it is told to go on."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    arguments = [sys.executable, wallets.__file__, cluster.endpoint, postgres]
    holder = subprocess.Popen(arguments, text=True, **pipes)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "about to write\n", holder.communicate()
    return holder


def test_the_lines_with_which_the_product_began_run_on_a_cluster(
    cluster: Server, account: wallets.Database, postgres: str
) -> None:
    for balance in (900, 800):
        _, told = start(cluster, postgres).communicate("go on\n", timeout=60)
        assert (account.read(WALLET), told) == (balance, "")


def test_a_holder_that_was_stopped_past_its_ttl_cannot_write(
    cluster: Server, account: wallets.Database, postgres: str
) -> None:
    holder = start(cluster, postgres)
    try:
        os.kill(holder.pid, signal.SIGSTOP)
        with holdfast.Client(cluster.endpoint) as client, client.lock(WALLET, wait=60) as lock:
            # Only the end of the holder's TTL can have granted it.
            assert account.read(WALLET) == 1000
            account.write(WALLET, 1000 - 300, fence_token=lock.fence_token)
            os.kill(holder.pid, signal.SIGCONT)
            _, told = holder.communicate("go on\n", timeout=60)
        assert holder.returncode == 1
        # The log also says that the session ended.
        (error,) = [line for line in told.splitlines() if line.startswith("holdfast.errors.")]
        assert error.startswith("holdfast.errors.FenceRefused: "), told
        assert account.read(WALLET) == 700
    finally:
        holder.kill()
        holder.wait()
