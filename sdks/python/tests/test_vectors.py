"""The cases that the Rust library recorded."""

from __future__ import annotations

import json

import pytest
import vectors
from conftest import ROOT


@pytest.mark.parametrize("kind", ["lease", "fence", "endpoints", "slots"])
def test_every_recorded_case_has_the_recorded_answer(kind: str) -> None:
    recorded = (ROOT / "crates" / "conformance" / "vectors" / f"{kind}.jsonl").read_text(encoding="utf-8")
    cases = [json.loads(line) for line in recorded.splitlines()]
    assert len(cases) > 300
    for case in cases:
        assert vectors.answer(kind, case["in"]) == case["out"], case["in"]
