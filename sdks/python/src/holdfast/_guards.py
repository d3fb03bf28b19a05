"""What the guards of both clients have in common: questions that the local clock and the lease answer."""

from __future__ import annotations

import warnings
from typing import Any, Callable, List

from . import _clock
from ._core.hold import EXCLUSIVE, Hold
from ._core.requests import Entry
from ._engine import Engine
from .errors import HoldfastError, Lost

_MODES = {1: "exclusive", 2: "shared", 3: "permit"}


class HeldLocks:
    """Locks that were granted together. If one of them is lost, none gives a token any more."""

    def __init__(self, engine: Engine, holds: List[Hold]) -> None:
        self._engine = engine
        self._epoch = engine.epoch
        self._holds = holds
        self._is_released = False

    def check(self) -> None:
        """Raises `Lost` unless the lock is certainly held. It reads the clock, and asks no node."""
        if self._epoch is not self._engine.epoch:
            raise Lost("forked")
        if self._is_released:
            raise Lost("released")
        now = _clock.now()
        for hold in self._holds:
            hold.check(now)

    @property
    def is_held(self) -> bool:
        try:
            self.check()
        except Lost:
            return False
        return True

    @property
    def valid_for(self) -> float:
        """For how many seconds the lock is certainly held, as far as is known now."""
        if not self.is_held:
            return 0.0
        return max(0, min(hold.valid_until() for hold in self._holds) - _clock.now()) / 1e9

    @property
    def is_at_risk(self) -> bool:
        """Whether a third of the time is left, or less: heartbeats go unanswered, or the hold's own time runs out."""
        return not self.is_held or min(hold.at_risk_from() for hold in self._holds) <= _clock.now()

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Calls back with the reason when the lock is lost, in a thread of the library's."""
        for hold in self._holds[:1]:
            self._engine.watch(hold, callback)
        for hold in self._holds[1:]:
            self._engine.watch(hold, lambda _: None)

    def _release_entries(self) -> List[Entry]:
        """Nothing if there is nothing left to release, or another process holds it."""
        if self._is_released or self._epoch is not self._engine.epoch:
            return []
        self._is_released = True
        return [Entry("release", hold=hold) for hold in self._holds]

    def _loss_at_exit(self, error: Any) -> None:
        """Before a block is left. The body's own error is never hidden."""
        if error is None and not self._is_released:
            self.check()

    def __del__(self) -> None:
        if not getattr(self, "_is_released", True) and self._epoch is self._engine.epoch:
            names = ", ".join(hold.name for hold in self._holds)
            warnings.warn(f"the lock {names} was never released", ResourceWarning, stacklevel=2)
            for hold in self._holds:
                self._engine.drop(hold, self._epoch)


class HeldLock(HeldLocks):
    """One lock."""

    @property
    def _hold(self) -> Hold:
        return self._holds[0]

    @property
    def name(self) -> str:
        return self._hold.name

    @property
    def token(self) -> int:
        """The fencing token. Raises `Lost` once the lock may have ended."""
        self.check()
        return self._hold.held_as.token

    @property
    def fence_token(self) -> int:
        """Another name of `token`."""
        return self.token

    @property
    def fence(self) -> str:
        """The token in full form, which the protected resource checks; empty for a permit."""
        self.check()
        return self._hold.held_as.fence

    @property
    def mode(self) -> str:
        return _MODES.get(self._hold.held_as.mode, "unknown")

    @property
    def is_exclusive(self) -> bool:
        return self._hold.held_as.mode == EXCLUSIVE

    @property
    def is_best_effort(self) -> bool:
        """Whether it is of the efficiency tier, where two holders can overlap for a moment."""
        return self._hold.is_best_effort

    @property
    def since(self) -> "int | None":
        """The age to ask for the next lock of the same transaction with."""
        return self._hold.since


class HeldAll(HeldLocks):
    """Several locks."""

    @property
    def names(self) -> List[str]:
        return [hold.name for hold in self._holds]

    @property
    def tokens(self) -> List[int]:
        """The fencing tokens, in the order in which the locks were asked for."""
        self.check()
        return [hold.held_as.token for hold in self._holds]

    @property
    def fences(self) -> List[str]:
        self.check()
        return [hold.held_as.fence for hold in self._holds]

    def token_of(self, name: str) -> int:
        return dict(zip(self.names, self.tokens))[name]


def outcome_of_all(outcomes: List[Any]) -> List[str]:
    """What became of each release; the first that failed is raised."""
    for outcome in outcomes:
        if isinstance(outcome, HoldfastError):
            raise outcome
    return outcomes
