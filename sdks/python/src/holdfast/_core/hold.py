"""A lock that is held, as the session and its guard both know it."""

from __future__ import annotations

import threading
from typing import Callable, List, Optional

from .._wire import Message
from ..errors import Lost
from .lease import Leases

#: Numbers of the enums Mode and Guarantee.
EXCLUSIVE, SHARED, PERMIT = 1, 2, 3
LINEARIZABLE = 1


class Loss:
    """The first reason for which a hold, or one of several that are held together, was lost."""

    __slots__ = ("_callbacks", "_lock", "reason")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reason: Optional[str] = None
        self._callbacks: List[Callable[[str], None]] = []

    def report(self, reason: str) -> None:
        """Only the first reason counts."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(reason)

    def when_reported(self, callback: Callable[[str], None]) -> None:
        """The callback must be quick: it is called within the session, or by a guard."""
        with self._lock:
            reason = self.reason
            if reason is None:
                self._callbacks.append(callback)
        if reason is not None:
            callback(reason)


class HeldAs:
    """The state of the hold in the cluster. Guards that entered one hold several times share it."""

    __slots__ = ("fence", "is_leaving", "mode", "token")

    def __init__(self, grant: Message) -> None:
        self.is_leaving = False
        self.convert(grant)

    def convert(self, grant: Message) -> None:
        self.mode: int = grant.get("mode", 0)
        self.token: int = grant.get("token", 0)
        self.fence: str = grant.get("fence", "")


class Hold:
    def __init__(
        self,
        *,
        acquire: int,
        entry: int,
        lease: int,
        call: int,
        grant: Message,
        held_as: HeldAs,
        leases: Leases,
        loss: Loss,
        since: Optional[int],
    ) -> None:
        #: The request by which the cluster knows the hold, and a number of the guard's own.
        self.acquire, self.entry = acquire, entry
        #: Guards that entered one hold several times have one lease.
        self.lease = lease
        self.call = call
        self.name: str = grant.get("name", "")
        self.since = since
        self.is_best_effort = bool(grant.get("guarantee", 0) != LINEARIZABLE)
        self.held_as = held_as
        self.loss = loss
        #: The cluster itself ended the hold, so there is nothing to release.
        self.has_ended = False
        #: If the library renews the hold: its TTL, when the next renewal is due, and whether one is under way.
        self.renews: Optional[int] = None
        self.renewal_due = 0
        self.is_renewing = False
        #: Another acquire has entered it.
        self.was_entered = False
        self._leases = leases

    @property
    def tier(self) -> int:
        return 2 if self.is_best_effort else 1

    def end(self, reason: str) -> None:
        """The cluster has reported the end of the hold."""
        self.has_ended = True
        # The cluster has one reason for both.
        if reason == "hold_ttl" and not self._leases.has_own_end(self.lease):
            reason = "session_expired"
        self.loss.report(reason)

    def check(self, now: int) -> None:
        """Raises `Lost` unless the lock is certainly held."""
        valid_until = self._leases.valid_until(self.lease)
        if valid_until is None or now >= valid_until:
            is_own = self._leases.ends_before_session(self.lease)
            self.loss.report("own_time_over" if is_own else "expired")
        if self.loss.reason is not None:
            raise Lost(self.loss.reason)
        if self.held_as.is_leaving:
            raise Lost("transferred")

    def valid_until(self) -> int:
        return self._leases.valid_until(self.lease) or 0

    def at_risk_from(self) -> int:
        return self._leases.at_risk_from(self.lease) or 0

    def request(self) -> Message:
        """What names the hold in a request."""
        return {
            "name": self.name,
            "token": self.held_as.token,
            "acquire_request_id": self.acquire,
            "tier": self.tier,
        }
