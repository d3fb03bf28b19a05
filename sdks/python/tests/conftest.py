"""What several test files need."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import holdfast
import holdfast.postgres

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))


def find(program: str) -> str:
    places = [*os.environ["PATH"].split(":"), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    found = shutil.which(program, path=":".join(places))
    if found is None:
        words = f"{program} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def until(is_up: Callable[[], Any]) -> None:
    give_up = time.monotonic() + 30
    while True:
        try:
            is_up()
            return
        except Exception:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import psycopg

    initdb, server = find("initdb"), find("postgres")
    directory, port = tmp_path_factory.mktemp("postgres"), free_port()
    # PostgreSQL refuses to run as root.
    account = None
    if os.geteuid() == 0:
        names = {it.pw_name for it in pwd.getpwall()}
        account = "postgres" if "postgres" in names else "nobody"
        shutil.chown(directory, account)
        for parent in directory.parents:
            if parent.stat().st_uid == 0 and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
    data = str(directory / "data")
    options: dict = {"user": account} if account else {}
    subprocess.run(
        [initdb, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D", data],
        check=True,
        capture_output=True,
        cwd="/",
        **options,
    )
    settings = ["fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories="]
    arguments = [server, "-p", str(port), "-D", data, *(word for it in settings for word in ("-c", it))]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, cwd="/", **options)
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        until(lambda: psycopg.connect(url).close())
        with psycopg.connect(url) as connection:
            holdfast.postgres.migrate(connection)
            connection.execute("CREATE TABLE wallets (id int PRIMARY KEY, cents int)")
            connection.execute("INSERT INTO wallets VALUES (42, 100)")
        yield url
    finally:
        process.kill()
        process.wait()
