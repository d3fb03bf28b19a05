"""A database of wallets, as a program would write it for PostgreSQL, and a program that takes money out of one."""

from __future__ import annotations

import sys
from typing import Callable

import holdfast.postgres
from holdfast.fence import name_hash

#: With these lines the product began. They run as they are, but for the address and what they import.
PROGRAM = """
client = LockServiceClient("lock-service:2379")

with client.lock("wallet:user_123", ttl=30, tier=CORRECTNESS) as lock:
    balance = db.read("wallet:user_123")
    db.write("wallet:user_123", balance - 100,
             fence_token=lock.fence_token)
# Lock auto-released when context exits
"""


class Database:
    """Writes that come with the token of an earlier holder are refused."""

    def __init__(self, url: str, before_write: Callable[[], None] = lambda: None) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)
        self._before_write = before_write

    def read(self, name: str) -> int:
        (balance,) = self._connection.execute("SELECT balance FROM accounts WHERE name = %s", (name,)).fetchone()
        return int(balance)

    def write(self, name: str, balance: int, fence_token: int) -> None:
        self._before_write()
        with self._connection.transaction():
            holdfast.postgres.check(self._connection, f"hf1.L.{name_hash(name)}.{fence_token}", name)
            self._connection.execute("UPDATE accounts SET balance = %s WHERE name = %s", (balance, name))

    def close(self) -> None:
        self._connection.close()


def run(endpoint: str, db: Database) -> None:
    names = {"LockServiceClient": holdfast.Client, "CORRECTNESS": holdfast.CORRECTNESS, "db": db}
    exec(compile(PROGRAM.replace("lock-service:2379", endpoint), "the program", "exec"), names)


def tell_and_await_a_line() -> None:
    print("about to write", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    run(sys.argv[1], Database(sys.argv[2], tell_and_await_a_line))
