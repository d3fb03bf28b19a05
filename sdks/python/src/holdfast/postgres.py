"""Fencing in PostgreSQL: a transaction goes on only if its token is not out of date.

    with conn.transaction():
        holdfast.postgres.check(conn, guard)
        conn.execute("UPDATE orders SET …")

It takes connections of psycopg and psycopg2, connections and sessions of SQLAlchemy, and with `check_async` those of
asyncpg, psycopg's `AsyncConnection` and SQLAlchemy's asyncio extension. `MIGRATION` creates what it needs: run it once,
or call `migrate`. After a refusal the transaction can only be rolled back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Protocol, Union

from .errors import FenceRefused

__all__ = ["MIGRATION", "check", "check_async", "migrate", "migrate_async"]

#: Creates schema, table and functions; can be run again.
MIGRATION = Path(__file__).with_name("fence.sql").read_text(encoding="utf-8")

_KINDS = {
    "ZF001": "stale",
    "ZF002": "missing",
    "ZF003": "malformed",
    "ZF004": "zero",
    "ZF005": "other_resource",
    "ZF006": "best_effort",
    "ZF007": "not_fenceable",
}


class _Fenced(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def fence(self) -> str: ...


def check(
    connection: Any,
    guard: Union[_Fenced, str],
    resource: Optional[str] = None,
    *,
    accepts_best_effort: bool = False,
) -> None:
    """Raises `FenceRefused` if the token is out of date, and `Lost` if the lock is. Until the transaction ends, no
    other token of this resource passes.

    `resource` is the name of the lock; that of the guard by default.
    """
    statement = _Statement(connection, guard, resource, accepts_best_effort)
    try:
        statement.run()
    except Exception as error:
        raise _refusal(error) or error from None


async def check_async(
    connection: Any,
    guard: Union[_Fenced, str],
    resource: Optional[str] = None,
    *,
    accepts_best_effort: bool = False,
) -> None:
    """As `check`, for asyncio."""
    statement = _Statement(connection, guard, resource, accepts_best_effort)
    try:
        await statement.run()
    except Exception as error:
        raise _refusal(error) or error from None


def migrate(connection: Any) -> None:
    """Runs `MIGRATION`. The caller commits."""
    library = _library(connection)
    if library == "sqlalchemy":
        driver = connection.connection() if hasattr(connection, "get_bind") else connection
        driver.exec_driver_sql(MIGRATION.replace("%", "%%"))
    elif library == "psycopg2":
        with connection.cursor() as cursor:
            cursor.execute(MIGRATION)
    else:
        connection.execute(MIGRATION)


async def migrate_async(connection: Any) -> None:
    """As `migrate`, for asyncpg and psycopg's `AsyncConnection`."""
    await connection.execute(MIGRATION)


class _Statement:
    """`holdfast.check_fence`, as the library of this connection wants it."""

    def __init__(
        self, connection: Any, guard: Union[_Fenced, str], resource: Optional[str], accepts_best_effort: bool
    ) -> None:
        if isinstance(guard, str):
            if resource is None:
                raise ValueError("a token alone does not say which resource it is for: give resource=")
            fence = guard
        else:
            fence, resource = guard.fence, resource or guard.name
        self._connection = connection
        self._values = (resource, fence, accepts_best_effort)

    def run(self) -> Any:
        library, connection = _library(self._connection), self._connection
        if library == "asyncpg":
            return connection.execute("SELECT holdfast.check_fence($1, $2, $3)", *self._values)
        if library == "sqlalchemy":
            from sqlalchemy import text

            names = ("resource", "fence", "accepts_best_effort")
            named = text("SELECT holdfast.check_fence(:resource, :fence, :accepts_best_effort)")
            return connection.execute(named, dict(zip(names, self._values)))
        query = "SELECT holdfast.check_fence(%s, %s, %s)"
        if library == "psycopg2":
            with connection.cursor() as cursor:
                return cursor.execute(query, self._values)
        return connection.execute(query, self._values)


def _library(connection: Any) -> str:
    return next(
        (
            library
            for base in type(connection).__mro__
            for library in ("psycopg2", "psycopg", "sqlalchemy", "asyncpg")
            if base.__module__.split(".")[0] == library
        ),
        "psycopg",
    )


def _refusal(error: BaseException) -> Optional[FenceRefused]:
    """What the database said, if it refused the token."""
    original = getattr(error, "orig", None) or error
    for cause in (original, getattr(original, "__cause__", None)):
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code in _KINDS:
            detail = getattr(cause, "detail", None) or getattr(getattr(cause, "diag", None), "message_detail", None)
            highest = str(detail or "").partition("highest: ")[2]
            words = str(cause).splitlines()[0]
            return FenceRefused(_KINDS[code], words, int(highest) if highest.isdigit() else None)
    return None
