"""What a read of a lock tells."""

from __future__ import annotations

from typing import List, NamedTuple

from ._wire import Message


class Participant(NamedTuple):
    """A holder or a waiter."""

    session: str
    token: int
    metadata: bytes
    application: str
    host: str


class Status:
    """Who holds a lock and who waits for it: how many, and the first ten of each."""

    def __init__(self, told: Message) -> None:
        self.name: str = told.get("name", "")
        self.holders = _participants(told.get("holders", []))
        self.waiters = _participants(told.get("waiters", []))
        self.holder_count: int = told.get("holder_count", 0)
        self.waiter_count: int = told.get("waiter_count", 0)

    def __repr__(self) -> str:
        return f"Status({self.name!r}, holders={self.holders}, waiters={self.waiters})"


def _participants(told: List[Message]) -> List[Participant]:
    return [
        Participant(
            session=it.get("public_session_id", ""),
            token=it.get("token", 0),
            metadata=it.get("metadata", b""),
            application=it.get("owner", {}).get("application", ""),
            host=it.get("owner", {}).get("host", ""),
        )
        for it in told
    ]
