"""What can go wrong. All errors of the library are a `HoldfastError`.

The arguments of an error (`args`) are those that make it again, so errors can be pickled, and sent as JSON by Celery.
"""

from __future__ import annotations

from typing import Dict, List, Optional

__all__ = [
    "Busy",
    "Closed",
    "Deadlock",
    "Died",
    "FenceRefused",
    "HoldfastError",
    "InvalidEndpoints",
    "InvalidSecurity",
    "Lost",
    "PermissionDenied",
    "QuotaExceeded",
    "Rejected",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
]


class HoldfastError(Exception):
    """The base of all errors of this library."""


class Busy(HoldfastError):
    """Another holder has the lock, and the request was not to wait."""

    def __str__(self) -> str:
        return "the lock is held; wait for it with wait=<seconds>, or try later"


class TimedOut(HoldfastError):
    """The lock did not become free within the wait."""

    def __str__(self) -> str:
        return "the lock did not become free within the wait"


class Deadlock(HoldfastError):
    """To wait would have closed a cycle of waits. Release what you hold, and begin again."""

    def __init__(self, cycle: List[Dict[str, object]]) -> None:
        self.cycle = cycle
        super().__init__(cycle)

    def __str__(self) -> str:
        links = ", ".join(f"session {link['session']} waits for {link['waits_for']}" for link in self.cycle)
        return f"to wait would be a deadlock: {links}; release what you hold"


class Died(HoldfastError):
    """An older actor is in the way. Release what you hold, and ask again with this `since`."""

    def __init__(self, since: int) -> None:
        self.since = since
        super().__init__(since)

    def __str__(self) -> str:
        return f"an older actor is in the way; release what you hold and ask again with since={self.since}"


_LOSSES = {
    "expired": "no heartbeat was answered within the session's TTL, so the lock may have ended",
    "own_time_over": "the hold's own time, its TTL or its maximum, is over",
    "hold_ttl": "the hold's own TTL passed without a renewal",
    "max_hold": "the hold reached its maximum time",
    "session_expired": "the session expired",
    "session_closed": "the session was closed",
    "disconnected": "the connection broke and did not come back within the linger time",
    "wounded": "an older actor took the lock away",
    "broken": "an operator broke the lock",
    "session_killed": "an operator ended the session",
    "transferred": "the lock was handed to another session",
    "leader_changed": "the leader changed, and with it ended what was held in the efficiency tier",
    "leader_unreachable": "the connection to the leader was lost, and with it what was held in the efficiency tier",
    "denied": "no node accepts this client any more, so it can neither keep the lock nor release it; the cluster"
    " ends the lock when the session's TTL is over, or before. Give the client another credential",
    "released": "the lock was released",
    "forked": "this process was forked from the holder; take the lock again here",
    "ended": "the cluster ended the hold",
}


class Lost(HoldfastError):
    """The lock is no longer held. `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"the lock is lost: {_LOSSES.get(self.reason, self.reason)}"


#: Limits can have room again later, a freeze ends, and another group may own the lock; a wrong request stays wrong.
_RETRYABLE = frozenset(
    {
        "too_many_sessions",
        "too_many_holds",
        "too_many_waits",
        "queue_full",
        "too_many_unacknowledged",
        "frozen",
        "quota_exceeded",
        "rate_limited",
        "wrong_group",
    }
)


class Rejected(HoldfastError):
    """The cluster refused the request."""

    def __init__(self, reason: str, message: str, may_have_happened: bool = False) -> None:
        self.reason = reason
        self.retryable = reason in _RETRYABLE
        self.may_have_happened = may_have_happened
        #: Of a group that does not own the lock: the epoch of the map by which it refused.
        self.map_epoch = 0
        super().__init__(reason, message, may_have_happened)

    def __str__(self) -> str:
        return str(self.args[1] or self.reason)


class Unauthenticated(Rejected):
    """The cluster does not know this client: its certificate or its credential is missing, wrong or over."""


class PermissionDenied(Rejected):
    """The cluster knows this client, and its policy does not allow the request."""


class QuotaExceeded(Rejected):
    """The caller, or all that use the names with a prefix, have what their quota allows, or ask more often.

    `retry_after` says in how many seconds the cluster would take the request, if it knows: it does for a rate.
    """

    def __init__(
        self, reason: str, message: str, may_have_happened: bool = False, retry_after: Optional[float] = None
    ) -> None:
        self.retry_after = retry_after
        super().__init__(reason, message, may_have_happened)
        self.args = (reason, message, may_have_happened, retry_after)


class Unavailable(HoldfastError):
    """No node answered in time."""

    def __init__(self, message: str, may_have_happened: bool) -> None:
        self.may_have_happened = may_have_happened
        super().__init__(message, may_have_happened)

    def __str__(self) -> str:
        return f"no answer from the cluster in time: {self.args[0]}"


class Closed(HoldfastError):
    """The program closed the client."""

    def __str__(self) -> str:
        return "the client is closed; open another one"


class InvalidEndpoints(HoldfastError, ValueError):
    """The list of endpoints cannot be used."""

    def __init__(self, kind: str, part: str = "") -> None:
        self.kind = kind
        self.part = part
        super().__init__(kind, part)

    def __str__(self) -> str:
        if self.kind == "empty":
            return "no endpoint given; write one or more host:port, separated by commas"
        return f"{self.part!r} is not an endpoint; write host:port, for example 127.0.0.1:7420"


class InvalidSecurity(HoldfastError, ValueError):
    """A file or an option for TLS or credentials cannot be used."""


class FenceRefused(HoldfastError):
    """A resource refused a fencing token."""

    def __init__(self, kind: str, message: str, highest: Optional[int] = None) -> None:
        self.kind = kind
        self.highest = highest
        super().__init__(kind, message, highest)

    def __str__(self) -> str:
        return str(self.args[1])
