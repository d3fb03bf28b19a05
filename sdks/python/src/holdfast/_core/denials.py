"""When a client that the nodes deny gives its session up.

One denial proves little. A node that does not lead may not know the newest credentials yet. A program that renews its
credential may be late by a moment. So a client gives its session up only when

- the latest answer of each known node, if it gave one, is a denial,
- at least one of these denials is final, which is what the leader's is,
- and denials have gone on for a third of the TTL, at most 5 s, without a node that served the session.

An answer that is older than that does not count: the node may say something else by now.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from .._wire import Message
from . import answers
from .lease import MS

#: Long enough to replace a credential that has ended.
_PATIENCE_MAX = 5_000 * MS


class Denials:
    def __init__(self, ttl: int) -> None:
        self._patience = min(_PATIENCE_MAX, ttl // 3)
        #: The latest answer of each known node: when it came, whether it is a denial, and whether it is final.
        self._answers: Dict[str, Tuple[int, bool, bool]] = {}
        #: When the first of the denials came that have gone on since.
        self._since: Optional[int] = None

    def clear(self) -> None:
        """A node serves the session, or the session has ended."""
        self._answers.clear()
        self._since = None

    def note(self, now: int, address: str, failure: Message, known: List[str]) -> bool:
        """A node has not let the client resume. True if the client has to give its session up."""
        oldest = now - self._patience
        latest = self._answers.items()
        self._answers = {node: answer for node, answer in latest if answer[0] >= oldest and node in known}
        if not self._has_denial():
            self._since = None
        is_denial = answers.is_denial(failure)
        # A connection that broke is no answer of a node.
        if failure.get("reason", 0) != 0 and address in known:
            self._answers[address] = (now, is_denial, not failure.get("retryable", False))
        if not self._has_denial():
            self._since = None
            return False
        if self._since is None:
            self._since = now
        counted = self._answers.values()
        return (
            is_denial
            and all(denies for _, denies, _ in counted)
            and any(is_final for _, _, is_final in counted)
            and now - self._since >= self._patience
        )

    def _has_denial(self) -> bool:
        return any(denies for _, denies, _ in self._answers.values())
