"""The first lines of the README run as they stand there, but for the address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.pytest_plugin import Server

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_ten_lines_run(holdfast_server: Server, capsys: pytest.CaptureFixture) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(blocks[0].replace("127.0.0.1:7420", holdfast_server.endpoint), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "held, with the fencing token" in printed and "the report of monday" in printed


def test_every_block_of_the_readme_compiles() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        lines = "".join(f"    {line}\n" for line in block.splitlines())
        compile(f"async def readme():\n{lines}", "README.md", "exec")
