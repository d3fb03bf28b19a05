"""The clock that leases are counted on, in nanoseconds. It runs on while the machine sleeps."""

from __future__ import annotations

import threading
import time
from typing import Callable


class ComparedClock:
    """Monotonic time, and what the wall clock advanced beyond it since they were last compared.

    The monotonic clock may stand still while the machine sleeps. What was added stays: a wall clock that is set
    forward makes leases end early, which is safe, and one that is set back changes nothing.
    """

    _START = 1_000_000_000
    # A reading of both clocks that took longer does not show that the wall clock was set back.
    _SHARP = 1_000_000

    def __init__(self, monotonic: Callable[[], int], wall: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()
        self._began = monotonic()
        self._ahead = wall() - self._began
        self._missed = 0

    def now(self) -> int:
        with self._lock:
            before = self._monotonic()
            wall = self._wall()
            # Read last: a pause in between makes the wall clock look late, not early.
            monotonic = self._monotonic()
            ahead = wall - monotonic
            if ahead > self._ahead:
                self._missed += ahead - self._ahead
                self._ahead = ahead
            elif ahead < self._ahead - 2 * self._SHARP and monotonic - before < self._SHARP:
                self._ahead = ahead
            return self._START + monotonic - self._began + self._missed


if hasattr(time, "CLOCK_BOOTTIME"):
    _BOOTTIME = time.CLOCK_BOOTTIME

    def now() -> int:
        return time.clock_gettime_ns(_BOOTTIME)

else:
    now = ComparedClock(time.monotonic_ns, time.time_ns).now
