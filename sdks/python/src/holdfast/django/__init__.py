"""Locks in a Django project.

    # settings.py
    INSTALLED_APPS = [..., "holdfast.django"]
    HOLDFAST = {"endpoints": "127.0.0.1:7420"}     # the options of holdfast.Client

    from holdfast.django import client, locked

    @locked("invoice:{pk}", wait=5)
    def send_invoice(request, pk): ...

    with client().lock("report"): ...

`python manage.py locked migrate` runs another command while it holds a lock, so that of several deployments one
migrates at a time.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Dict, Optional, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ..client import Client

__all__ = ["client", "locked"]

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.Lock()
_client: Optional[Client] = None


def client() -> Client:
    """The client of this project, as `HOLDFAST` in its settings says. All threads of a process share it."""
    global _client
    with _lock:
        if _client is None:
            options: Dict[str, Any] = dict(getattr(settings, "HOLDFAST", {}))
            options.setdefault("application", "django")
            try:
                _client = Client(**options)
            except TypeError as error:
                raise ImproperlyConfigured(
                    f"HOLDFAST has an option that holdfast.Client does not know: {error}"
                ) from error
        return _client


def locked(name: str, *, on_busy: str = "raise", **options: Any) -> Callable[[F], F]:
    """As `holdfast.Client.locked`, with the client of the project: for views, functions, and `handle` of commands."""

    def decorate(function: F) -> F:
        decorated: Optional[Callable[..., Any]] = None

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The settings may not be there yet when the function is defined.
            nonlocal decorated
            if decorated is None:
                decorated = client().locked(name, on_busy=on_busy, **options)(function)
            return decorated(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
