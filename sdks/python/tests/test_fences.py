"""Late writes are refused by real servers. Without one of them installed its tests are skipped, and in CI they fail."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any, Iterator

import pytest
from conftest import ROOT, find, free_port, until

import holdfast
import holdfast.postgres
import holdfast.redis
from holdfast.fence import HighWaterMark, admit, name_hash


def fence(name: str, token: int) -> str:
    return f"hf1.L.{name_hash(name)}.{token}"


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    import redis

    port = free_port()
    arguments = [
        find("redis-server"),
        "--port",
        str(port),
        "--save",
        "",
        "--dir",
        str(tmp_path_factory.mktemp("redis")),
    ]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            until(client.ping)
        yield port
    finally:
        process.kill()
        process.wait()


def test_the_files_are_those_of_the_fence_crate() -> None:
    crate = ROOT / "crates" / "fence"
    assert (crate / "sql" / "postgres.sql").read_text(encoding="utf-8") == holdfast.postgres.MIGRATION
    assert (crate / "src" / "redis" / "write.lua").read_text(encoding="utf-8") == holdfast.redis.SCRIPT


def test_a_mark_never_goes_back() -> None:
    mark = HighWaterMark()
    mark.raise_to(admit(fence("a", 5), "a"))
    mark.raise_to(admit(fence("a", 5), "a"))
    with pytest.raises(holdfast.FenceRefused, match="begin with reading") as refused:
        mark.raise_to(admit(fence("a", 4), "a"))
    assert refused.value.highest == 5 and mark.token == 5


def test_psycopg_refuses_a_late_write(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres) as connection:
        with connection.transaction():
            holdfast.postgres.check(connection, fence("psycopg", 9), "psycopg")
        with pytest.raises(holdfast.FenceRefused) as refused, connection.transaction():
            holdfast.postgres.check(connection, fence("psycopg", 8), "psycopg")
        assert (refused.value.kind, refused.value.highest) == ("stale", 9)
        for wrong, kind in ((fence("other", 9), "other_resource"), ("9", "malformed"), ("", "not_fenceable")):
            with pytest.raises(holdfast.FenceRefused) as refused, connection.transaction():
                holdfast.postgres.check(connection, wrong, "psycopg")
            assert refused.value.kind == kind
        with pytest.raises(psycopg.errors.UndefinedTable), connection.transaction():
            connection.execute("SELECT * FROM nothing")
        with pytest.raises(ValueError, match="resource"):
            holdfast.postgres.check(connection, fence("psycopg", 9))


def test_sqlalchemy_refuses_a_late_write(postgres: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(postgres.replace("postgresql", "postgresql+psycopg"))
    with engine.begin() as connection:
        holdfast.postgres.migrate(connection)
        holdfast.postgres.check(connection, fence("alchemy", 9), "alchemy")
    with Session(engine) as session, session.begin():
        holdfast.postgres.check(session, fence("alchemy", 10), "alchemy")
    with pytest.raises(holdfast.FenceRefused) as refused, engine.begin() as connection:
        holdfast.postgres.check(connection, fence("alchemy", 9), "alchemy")
    assert refused.value.highest == 10
    engine.dispose()


def test_asyncpg_and_async_psycopg_refuse_a_late_write(postgres: str) -> None:
    import asyncpg
    import psycopg

    async def play() -> None:
        connection = await asyncpg.connect(postgres)
        await holdfast.postgres.migrate_async(connection)
        async with connection.transaction():
            await holdfast.postgres.check_async(connection, fence("async", 9), "async")
        with pytest.raises(holdfast.FenceRefused) as refused:
            async with connection.transaction():
                await holdfast.postgres.check_async(connection, fence("async", 8), "async")
        assert (refused.value.kind, refused.value.highest) == ("stale", 9)
        await connection.close()
        async with await psycopg.AsyncConnection.connect(postgres) as other:
            with pytest.raises(holdfast.FenceRefused):
                await holdfast.postgres.check_async(other, fence("async", 8), "async")

    asyncio.run(play())


def test_a_paused_holder_cannot_write_after_the_next_one(
    postgres: str, holdfast_server: Any, holdfast_client: holdfast.Client
) -> None:
    """The holder reads its token, stands still, loses the lock, and writes late."""
    import psycopg

    guard = holdfast_client.lock("wallet:42").acquire()
    late = guard.fence
    holdfast_server.break_lock("wallet:42")
    with holdfast.Client(holdfast_server.endpoint) as other, psycopg.connect(postgres) as connection:
        with other.lock("wallet:42", wait=10) as next_guard, connection.transaction():
            holdfast.postgres.check(connection, next_guard)
            connection.execute("UPDATE wallets SET cents = cents - 1 WHERE id = 42")
        with pytest.raises(holdfast.FenceRefused), connection.transaction():
            holdfast.postgres.check(connection, late, "wallet:42")
            connection.execute("UPDATE wallets SET cents = 1000 WHERE id = 42")
        assert connection.execute("SELECT cents FROM wallets WHERE id = 42").fetchone() == (99,)
        assert guard.wait_lost(10) == "broken"
        with pytest.raises(holdfast.Lost):
            holdfast.postgres.check(connection, guard)
    guard.release()


def test_redis_refuses_a_late_write(redis_port: int) -> None:
    import redis
    import redis.asyncio

    key = holdfast.redis.FencedKey("order:42")
    assert key.mark == "holdfast:mark:{order:42}"
    with redis.Redis(port=redis_port, decode_responses=True) as client:
        assert key.run(client, fence("order:42", 9), "SET", key.data, "paid") == "OK"
        with pytest.raises(holdfast.FenceRefused) as refused:
            key.run(client, fence("order:42", 8), "SET", key.data, "late")
        assert refused.value.highest == 9
        assert client.get("order:42") == "paid"
        with pytest.raises(holdfast.FenceRefused, match="another resource"):
            key.run(client, fence("order:43", 10), "SET", key.data, "wrong")

    async def play() -> None:
        client = redis.asyncio.Redis(port=redis_port)
        assert await key.run_async(client, fence("order:42", 10), "GET", key.data) == b"paid"
        with pytest.raises(holdfast.FenceRefused):
            await key.run_async(client, fence("order:42", 9), "SET", key.data, "late")
        await client.aclose()

    asyncio.run(play())


def test_keys_in_redis_keep_their_hash_slot() -> None:
    assert holdfast.redis.FencedKey("{wallet:42}:cents").mark == "holdfast:mark:{wallet:42}:cents"
    for wrong in ("a{}b", "a}b", "a{b", "{}{b}"):
        with pytest.raises(ValueError, match="hash tag"):
            holdfast.redis.FencedKey(wrong)
