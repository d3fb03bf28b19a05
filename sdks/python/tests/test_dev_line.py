"""The line for Python that `holdfast dev` prints, and the program in the product's README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import ROOT

from holdfast.pytest_plugin import Server, _free_ports


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_line_that_dev_prints_runs(tmp_path: Path) -> None:
    binary = os.environ.get("HOLDFAST_BIN") or shutil.which("holdfast")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the program `holdfast` is not there")
        pytest.skip("the program `holdfast` is not there")
    arguments = ["dev", "--nodes", "1", "--no-http", "--port", str(_free_ports()), "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    giving_up = threading.Timer(60, process.kill)
    giving_up.start()
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "ready\n":
                break
        (code,) = [line.split(None, 1)[1] for line in lines if line.startswith("  Python ")]
        assert run(code).startswith("hf1.L.")
    finally:
        giving_up.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_the_program_in_the_readme_of_the_product_runs(holdfast_server: Server) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    printed = run(code.replace("127.0.0.1:7420", holdfast_server.endpoint))
    assert printed.startswith("send this fence with each write: hf1.L.")
