"""The rule by which a resource lets a write pass: for resources that check tokens in Python.

The check must be one step with the write that it protects, and the mark must be as durable as the data. For
PostgreSQL and Redis, use `holdfast.postgres` and `holdfast.redis`.
"""

from __future__ import annotations

import hashlib
import re
import threading
from typing import NamedTuple, Optional

from .errors import FenceRefused

_FENCE = re.compile(r"hf1\.([LB])\.([0-9a-f]{16})\.(0|[1-9][0-9]{0,18})\Z")
_TOKEN_LIMIT = 1 << 63


class Claim(NamedTuple):
    """A token that belongs to the resource. Whether it is out of date is not known yet."""

    resource: str
    token: int


def name_hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:16]


def admit(fence: Optional[str], resource: str, *, accepts_best_effort: bool = False) -> Claim:
    """All that can be said of a token without knowing any other. Raises `FenceRefused`.

    `resource` is the name that the lock has. It must come from the resource itself, not from the caller.
    """
    if fence is None:
        raise FenceRefused("missing", f"the write to {resource!r} came without a fencing token: send `guard.fence`")
    if fence == "":
        raise FenceRefused(
            "not_fenceable", f"the fencing token for {resource!r} is empty, as that of a permit is: lock exclusively"
        )
    match = _FENCE.match(fence)
    token = -1 if match is None else int(match[3])
    if match is None or token >= _TOKEN_LIMIT:
        raise FenceRefused(
            "malformed", f"the fencing token for {resource!r} cannot be read: send `guard.fence` as it was granted"
        )
    if token == 0:
        raise FenceRefused("zero", f"the fencing token for {resource!r} has the number 0, which is never granted")
    if match[2] != name_hash(resource):
        raise FenceRefused(
            "other_resource", f"the fencing token belongs to another resource than {resource!r}: take that lock"
        )
    if (match[1] == "B") != accepts_best_effort:
        if accepts_best_effort:
            raise FenceRefused("not_best_effort", f"{resource!r} takes tokens of the efficiency tier only")
        raise FenceRefused(
            "best_effort", f"{resource!r} takes no best-effort token: take the lock in the correctness tier"
        )
    return Claim(resource, token)


def stale(claim: Claim, highest: int) -> FenceRefused:
    return FenceRefused(
        "stale",
        f"token {claim.token} for {claim.resource!r} is out of date, {highest} has been seen: the lock was lost."
        " Do not send this write again: take the lock again, and begin with reading",
        highest,
    )


class HighWaterMark:
    """The highest token that a resource in this process has seen. Threads can share it."""

    def __init__(self, token: int = 0) -> None:
        self.token = token
        self._lock = threading.Lock()

    def raise_to(self, claim: Claim) -> None:
        """Lets the claim pass and remembers it, or raises `FenceRefused`."""
        with self._lock:
            if claim.token < self.token:
                raise stale(claim, self.token)
            self.token = claim.token
