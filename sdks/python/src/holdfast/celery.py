"""Celery tasks of which one runs at a time, over all workers.

    app.conf.holdfast = {"endpoints": "127.0.0.1:7420"}

    @app.task(base=holdfast.celery.SingletonTask, lock="report:{day}")
    def report(day):
        write(report.guard.fence)

The lock is taken when a worker runs the task, and held while it runs. Options of `app.task`:

- `lock`: its name, in which arguments of the task can stand. By default `celery:` and the name of the task.
- `on_busy`: what becomes of a task while another one runs. `skip`, the default, ignores it; `retry` lets Celery try it
  again later (`default_retry_delay`, `max_retries`); `raise` lets it fail with `Busy`.
- `lock_wait`: for how many seconds the worker waits for the lock first. By default it does not wait.
- `lock_options`: further options of `holdfast.Client.lock`, such as `max_hold`.

A task that lost its lock while it ran fails with `Lost`. `app.conf.holdfast` has the options of `holdfast.Client`. Each
process of a worker has a session of its own.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional

from celery import Task
from celery.exceptions import Ignore

from ._terms import name_from
from .client import Client, Guard
from .errors import Busy, TimedOut

__all__ = ["SingletonTask", "client_of"]

_clients_lock = threading.Lock()


def client_of(app: Any) -> Client:
    """The client of this app, which all its tasks in this process share."""
    with _clients_lock:
        client: Optional[Client] = getattr(app, "_holdfast_client", None)
        if client is None:
            options: Dict[str, Any] = dict(app.conf.get("holdfast") or {})
            options.setdefault("application", f"celery {app.main}" if app.main else "celery")
            client = app._holdfast_client = Client(**options)
        return client


class _Running(threading.local):
    """The guards of the tasks that this thread runs: a task can call another one."""

    def __init__(self) -> None:
        self.guards: List[Guard] = []


class SingletonTask(Task):  # type: ignore[misc]
    """A task of which one runs at a time."""

    abstract = True
    lock: Optional[str] = None
    on_busy = "skip"
    lock_wait = 0.0
    lock_options: Optional[Dict[str, Any]] = None
    _running = _Running()
    _name_of: Optional[Callable[..., str]] = None

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Mistakes are told when the task is defined."""
        super().on_bound(app)
        if cls.on_busy not in ("skip", "retry", "raise"):
            raise ValueError(f"on_busy is 'skip', 'retry' or 'raise', and not {cls.on_busy!r}")

    @property
    def guard(self) -> Guard:
        """The guard of the lock under which this task runs: for its token and its fence."""
        if not self._running.guards:
            raise RuntimeError("the task does not run: it has a guard only within its own call")
        return self._running.guards[-1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        options = {"wait": self.lock_wait, **(self.lock_options or {})}
        try:
            guard = client_of(self.app).lock(self._lock_name(*args, **kwargs), **options).acquire()
        except (Busy, TimedOut) as error:
            if self.on_busy == "retry":
                raise self.retry(exc=error) from error
            if self.on_busy == "skip":
                raise Ignore() from error
            raise
        with guard:
            self._running.guards.append(guard)
            try:
                return super().__call__(*args, **kwargs)
            finally:
                self._running.guards.pop()

    def _lock_name(self, *args: Any, **kwargs: Any) -> str:
        if self._name_of is None:
            self._name_of = name_from(self.lock or f"celery:{self.name}", self.run)
        return self._name_of(*args, **kwargs)
