"""How long to pause between tries, and when to let calls fail at once."""

from __future__ import annotations

import random
from typing import Optional

from .lease import MS

_FIRST = 20 * MS
_LONGEST = 500 * MS
#: An election takes less.
_OPEN_AFTER = 3_000 * MS
_SHORTEST_HANDSHAKE = 1_000 * MS


class Backoff:
    """Doubles, with jitter, so that the clients of a failed leader do not all come back at once."""

    def __init__(self, jitter: random.Random) -> None:
        self._ceiling = _FIRST
        self._jitter = jitter

    def reset(self) -> None:
        self._ceiling = _FIRST

    def next_delay(self) -> int:
        half = self._ceiling // 2
        self._ceiling = min(self._ceiling * 2, _LONGEST)
        return half + int(half * self._jitter.random())

    @staticmethod
    def longest_after(told: int) -> int:
        """The longest pause after what a node has told to wait."""
        return told + _LONGEST


class HandshakePatience:
    """How long a node may take over a TLS handshake.

    A node whose clients all come back at one moment makes their handshakes one after another. Clients that gave up
    after a fixed time would make it work for nothing.
    """

    def __init__(self, ttl: int) -> None:
        """Of a client whose sessions have this TTL: another node must have time to answer before the lease ends."""
        self._longest = max(ttl // 3, _SHORTEST_HANDSHAKE)
        self.duration = _SHORTEST_HANDSHAKE

    def note(self, took_too_long: bool) -> None:
        """After a handshake, or an attempt that took too long."""
        self.duration = min(self.duration * 2, self._longest) if took_too_long else _SHORTEST_HANDSHAKE


class Breaker:
    """Opens when no node has served the session for a while: then calls fail at once instead of waiting in vain."""

    def __init__(self) -> None:
        self.state = "closed"
        self._failing_since: Optional[int] = None

    @property
    def is_closed(self) -> bool:
        return self.state == "closed"

    def handle_try(self, now: int) -> None:
        if self._failing_since is None:
            self._failing_since = now
        if self.state == "open":
            self.state = "half_open"

    def handle_failure(self, now: int) -> None:
        since = self._failing_since
        if not self.is_closed or (since is not None and now - since >= _OPEN_AFTER):
            self.state = "open"

    def handle_success(self) -> None:
        self._failing_since = None
        self.state = "closed"
