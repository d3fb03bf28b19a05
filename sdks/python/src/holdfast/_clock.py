"""The clock that leases are counted on, in nanoseconds. It runs on while the machine sleeps."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):
    _BOOTTIME = time.CLOCK_BOOTTIME

    def now() -> int:
        return time.clock_gettime_ns(_BOOTTIME)

else:
    _MONOTONIC_START = time.monotonic_ns()
    _WALL_START = time.time_ns()
    _START = 1_000_000_000

    def now() -> int:
        """The larger of two clocks: the monotonic one may stand still during sleep. Too late a time is safe."""
        monotonic = time.monotonic_ns() - _MONOTONIC_START
        return _START + max(monotonic, time.time_ns() - _WALL_START)
