"""On which terms a lock is asked for: what the blocking and the asyncio client have in common."""

from __future__ import annotations

import inspect
import itertools
import string
import threading
import unicodedata
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from ._core.hold import EXCLUSIVE, PERMIT, SHARED
from ._core.lease import MS
from ._core.requests import Entry
from ._messages import POLICIES, TIERS
from ._wire import Message
from .errors import Rejected

_NAME_BYTES_MAX = 512
_METADATA_BYTES_MAX = 1024
#: The tiers of locks, for `tier=`.
CORRECTNESS = "correctness"
EFFICIENCY = "efficiency"
#: The longest that a cluster lets a request wait.
WAIT_MAX = 24 * 60 * 60.0

_actors = itertools.count(1)
_of_thread = threading.local()

Metadata = Union[bytes, str]


def next_actor() -> int:
    return next(_actors)


def actor_of_thread() -> int:
    """Each thread is an actor of its own: two threads of one process exclude each other."""
    actor: Optional[int] = getattr(_of_thread, "actor", None)
    if actor is None:
        actor = _of_thread.actor = next_actor()
    return actor


class Terms:
    """The options of `lock` and `lock_all`."""

    def __init__(
        self,
        *,
        wait: float = 0.0,
        ttl: Optional[float] = None,
        auto_renew: bool = True,
        max_hold: Optional[float] = None,
        lock_delay: Optional[float] = None,
        metadata: Metadata = b"",
        actor: Optional[int] = None,
        policy: str = "detect",
        since: Optional[int] = None,
        preemptible: bool = False,
        tier: str = CORRECTNESS,
        traceparent: str = "",
        on_queued: Optional[Callable[[int], None]] = None,
    ) -> None:
        self.wait = min(wait, WAIT_MAX)
        self.actor = actor
        self.on_queued = on_queued
        self.renews = int(ttl * 1000) * MS if ttl is not None and auto_renew else None
        self._fields: Message = {
            "wait_ms": int(self.wait * 1000),
            "ttl_ms": _ms(ttl),
            "max_hold_ms": _ms(max_hold),
            "lock_delay_ms": _ms(lock_delay),
            "metadata": _metadata(metadata),
            "policy": _choice("policy", POLICIES, policy),
            "since_ms": since,
            "preemptible": preemptible or None,
            "tier": _choice("tier", TIERS, tier),
            "traceparent": traceparent or None,
        }

    def acquire(self, name: str, mode: int, permits: int, reentrant: bool, actor: int) -> Entry:
        check_name(name)
        fields = {"name": name, "mode": mode, **self._fields, "actor": self._actor(actor)}
        if mode == PERMIT:
            fields["permits"] = permits
        if reentrant:
            fields["reentrant"] = True
        return Entry("acquire", fields, renews=self.renews)

    def acquire_all(self, names: Iterable[str], actor: int) -> Entry:
        members: List[Message] = []
        for name in names:
            check_name(name)
            members.append({"name": name, "mode": EXCLUSIVE})
        fields = {"members": members, **self._fields, "actor": self._actor(actor)}
        return Entry("acquire_all", fields, renews=self.renews)

    def _actor(self, actor: int) -> int:
        return actor if self.actor is None else self.actor


def mode_of(shared: bool, permits: Optional[int]) -> int:
    if shared and permits is not None:
        raise ValueError("a lock is shared, or one of several permits, and not both")
    return SHARED if shared else EXCLUSIVE if permits is None else PERMIT


def _ms(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else int(seconds * 1000)


def _metadata(metadata: Metadata) -> Optional[bytes]:
    content = metadata.encode("utf-8") if isinstance(metadata, str) else bytes(metadata)
    if len(content) > _METADATA_BYTES_MAX:
        raise Rejected("invalid_metadata", f"metadata has at most {_METADATA_BYTES_MAX} bytes; send less")
    return content or None


def metadata_bytes(metadata: Metadata) -> bytes:
    return _metadata(metadata) or b""


def _choice(what: str, choices: Dict[str, int], chosen: str) -> Optional[int]:
    if chosen not in choices:
        raise ValueError(f"{what} is one of {', '.join(choices)}, and not {chosen!r}")
    return choices[chosen]


def check_name(name: str) -> None:
    length = len(name.encode("utf-8", "surrogatepass"))
    is_clean = not any(unicodedata.category(character) in ("Cc", "Cs") for character in name)
    if not 1 <= length <= _NAME_BYTES_MAX or not is_clean:
        raise Rejected(
            "invalid_name", f"a lock name has 1 to {_NAME_BYTES_MAX} bytes and no control characters; choose another"
        )


def name_from(template: str, function: Callable[..., Any]) -> Callable[..., str]:
    """Fills the arguments of a call into the name of a lock: `report:{day}`."""
    signature = inspect.signature(function)
    wanted = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    for field in wanted:
        if field.split(".")[0].split("[")[0] not in signature.parameters:
            raise ValueError(f"{function.__qualname__} has no argument for {{{field}}} of {template!r}")

    def name(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.format(**bound.arguments)

    return name
