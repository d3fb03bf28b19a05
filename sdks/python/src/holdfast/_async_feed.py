"""Watches and observations for asyncio: a thread reads, and the event loop takes what it has read."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, AsyncIterator, Deque, Generic, Optional, TypeVar, Union

from .watching import Observation, Watch

T = TypeVar("T")

#: How many items are read ahead.
_AHEAD = 256


class AsyncFeed(AsyncIterator[T], Generic[T]):
    """An iterator for `async for`. Leaving `async with`, or `close()`, ends it."""

    def __init__(self, source: Union[Watch, Observation]) -> None:
        self._source = source
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        self._room = threading.Semaphore(_AHEAD)
        self._items: Deque[Any] = deque()
        self._arrived: Optional[asyncio.Event] = None
        self._is_closed = False

    def __aiter__(self) -> "AsyncFeed[T]":
        return self

    async def __anext__(self) -> T:
        if self._loop is None:
            self._loop, self._arrived = asyncio.get_running_loop(), asyncio.Event()
        assert self._arrived is not None
        while not self._items:
            if self._is_closed:
                raise StopAsyncIteration
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="holdfast-watch", daemon=True)
                self._thread.start()
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        self._room.release()
        if isinstance(item, StopIteration):
            raise StopAsyncIteration
        if isinstance(item, BaseException):
            raise item
        return item  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Ends it, also while another task waits for the next item."""
        self._is_closed = True
        self._source.close()
        self._room.release()
        if self._arrived is not None:
            self._arrived.set()

    async def __aenter__(self) -> "AsyncFeed[T]":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def _read(self) -> None:
        while not self._is_closed:
            try:
                item: Any = next(self._source)
            except (Exception, StopIteration) as error:
                item = error
            self._room.acquire()
            if not self._hand_over(item) or isinstance(item, BaseException):
                return

    def _hand_over(self, item: Any) -> bool:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._put, item)
        except RuntimeError:
            # The loop is closed, and with it the caller is gone.
            self._source.close()
            return False
        return True

    def _put(self, item: Any) -> None:
        assert self._arrived is not None
        if isinstance(item, BaseException):
            # The next call reads on, with another thread.
            self._thread = None
        self._items.append(item)
        self._arrived.set()
