"""Messages and pieces as bytes."""

from __future__ import annotations

import pytest
from conftest import ROOT

from holdfast._messages import MESSAGES, REASONS
from holdfast._wire import FRAME, NotDecodable, Pieces, decode, encode, piece

RECORDED = (ROOT / "proto" / "recorded-api.txt").read_text(encoding="utf-8")


def test_the_messages_are_those_of_the_recorded_api() -> None:
    recorded: dict = {}
    for line in RECORDED.splitlines():
        kind, name, number, *rest = line.split()
        name = name.split(".")[-1]
        if kind == "message" and name in MESSAGES:
            field, *words = rest
            words = words[: words.index("oneof")] if "oneof" in words else words
            type_name, repeated = words[-1], words[0] == "repeated"
            is_enum = type_name[0].isupper() and type_name not in MESSAGES
            recorded.setdefault(name, {})[int(number)] = (field, "enum" if is_enum else type_name, repeated)
    assert {name: fields for name, fields in MESSAGES.items() if fields} == recorded


def test_the_reasons_are_those_of_the_recorded_api() -> None:
    lines = [line.split() for line in RECORDED.splitlines() if line.startswith("enum holdfast.v1.Reason ")]
    assert {int(number): name[len("REASON_") :].lower() for _, _, number, name in lines} == REASONS


def test_a_message_survives_its_bytes() -> None:
    frame = {
        "acked_through": 300,
        "operations": [
            {"acquire": {"request_id": 1 << 62, "name": "größe", "metadata": b"\x00\xff", "reentrant": True}},
            {"acquire_all": {"request_id": 7, "members": [{"name": "a", "mode": 1}, {"name": "b", "mode": 2}]}},
            {"keep_alive": {"request_id": 8}},
        ],
    }
    assert decode("ClientFrame", encode("ClientFrame", frame)) == frame


def test_fields_of_later_versions_are_passed_over() -> None:
    known = encode("Queued", {"request_id": 5})
    later = b"\xf8\x3f\x01" + b"\xfa\x3f\x02hi" + b"\xf9\x3f" + bytes(8)
    assert decode("Queued", known + later) == {"request_id": 5}


def test_nothing_is_written_for_none() -> None:
    assert encode("AcquireRequest", {"name": "a", "ttl_ms": None}) == encode("AcquireRequest", {"name": "a"})


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\xff" * 11, b"\x0a\x02\xff\xfe", b"\x0b"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(NotDecodable):
        decode("HoldEnded", data)


def test_pieces_are_the_same_however_they_are_cut() -> None:
    contents = [b"", b"a", b"b" * 1000]
    written = b"".join(piece(FRAME, content) for content in contents)
    for size in (1, 3, 7, len(written)):
        pieces, seen = Pieces(), []
        for at in range(0, len(written), size):
            pieces.feed(written[at : at + size])
            seen += pieces.take()
        assert seen == [(FRAME, content) for content in contents]


@pytest.mark.parametrize("length", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_a_piece_of_a_wrong_length_is_refused(length: bytes) -> None:
    pieces = Pieces()
    pieces.feed(length + b"xx")
    with pytest.raises(NotDecodable):
        pieces.take()
