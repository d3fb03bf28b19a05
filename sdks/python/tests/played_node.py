"""A node that the test plays: it takes connections of clients, and answers what they ask."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from holdfast._wire import FRAME, GREETING, Message, Pieces, decode, encode, piece

_PATIENCE = 10.0
TTL_MS = 30_000
_WRONG_GROUP = 103
Operation = Tuple[str, Message]


def route(group: int, leader: str, first: int, count: int) -> Message:
    return {"group": group, "leader": leader, "slots": [{"first": first, "count": count}]}


class Stream:
    """A connection of a client, after its hello was answered."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(_PATIENCE)
        self._pieces = Pieces()
        self._frames: Deque[Message] = deque()
        self._operations: Deque[Operation] = deque()
        greeting = b""
        while len(greeting) < len(GREETING):
            greeting += connected.recv(len(GREETING) - len(greeting))
        assert greeting == GREETING
        connected.sendall(GREETING)
        self.hello = self.next_operation()

    def next_frame(self) -> Optional[Message]:
        """`None` at the end of the connection."""
        while not self._frames:
            data = self._socket.recv(65536)
            if not data:
                return None
            self._pieces.feed(data)
            self._frames.extend(
                decode("ClientFrame", content) for kind, content in self._pieces.take() if kind == FRAME
            )
        return self._frames.popleft()

    def next_frame_within(self, seconds: float) -> Optional[Message]:
        """Raises `socket.timeout` if the client says nothing for so long."""
        self._socket.settimeout(seconds)
        try:
            return self.next_frame()
        finally:
            self._socket.settimeout(_PATIENCE)

    def next_operation(self) -> Operation:
        while not self._operations:
            frame = self.next_frame()
            assert frame is not None, "the client left"
            self._operations.extend((kind, it) for each in frame.get("operations", []) for kind, it in each.items())
        return self._operations.popleft()

    def next_of(self, kind: str) -> Message:
        asked, operation = self.next_operation()
        assert asked == kind, (asked, operation)
        return operation

    def answer(self, operation: Message, kind: str, **fields: Any) -> None:
        if kind != "failure":
            fields.setdefault("logical_time_ms", 1_000)
        self.send(answers=[{"request_id": operation["request_id"], kind: fields}])

    def grant(self, operation: Message, token: int) -> None:
        granted = {"name": operation["name"], "token": token, "guarantee": 1, "mode": 1}
        self.answer(operation, "acquire", granted=granted)

    def refuse(self, operation: Message, map_epoch: int) -> None:
        self.refuse_all([operation], map_epoch)

    def refuse_all(self, operations: List[Message], map_epoch: int) -> None:
        """In one frame."""
        failure = {"reason": _WRONG_GROUP, "message": "elsewhere", "map_epoch": map_epoch}
        self.send(answers=[{"request_id": it["request_id"], "failure": failure} for it in operations])

    def send(self, **frame: Any) -> None:
        self._socket.sendall(piece(FRAME, encode("ServerFrame", frame)))

    def close(self) -> None:
        self._socket.close()


class PlayedNode:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_PATIENCE)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._streams: List[Stream] = []

    def accept(self, **welcome: Any) -> Stream:
        """The next stream, whose hello is answered with this."""
        return self.welcome(self.take(), **welcome)

    def take(self) -> Stream:
        """The next stream, whose hello is not answered."""
        stream = Stream(self._listener.accept()[0])
        self._streams.append(stream)
        return stream

    def welcome(self, stream: Stream, **welcome: Any) -> Stream:
        kind, hello = stream.hello
        told: Dict[str, Any] = {"ttl_ms": TTL_MS, "linger_ms": TTL_MS, "logical_time_ms": 1_000, "term": 1, **welcome}
        stream.answer(hello, kind, **told)
        return stream

    def close(self) -> None:
        self._listener.close()
        for stream in self._streams:
            stream.close()
