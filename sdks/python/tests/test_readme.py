"""The README and the package agree with the rest of the repository. Its first lines run, but for the address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.pytest_plugin import Server

LIBRARY = Path(__file__).resolve().parents[1]
README = (LIBRARY / "README.md").read_text(encoding="utf-8")


def test_the_ten_lines_run(holdfast_server: Server, capsys: pytest.CaptureFixture) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(blocks[0].replace("127.0.0.1:7420", holdfast_server.endpoint), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "held, with the fencing token" in printed and "the report of monday" in printed


def test_every_block_of_the_readme_compiles() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        lines = "".join(f"    {line}\n" for line in block.splitlines())
        compile(f"async def readme():\n{lines}", "README.md", "exec")


def test_the_version_is_that_of_the_cluster() -> None:
    version = f'\nversion = "{holdfast.__version__}"\n'
    for file in (LIBRARY / "pyproject.toml", LIBRARY.parents[1] / "Cargo.toml"):
        assert version in file.read_text(encoding="utf-8"), file
