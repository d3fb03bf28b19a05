"""The requests of a session: what a program can ask, and how each looks on the wire."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._wire import Message
from .hold import Hold
from .lease import MS

#: What can stand in a queue.
WAITING_KINDS = frozenset({"acquire", "acquire_all", "convert"})
ACQUIRE_KINDS = frozenset({"acquire", "acquire_all"})


class Entry:
    """A request that has no answer yet. `kind` is the name of the operation on the wire."""

    __slots__ = (
        "answer_due",
        "call",
        "caller",
        "fields",
        "first_sent_at",
        "hold",
        "is_abandoned",
        "is_parked",
        "kind",
        "renews",
        "waits_until",
        "was_sent_before",
    )

    def __init__(
        self,
        kind: str,
        fields: Optional[Message] = None,
        hold: Optional[Hold] = None,
        caller: Any = None,
        waits_until: int = 0,
        renews: Optional[int] = None,
    ) -> None:
        self.kind = kind
        self.fields: Message = fields or {}
        self.hold = hold
        #: `None` once no caller waits for the answer.
        self.caller = caller
        self.waits_until = waits_until
        #: Under which the program knows it; 0 if the program does not.
        self.call = 0
        #: The TTL that the library keeps renewing.
        self.renews = renews
        self.is_abandoned = False
        self.is_parked = False
        #: The first sending: a retry may get the answer that was made for it.
        self.first_sent_at: Optional[int] = None
        #: An earlier stream carried it, too.
        self.was_sent_before = False
        self.answer_due: Optional[int] = None

    @property
    def is_acquire(self) -> bool:
        return self.kind in ACQUIRE_KINDS

    @property
    def is_best_effort(self) -> bool:
        """Whether the efficiency tier answers it."""
        return self.hold.is_best_effort if self.hold is not None else self.fields.get("tier") == 2

    def name_count(self) -> int:
        return max(1, len(self.fields.get("members", ())))

    def own_wait(self) -> int:
        """How long the answer may take because the request is to wait."""
        return int(self.fields.get("wait_ms", 0)) * MS if self.kind in WAITING_KINDS else 0

    def operation(self, request_id: int) -> Dict[str, Message]:
        message: Message = {"request_id": request_id}
        if self.hold is not None:
            message.update(self.hold.request())
            if self.kind == "transfer":
                del message["acquire_request_id"]
        message.update(self.fields)
        return {self.kind: message}

    def is_worth_retrying(self) -> bool:
        """Whether a node that sent it back is to get it again."""
        if self.kind in WAITING_KINDS:
            return not self.is_abandoned
        if self.kind in ("renew", "proclaim", "status"):
            return self.caller is not None
        return True
