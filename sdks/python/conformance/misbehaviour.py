"""Rules of the protocol that the driver can be told to break. The library itself has no such code."""

from __future__ import annotations

from typing import Callable, Dict

from holdfast._core import lease
from holdfast._core.in_flight import InFlight
from holdfast._core.state import State


def no_margin() -> None:
    """Leases are trusted for their whole time."""
    lease.MARGIN_PERCENT = lease.SLACK = 0


def retry_new_id() -> None:
    """What had no answer when the stream broke goes out again under another id."""
    stream_broke = State.stream_broke

    def broke(state: State) -> None:
        stream_broke(state)
        state.ask_again_under_new_ids(lambda _: True)

    setattr(State, "stream_broke", broke)  # noqa: B010


def ack_early() -> None:
    """A request is acknowledged once it was sent, before its answer came."""

    def acked_through(requests: InFlight) -> int:
        unsent = [entry_id for entry_id, entry in requests.items() if entry.first_sent_at is None]
        return min(unsent) - 1 if unsent else requests.last_id

    setattr(InFlight, "acked_through", acked_through)  # noqa: B010


def forget_cancel() -> None:
    """A request whose caller is gone is not cancelled."""
    setattr(State, "stage_cancel", lambda state, target, entry: None)  # noqa: B010


MODES: Dict[str, Callable[[], None]] = {
    "no-margin": no_margin,
    "retry-new-id": retry_new_id,
    "ack-early": ack_early,
    "forget-cancel": forget_cancel,
}
