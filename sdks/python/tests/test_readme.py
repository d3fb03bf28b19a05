"""The README and the package agree with the rest of the repository. Its first lines run, but for the address."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.pytest_plugin import Server

LIBRARY = Path(__file__).resolve().parents[1]
README = (LIBRARY / "README.md").read_text(encoding="utf-8")

#: The package is what was installed, and not the checkout; it has the files that are no modules.
INSTALLED = """
import importlib.resources
import holdfast, holdfast.postgres

files = importlib.resources.files("holdfast")
assert "site-packages" in str(files), files
assert "check_fence" in files.joinpath("fence.sql").read_text() and files.joinpath("fence.lua").read_text()
assert files.joinpath("py.typed").is_file()
assert files.joinpath("django", "management", "commands", "locked.py").is_file()
"""


def first_lines(server: Server) -> str:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return str(blocks[0]).replace("127.0.0.1:7420", server.endpoint)


def test_the_ten_lines_run(holdfast_server: Server, capsys: pytest.CaptureFixture) -> None:
    exec(compile(first_lines(holdfast_server), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "held, with the fencing token" in printed and "the report of monday" in printed


def test_the_package_installs_into_a_clean_environment_with_all_its_files(
    holdfast_server: Server, tmp_path: Path
) -> None:
    # As it is after a clone: what an earlier build left there would hide a file that the package lacks.
    clone, environment, empty = tmp_path / "clone", tmp_path / "environment", tmp_path / "empty"
    shutil.copytree(LIBRARY, clone, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    empty.mkdir()

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(clone))
    run(python, "-I", "-c", INSTALLED)
    assert "held, with the fencing token" in run(python, "-I", "-c", first_lines(holdfast_server))


def test_every_block_of_the_readme_compiles() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        lines = "".join(f"    {line}\n" for line in block.splitlines())
        compile(f"async def readme():\n{lines}", "README.md", "exec")


def test_the_version_is_that_of_the_cluster() -> None:
    version = f'\nversion = "{holdfast.__version__}"\n'
    for file in (LIBRARY / "pyproject.toml", LIBRARY.parents[1] / "Cargo.toml"):
        assert version in file.read_text(encoding="utf-8"), file
