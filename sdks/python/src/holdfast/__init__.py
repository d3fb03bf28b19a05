"""Holdfast: distributed locks with fencing tokens.

import holdfast

hf = holdfast.Client("127.0.0.1:7420")
with hf.lock("order:42", wait=10) as guard:
    write(guard.fence)    # the resource refuses a write whose token is out of date
"""

from __future__ import annotations

from ._terms import CORRECTNESS, EFFICIENCY
from .aio import AsyncClient, AsyncGuard, AsyncGuardAll, AsyncLeadership
from .client import Client, Election, Guard, GuardAll, Leadership, Lock, LockAll
from .errors import (
    Busy,
    Closed,
    Deadlock,
    Died,
    FenceRefused,
    HoldfastError,
    InvalidEndpoints,
    InvalidSecurity,
    Lost,
    PermissionDenied,
    QuotaExceeded,
    Rejected,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from .watching import Event, Observation, Observed, Watch

__version__ = "0.1.0"

__all__ = [
    "CORRECTNESS",
    "EFFICIENCY",
    "AsyncClient",
    "AsyncGuard",
    "AsyncGuardAll",
    "AsyncLeadership",
    "Busy",
    "Client",
    "Closed",
    "Deadlock",
    "Died",
    "Election",
    "Event",
    "FenceRefused",
    "Guard",
    "GuardAll",
    "HoldfastError",
    "InvalidEndpoints",
    "InvalidSecurity",
    "Leadership",
    "Lock",
    "LockAll",
    "Lost",
    "Observation",
    "Observed",
    "PermissionDenied",
    "QuotaExceeded",
    "Rejected",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
    "Watch",
]
