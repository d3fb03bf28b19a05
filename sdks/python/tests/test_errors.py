"""Errors travel between processes: multiprocessing pickles them, and Celery makes them again from their arguments."""

from __future__ import annotations

import pickle
from typing import List

import pytest

from holdfast import errors

ALL: List[errors.HoldfastError] = [
    errors.Busy(),
    errors.TimedOut(),
    errors.Deadlock([{"session": "1", "actor": 2, "waits_for": "a"}]),
    errors.Died(17),
    errors.Lost("expired"),
    errors.Rejected("frozen", "the lock is frozen", True),
    errors.Unauthenticated("unauthenticated", "who are you"),
    errors.PermissionDenied("permission_denied", "no"),
    errors.QuotaExceeded("rate_limited", "too many requests", False, 0.5),
    errors.Unavailable("no node", True),
    errors.Closed(),
    errors.InvalidEndpoints("not_host_and_port", "a"),
    errors.InvalidSecurity("ca= is missing"),
    errors.FenceRefused("stale", "a later holder was there", 9),
]


def test_all_kinds_are_tried() -> None:
    assert {type(error).__name__ for error in ALL} == set(errors.__all__) - {"HoldfastError"}


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_an_error_survives_another_process(error: errors.HoldfastError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), type(error)(*error.args)):
        assert type(other) is type(error)
        assert str(other) == str(error) and str(error)
        assert vars(other) == vars(error)
