"""Who is behind a session, for people who look at it."""

from __future__ import annotations

import os
import socket
import sys
from typing import Optional

from ._wire import Message

_TEXT_BYTES_MAX = 256
#: With a shorter one no heartbeat would be answered in time.
_LINGER_MIN = 0.1


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:_TEXT_BYTES_MAX].decode("utf-8", "ignore")


def default_owner(application: Optional[str], note: str) -> Message:
    program = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else "python")
    return {"application": _cut(application or program), "host": _cut(socket.gethostname()), "note": _cut(note)}


def settings_of(ttl: float, linger: Optional[float], owner: Message) -> Message:
    if linger is not None and linger < _LINGER_MIN:
        raise ValueError("the linger time is below 100 ms; take a longer one, or none: then it is the TTL")
    settings: Message = {"ttl_ms": int(ttl * 1000), "owner": owner}
    if linger is not None:
        settings["linger_ms"] = int(linger * 1000)
    return settings
