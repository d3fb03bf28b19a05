"""Fencing in Redis: one script checks the token and runs one command.

    key = holdfast.redis.FencedKey("order:42")
    key.run(client, guard, "SET", key.data, "paid")

The mark lies beside the data, in the same hash slot. It must be as durable as the data: use `appendonly yes` and
`appendfsync always` where a late write is damage, and never evict marks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Protocol, Tuple, Union

from .fence import Claim, admit, stale

__all__ = ["SCRIPT", "FencedKey"]

SCRIPT = Path(__file__).with_name("fence.lua").read_text(encoding="utf-8")
_MARK_PREFIX = "holdfast:mark:"


class _Fenced(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def fence(self) -> str: ...


class FencedKey:
    """The key of the data, and beside it that of its mark. `resource` is the name of the lock; by default the key."""

    def __init__(self, data: str, resource: Optional[str] = None) -> None:
        self.data = data
        self.resource = data if resource is None else resource
        _, brace, after = data.partition("{")
        tag, closing, _ = after.partition("}")
        if brace and closing and tag:
            # What stands before it has no brace, so the first tag of the mark's key is that of the data's.
            self.mark = f"{_MARK_PREFIX}{data}"
        elif "{" in data or "}" in data:
            raise ValueError(f"the key {data!r} has braces that are no hash tag: write {{tag}}rest, or leave them out")
        else:
            self.mark = f"{_MARK_PREFIX}{{{data}}}"

    def run(self, client: Any, guard: Union[_Fenced, str], *command: Any, accepts_best_effort: bool = False) -> Any:
        """Runs one command that touches this key, and others of the same hash tag, if the token passes.

        Raises `FenceRefused` otherwise.
        """
        claim, arguments = self._call(guard, command, accepts_best_effort)
        return _answer(claim, client.register_script(SCRIPT)(**arguments))

    async def run_async(
        self, client: Any, guard: Union[_Fenced, str], *command: Any, accepts_best_effort: bool = False
    ) -> Any:
        """As `run`, for `redis.asyncio`."""
        claim, arguments = self._call(guard, command, accepts_best_effort)
        return _answer(claim, await client.register_script(SCRIPT)(**arguments))

    def _call(
        self, guard: Union[_Fenced, str], command: Tuple[Any, ...], accepts_best_effort: bool
    ) -> Tuple[Claim, Any]:
        fence = guard if isinstance(guard, str) else guard.fence
        claim = admit(fence, self.resource, accepts_best_effort=accepts_best_effort)
        return claim, {"keys": [self.mark, self.data], "args": [claim.token, *command]}


def _answer(claim: Claim, told: Any) -> Any:
    passed, answer = told
    if not passed:
        raise stale(claim, int(answer))
    return answer
