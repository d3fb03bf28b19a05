"""Rules of the protocol that the driver can be told to break. The library itself has no such code."""

from __future__ import annotations

import ssl
from typing import Any, Callable, Dict

from holdfast import _clock, _security, watching
from holdfast._core import answers, lease
from holdfast._core.denials import Denials
from holdfast._core.in_flight import InFlight
from holdfast._core.lease import Leases
from holdfast._core.state import State, Welcomed
from holdfast._security import Security


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


def no_clock() -> None:
    """Tokens are given without a look at the clock."""
    day = 86_400_000 * lease.MS
    setattr(Leases, "valid_until", lambda *_: _clock.now() + day)  # noqa: B010


def chatty() -> None:
    """Heartbeats go out more often than they have to."""
    setattr(Leases, "heartbeat_due", lambda leases: leases._last_answered_sent_at + leases.span // 60)  # noqa: B010


def count_failures() -> None:
    """A refused request keeps the session alive."""
    on_failure = answers._on_failure

    def failed(state: State, now: int, request_id: int, failure: Any) -> Any:
        if state.leases is not None:
            state.leases.answered(now, 0)
        return on_failure(state, now, request_id, failure)

    setattr(answers, "_on_failure", failed)  # noqa: B010
    setattr(Denials, "note", lambda *_: False)  # noqa: B010


def forget_position() -> None:
    """A stream that broke begins again without its position."""
    opening = watching._Feed._open

    def opened(feed: Any, request: Any) -> None:
        asked = {**request, "after": None}
        if "prefix" in request:
            asked.update(after_groups=None, without_snapshot=True)
        opening(feed, asked)

    setattr(watching._Feed, "_open", opened)  # noqa: B010


def ignore_map() -> None:
    """The library knows one group, as older ones do."""
    setattr(State, "learn_map", lambda state, _: state.outputs.append(Welcomed(None)))  # noqa: B010


def trust_any_node() -> None:
    """The certificate of a node is not checked."""

    def context(security: Any) -> ssl.SSLContext:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        return trusting

    setattr(Security, "_context", context)  # noqa: B010
    setattr(Security, "_cluster", lambda *_: {"any"})  # noqa: B010
    setattr(_security, "_names", lambda _: [("any", "node/1")])  # noqa: B010


_options: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {}


def client_options(options: Dict[str, Any]) -> Dict[str, Any]:
    """The options of a client, changed if that is how the driver misbehaves."""
    for change in _options.values():
        options = change(options)
    return options


def ignore_members() -> None:
    """Only the configured endpoints are used."""
    _options["discover"] = lambda options: {**options, "discover": False}


def credential_once() -> None:
    """The file with the token is read once."""

    def read(options: Dict[str, Any]) -> Dict[str, Any]:
        if "auth_file" not in options:
            return options
        options = dict(options)
        with open(options.pop("auth_file"), encoding="utf-8") as file:
            options["credential"] = file.read()
        return options

    _options["credential"] = read


MODES: Dict[str, Callable[[], None]] = {
    "no-margin": no_margin,
    "retry-new-id": retry_new_id,
    "ack-early": ack_early,
    "forget-cancel": forget_cancel,
    "no-clock": no_clock,
    "chatty": chatty,
    "count-failures": count_failures,
    "forget-position": forget_position,
    "ignore-map": ignore_map,
    "trust-any-node": trust_any_node,
    "ignore-members": ignore_members,
    "credential-once": credential_once,
}
