"""The library's answers to the vectors of `crates/conformance/vectors`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from holdfast._core.endpoints import Endpoints
from holdfast._core.groups import slot_of
from holdfast._core.lease import MS, Leases
from holdfast.errors import FenceRefused, InvalidEndpoints
from holdfast.fence import HighWaterMark, admit

Case = Dict[str, Any]
_HOLDS = 3


def _lease(case: Case) -> Case:
    opened = case["opened"]
    leases = Leases(opened["sent_at"], opened["logical_ms"], case["ttl_ms"] * MS, case["linger_ms"] * MS)
    for step in case["steps"]:
        hold, renewal, deadline = step.get("hold", 0), step.get("renewal", 0), step.get("deadline_ms")
        does = step["do"]
        if does in ("answered", "answered_best_effort"):
            getattr(leases, does)(step["sent_at"], step["logical_ms"])
        elif does in ("granted", "granted_best_effort"):
            leases.granted(hold, deadline, does == "granted_best_effort")
        elif does == "renewal_sent":
            ttl_ms = step["ttl_ms"]
            leases.renewal_sent(hold, renewal, step["sent_at"], None if ttl_ms is None else ttl_ms * MS)
        elif does == "renewed":
            leases.renewed(hold, renewal, deadline)
        elif does == "renewal_refused":
            leases.renewal_refused(hold, renewal)
        elif does == "ended":
            leases.ended(hold)
        else:
            getattr(leases, does)()
    holds = {}
    for hold in range(_HOLDS):
        if leases.valid_until(hold) is not None:
            holds[str(hold)] = {
                "valid_until": leases.valid_until(hold),
                "at_risk_from": leases.at_risk_from(hold),
                "ends_before_session": leases.ends_before_session(hold),
            }
    return {
        "session_valid_until": leases.session_valid_until(),
        "heartbeat_due": leases.heartbeat_due(),
        "holds": holds,
    }


def _fence(case: Case) -> Case:
    try:
        claim = admit(case["fence"], case["resource"], accepts_best_effort=case["accepts"] == "best_effort")
        HighWaterMark(int(case["mark"])).raise_to(claim)
    except FenceRefused as refused:
        return {"error": refused.kind}
    return {"token": str(claim.token)}


def _endpoints(case: Case) -> Case:
    try:
        return {"addresses": Endpoints(case["text"]).addresses}
    except InvalidEndpoints as invalid:
        if invalid.kind == "empty":
            return {"error": "empty"}
        return {"error": invalid.kind, "part": invalid.part}


def _slots(case: Case) -> Case:
    return {"slot": slot_of(case["name"])}


_KINDS: Dict[str, Callable[[Case], Case]] = {
    "lease": _lease,
    "fence": _fence,
    "endpoints": _endpoints,
    "slots": _slots,
}


def answer(kind: str, case: Case) -> Case:
    return _KINDS[kind](case)
