"""APScheduler 3 in several processes, of which one runs the jobs.

    scheduler = BackgroundScheduler()
    scheduler.add_job(report, "cron", hour=3)
    with holdfast.apscheduler.Elected(scheduler, hf, "nightly"):
        serve()

All processes have the same jobs. The scheduler of the elected process runs; the others pause. When the leader stops or
loses its lock, its scheduler pauses, and that of another process goes on.

A job that is due during the change is run by the new leader if `misfire_grace_time` allows; it may have begun at the
old one, too. A job that must not write late checks the fence: see `Elected.fence`.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Optional

from ._core.requests import Entry
from ._engine import Call
from ._terms import WAIT_MAX, Metadata, Terms, next_actor
from .client import Client, Leadership
from .errors import Closed, HoldfastError, Lost

__all__ = ["Elected"]

_log = logging.getLogger("holdfast")

#: After an error, such as no node in reach.
_PAUSE = 1.0


class Elected:
    """A scheduler that runs while this process leads the election `name`."""

    def __init__(self, scheduler: Any, client: Client, name: str, value: Metadata = b"") -> None:
        self._scheduler, self._client = scheduler, client
        self._name, self._value = name, value
        self._switching = threading.Lock()
        self._stops = threading.Event()
        self._changed = threading.Event()
        self._leadership: Optional[Leadership] = None
        self._thread = threading.Thread(target=self._run, name="holdfast-apscheduler", daemon=True)

    @property
    def is_leading(self) -> bool:
        leadership = self._leadership
        return leadership is not None and leadership.is_held

    @property
    def fence(self) -> str:
        """The fencing token in full form, for jobs. Raises `Lost` if this process does not lead."""
        leadership = self._leadership
        if leadership is None:
            raise Lost("ended")
        return leadership.fence

    def start(self) -> "Elected":
        """Starts the scheduler, paused, and stands for election."""
        self._scheduler.start(paused=True)
        self._thread.start()
        return self

    def stop(self, wait: bool = True) -> None:
        """Ends the scheduler, and steps down. With `wait`, the jobs that run end first, under the lock."""
        with self._switching:
            self._stops.set()
        self._scheduler.shutdown(wait=wait)
        self._changed.set()
        self._thread.join()

    def __enter__(self) -> "Elected":
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stops.is_set():
            try:
                leadership = self._campaign()
            except Closed:
                return
            except HoldfastError as error:
                _log.warning("the election %s failed: %s", self._name, error)
                self._stops.wait(_PAUSE)
                continue
            if leadership is not None:
                self._lead(leadership)

    def _campaign(self) -> Optional[Leadership]:
        """`None` if it is to stop."""
        terms = Terms(wait=WAIT_MAX, metadata=self._value)
        entry: Entry = terms.acquire(self._name, 1, 0, False, next_actor())
        try:
            held = self._client._sessions.acquire(entry, terms.wait, new_call=lambda: _Campaign(self))
        except _Stopped:
            return None
        return Leadership(*held)

    def _lead(self, leadership: Leadership) -> None:
        self._changed.clear()
        self._leadership = leadership
        leadership.on_lost(lambda _: self._changed.set())
        try:
            if leadership.is_held and self._switch(self._scheduler.resume):
                self._changed.wait()
        finally:
            self._leadership = None
            self._switch(self._scheduler.pause)
            try:
                leadership.release()
            except HoldfastError as error:
                _log.warning("the election %s was not left: %s", self._name, error)

    def _switch(self, switch: Callable[[], None]) -> bool:
        """False if the scheduler has ended, or is about to."""
        with self._switching:
            if self._stops.is_set():
                return False
            switch()
            return True


class _Stopped(Exception):
    pass


class _Campaign(Call):
    """A call whose caller also stops waiting when the scheduler is to end."""

    __slots__ = ("_elected",)

    def __init__(self, elected: Elected) -> None:
        super().__init__(on_done=lambda _: elected._changed.set())
        self._elected = elected
        elected._changed.clear()

    def await_outcome(self) -> Any:
        elected = self._elected
        # The loss of the leadership before can wake it, too.
        while self._done.locked() and not elected._stops.is_set():
            elected._changed.wait()
            elected._changed.clear()
        if self._elected._stops.is_set():
            raise _Stopped
        return self.outcome
