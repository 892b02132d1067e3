"""The blocks of the README and the quickstart run, and the generated pages are up to date."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
RESULT = re.compile(r"^(accepted|rejected +[a-z-]+|(?:FASTER|SLOWER|SAME|UNCLEAR) \w+)", re.MULTILINE)


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text("utf-8")
    return [body for found, body in BLOCK.findall(text) if found == kind]


def commands(page: str) -> list[tuple[str, str]]:
    """Each `kw` command with the output below it; not those that need a GPU."""
    found = []
    for body in blocks(page, "console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            line = line.partition("  #")[0].strip()
            if line.startswith("kw ") and "--device cuda" not in line:
                found.append((line, output))
    return found


@pytest.fixture
def folder(tmp_path):
    """An empty folder with the examples, and with the files that the quickstart has its reader write."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for body in blocks("docs/quickstart.md", "python"):
        if name := re.match(r"# (\w+\.py)\n", body):
            (tmp_path / name[1]).write_text(body)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_every_command_runs_and_has_the_result_that_the_page_shows(page, folder, kw):
    assert commands(page)
    for line, output in commands(page):
        done = kw(*shlex.split(line)[1:], cwd=folder, COLUMNS="80")
        shown = RESULT.findall(output)
        code = 1 if any(one.startswith("rejected") for one in shown) else 0
        assert done.code == code, f"{line}\n{done.out}{done.err}"
        for one in shown:
            assert one in done.out, f"{line}\n{done.out}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_every_python_block_runs(page, folder):
    texts = [body for body in blocks(page, "python") if not re.match(r"# \w+\.py\n", body)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{folder}"}
    for text in texts:
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stderr


def test_the_readme_is_short_and_starts_with_an_installation():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 120
    assert any("pip install" in line for line in lines[:12])


def test_the_pages_of_verbs_and_the_api_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_reference.py"), "--check"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}run: make docs"
