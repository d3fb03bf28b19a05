"""The clock of systems without CLOCK_BOOTTIME."""

from __future__ import annotations

from holdfast._clock import ComparedClock

SECOND = 1_000_000_000


class Clocks:
    def __init__(self) -> None:
        self.monotonic = 50 * SECOND
        self.wall = 1_000 * SECOND

    def passes(self, seconds: int) -> None:
        self.monotonic += seconds * SECOND
        self.wall += seconds * SECOND


def test_a_sleep_of_the_machine_counts() -> None:
    clocks = Clocks()
    clock = ComparedClock(lambda: clocks.monotonic, lambda: clocks.wall)
    began = clock.now()
    clocks.passes(3)
    clocks.wall += 60 * SECOND
    assert clock.now() - began == 63 * SECOND


def test_a_wall_clock_that_is_set_forward_and_back_never_makes_time_late() -> None:
    clocks = Clocks()
    clock = ComparedClock(lambda: clocks.monotonic, lambda: clocks.wall)
    began, true = clock.now(), 0
    for change in (3600, -3600, -7200, 7200, 0):
        clocks.wall += change * SECOND
        before = clock.now()
        clocks.passes(5)
        true += 5 * SECOND
        assert clock.now() - before == 5 * SECOND
        assert clock.now() - began >= true
