"""Messages as bytes: the part of Protocol Buffers that the session protocol uses, and the pieces around it.

Messages are dictionaries. A field that is absent has its default; a field that is `None` is not written.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, List, Tuple

from ._messages import MESSAGES

Message = Dict[str, Any]

#: The first bytes of both sides. No HTTP begins so.
GREETING = b"\xf5hs1"
FRAME, PING, END, AUTH = 0, 1, 2, 3
#: The longest piece that a node sends.
PIECE_BYTES_MAX = 17 * 1024 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SCALARS = ("uint64", "uint32", "enum", "bool")


class NotDecodable(Exception):
    """The other side sent bytes that are no message."""


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field_encoder(number: int, kind: str) -> Callable[[Any], bytes]:
    if kind in _SCALARS:
        key = _varint(number << 3 | _VARINT)
        return lambda value: key + _varint(int(value))
    if kind == "double":
        key = _varint(number << 3 | _FIXED64)
        return lambda value: key + struct.pack("<d", value)
    key = _varint(number << 3 | _BYTES)
    if kind == "string":
        return lambda value: _prefixed(key, value.encode("utf-8"))
    if kind == "bytes":
        return lambda value: _prefixed(key, bytes(value))
    return lambda value: _prefixed(key, encode(kind, value))


def _prefixed(key: bytes, content: bytes) -> bytes:
    return key + _varint(len(content)) + content


_ENCODERS: Dict[str, Dict[str, Tuple[Callable[[Any], bytes], bool]]] = {
    name: {field: (_field_encoder(number, kind), repeated) for number, (field, kind, repeated) in fields.items()}
    for name, fields in MESSAGES.items()
}


def encode(kind: str, message: Message) -> bytes:
    """The bytes of a message."""
    encoders = _ENCODERS[kind]
    parts: List[bytes] = []
    for field, value in message.items():
        if value is None:
            continue
        write, repeated = encoders[field]
        if repeated:
            parts.extend(write(item) for item in value)
        else:
            parts.append(write(value))
    return b"".join(parts)


def _read_varint(data: bytes, at: int) -> Tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise NotDecodable("a number is too long")


def decode(kind: str, data: bytes) -> Message:
    """The message in these bytes. Fields of later versions are passed over."""
    try:
        return _decode(kind, data)
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise NotDecodable(f"the bytes are no {kind}: {error}") from error


def _decode(kind: str, data: bytes) -> Message:
    fields = MESSAGES[kind]
    message: Message = {}
    at, end = 0, len(data)
    while at < end:
        key, at = _read_varint(data, at)
        value: Any
        wire = key & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
        elif wire == _BYTES:
            length, at = _read_varint(data, at)
            value, at = data[at : at + length], at + length
            if at > end:
                raise NotDecodable(f"the bytes of a {kind} are cut short")
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
            value, at = data[at : at + length], at + length
        else:
            raise NotDecodable(f"a {kind} has a field of an unknown wire type")
        declared = fields.get(key >> 3)
        if declared is None:
            continue
        name, field, repeated = declared
        if (wire == _VARINT) != (field in _SCALARS) and not (repeated and wire == _BYTES):
            continue
        if field == "bool":
            value = bool(value)
        elif field == "string":
            value = value.decode("utf-8")
        elif field == "double":
            value = struct.unpack("<d", value)[0]
        elif field in MESSAGES:
            value = _decode(field, value)
        if repeated:
            message.setdefault(name, []).append(value)
        else:
            message[name] = value
    return message


def piece(kind: int, content: bytes = b"") -> bytes:
    """A piece of a framed connection: its length, its kind, its content."""
    return struct.pack("<IB", len(content) + 1, kind) + content


class Pieces:
    """Cuts what is read from a connection into pieces."""

    def __init__(self) -> None:
        self._read = bytearray()

    def feed(self, data: bytes) -> None:
        self._read += data

    def take(self) -> List[Tuple[int, bytes]]:
        """The pieces that are whole."""
        pieces = []
        at = 0
        while len(self._read) - at >= 4:
            (length,) = struct.unpack_from("<I", self._read, at)
            if not 1 <= length <= PIECE_BYTES_MAX + 1:
                raise NotDecodable(f"a piece of {length} bytes")
            if len(self._read) - at < 4 + length:
                break
            pieces.append((self._read[at + 4], bytes(self._read[at + 5 : at + 4 + length])))
            at += 4 + length
        if at:
            del self._read[:at]
        return pieces
