"""One call of gRPC whose answers are a stream: the part of HTTP/2 that it needs, without a socket.

Watches and observations are such calls; sessions use the framed protocol. The client sends one request on stream 1, and
reads until the end. Each call has a connection of its own.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Tuple
from urllib.parse import unquote

from ._messages import REASONS
from ._wire import PIECE_BYTES_MAX, Message

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_STREAM = 1
#: How much a node may send before it is read.
_WINDOW = 1 << 20
#: The largest frame of HTTP/2, unless we allow more; and all headers of one answer.
_FRAME_BYTES_MAX = 1 << 14
_HEADER_BYTES_MAX = 1 << 16
_REASON_NUMBERS = {name: number for number, name in REASONS.items()}
_FINAL_CODES = frozenset({"3", "7", "11", "12", "16"})


class StreamOver(Exception):
    """The call has ended; `failure` is the message `Failure` of the protocol."""

    def __init__(self, failure: Message) -> None:
        self.failure = failure
        super().__init__(failure.get("message", ""))


def _broken(words: str) -> StreamOver:
    return StreamOver({"message": words, "retryable": True})


class GrpcStream:
    """Bytes in, messages out. What has to be sent is in `outgoing`."""

    def __init__(self, path: str, request: bytes, authority: str, is_tls: bool, credential: str) -> None:
        headers = [
            (":method", "POST"),
            (":scheme", "https" if is_tls else "http"),
            (":path", path),
            (":authority", authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        if credential:
            headers.append(("authorization", f"Bearer {credential}"))
        block = b"".join(b"\x10" + _literal(name) + _literal(value) for name, value in headers)
        # No pushes; the window of a stream.
        settings = struct.pack(">HIHI", 2, 0, 4, _WINDOW)
        self.outgoing = _PREFACE + _frame(_SETTINGS, 0, 0, settings)
        self.outgoing += _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW - 65535))
        self.outgoing += _frame(_HEADERS, _END_HEADERS, _STREAM, block)
        self.outgoing += _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, len(request)) + request)
        self._read = bytearray()
        self._messages = bytearray()
        self._block = bytearray()
        self._block_ends_stream = False
        self._headers: Dict[str, str] = {}
        self._decoder = HeaderDecoder()

    def ping(self) -> None:
        """The node has to answer."""
        self.outgoing += _frame(_PING, 0, 0, bytes(8))

    def receive(self, data: bytes) -> List[bytes]:
        """The messages that are whole now. Raises `StreamOver` when the call has ended and all of them were taken."""
        self._read += data
        while len(self._read) >= 9:
            length = int.from_bytes(self._read[:3], "big")
            if length > _FRAME_BYTES_MAX:
                raise _broken(f"the node sent a frame of {length} bytes")
            if len(self._read) < 9 + length:
                break
            kind, flags = self._read[3], self._read[4]
            payload = bytes(self._read[9 : 9 + length])
            del self._read[: 9 + length]
            self._on_frame(kind, flags, payload)
            messages = self._take_messages()
            if messages:
                return messages
        return []

    def _on_frame(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self.outgoing += _frame(_SETTINGS, _ACK, 0, b"")
        elif kind == _PING and not flags & _ACK:
            self.outgoing += _frame(_PING, _ACK, 0, payload)
        elif kind == _DATA:
            if payload:
                taken = struct.pack(">I", len(payload))
                self.outgoing += _frame(_WINDOW_UPDATE, 0, 0, taken) + _frame(_WINDOW_UPDATE, 0, _STREAM, taken)
            self._messages += _without_padding(flags, payload)
        elif kind == _HEADERS:
            payload = _without_padding(flags, payload)
            self._block = bytearray(payload[5:] if flags & _PRIORITY else payload)
            self._block_ends_stream = bool(flags & _END_STREAM)
            self._on_headers(flags)
        elif kind == _CONTINUATION:
            self._block += payload
            self._on_headers(flags)
        elif kind == _RST_STREAM:
            raise _broken("the node ended the stream")
        elif kind == _GOAWAY:
            raise _broken("the node closes the connection")

    def _on_headers(self, flags: int) -> None:
        if len(self._block) > _HEADER_BYTES_MAX:
            raise _broken("the node sent too many headers")
        if not flags & _END_HEADERS:
            return
        try:
            self._headers.update(self._decoder.decode(bytes(self._block)))
        except (IndexError, ValueError) as error:
            raise _broken(f"the node sent headers that cannot be read: {error}") from error
        if self._block_ends_stream:
            raise StreamOver(_failure(self._headers))

    def _take_messages(self) -> List[bytes]:
        messages = []
        while len(self._messages) >= 5:
            compressed, length = struct.unpack_from(">BI", self._messages)
            if compressed or length > PIECE_BYTES_MAX:
                raise _broken("the node sent a message that cannot be read")
            if len(self._messages) < 5 + length:
                break
            messages.append(bytes(self._messages[5 : 5 + length]))
            del self._messages[: 5 + length]
        return messages


def _failure(headers: Dict[str, str]) -> Message:
    """Why the call ended, as the trailers say."""
    code = headers.get("grpc-status")
    if code is None:
        return {"message": f"the node answered with HTTP status {headers.get(':status', '?')}", "retryable": True}
    words = unquote(headers.get("grpc-message", "")) or "the node ended the stream"
    reason = headers.get("holdfast-reason")
    if reason is None:
        # It did not come from a node.
        denial = {"16": "unauthenticated", "7": "permission_denied"}.get(code, "unspecified")
        return {"reason": _REASON_NUMBERS[denial], "message": words, "retryable": code not in _FINAL_CODES}
    return {
        "reason": _REASON_NUMBERS.get(reason, 0),
        "message": words,
        "retryable": headers.get("holdfast-retryable") == "true",
        "leader": headers.get("holdfast-leader", ""),
        "retry_after_ms": int(told) if (told := headers.get("holdfast-retry-after-ms", "")).isdigit() else 0,
    }


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _without_padding(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload


def _literal(text: str) -> bytes:
    """A string of HPACK, as it is."""
    data = text.encode("utf-8")
    if len(data) < 127:
        return bytes((len(data),)) + data
    out, rest = bytearray((127,)), len(data) - 127
    while rest >= 128:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out) + data


#: Of the fixed table of HPACK, what an answer can need. The names of other entries do not matter.
_FIXED = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
_FIXED_COUNT = 61
#: The lengths of the codes of all 256 bytes and of the end, 5 bits written as A. The code itself is canonical.
_CODE_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABA"
    "BABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRU"
    "VVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)


def _codes() -> Dict[Tuple[int, int], int]:
    """The byte for a length and a code."""
    lengths = [ord(letter) - ord("A") + 5 for letter in _CODE_LENGTHS]
    codes, code, last = {}, 0, 5
    for length, symbol in sorted(zip(lengths, range(257))):
        code <<= length - last
        codes[length, code] = symbol
        code, last = code + 1, length
    return codes


_CODES = _codes()


class HeaderDecoder:
    """HPACK, as a client needs it."""

    def __init__(self) -> None:
        self._table: List[Tuple[str, str]] = []
        self._bytes_max = 4096

    def decode(self, block: bytes) -> Dict[str, str]:
        headers: Dict[str, str] = {}
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:
                self._bytes_max, at = _integer(block, at, 5)
                self._evict()
                continue
            else:
                is_kept = bool(first & 0x40)
                index, at = _integer(block, at, 6 if is_kept else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                if is_kept:
                    self._table.insert(0, (name, value))
                    self._evict()
            headers[name] = value
        return headers

    def _entry(self, index: int) -> Tuple[str, str]:
        if not index:
            raise ValueError("an entry of number 0")
        if index <= _FIXED_COUNT:
            return (":status", _FIXED[index]) if index in _FIXED else (f"fixed-{index}", "")
        return self._table[index - _FIXED_COUNT - 1]

    def _evict(self) -> None:
        while self._table and sum(len(name) + len(value) + 32 for name, value in self._table) > self._bytes_max:
            self._table.pop()


def _integer(data: bytes, at: int, bits: int) -> Tuple[int, int]:
    full = (1 << bits) - 1
    number = data[at] & full
    at += 1
    if number < full:
        return number, at
    shift = 0
    while True:
        byte = data[at]
        at += 1
        number += (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
        if shift > 28:
            raise ValueError("a number is too long")


def _string(data: bytes, at: int) -> Tuple[str, int]:
    is_coded = bool(data[at] & 0x80)
    length, at = _integer(data, at, 7)
    raw, at = data[at : at + length], at + length
    if len(raw) < length:
        raise ValueError("a text is cut short")
    return (_uncode(raw) if is_coded else raw).decode("utf-8", "replace"), at


def _uncode(raw: bytes) -> bytes:
    out = bytearray()
    code = length = 0
    for byte in raw:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            symbol: Optional[int] = _CODES.get((length, code))
            if symbol is not None:
                if symbol == 256:
                    raise ValueError("an end within a text")
                out.append(symbol)
                code = length = 0
    # What is left fills the last byte with ones.
    return bytes(out)
