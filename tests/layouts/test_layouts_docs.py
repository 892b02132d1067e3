"""Everything that docs/layouts.md shows is what comes out."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "layouts.md").read_text()
BLOCKS = {kind: re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.M | re.S) for kind in ("python", "console")}
DRAWINGS = re.findall(r"^!\[.*\]\((\S+)\)\n`(kw layout .* --svg docs/\S+)`$", PAGE, re.M)


def test_the_python_examples():
    example = doctest.DocTestParser().get_doctest("\n".join(BLOCKS["python"]), {}, "layouts.md", "layouts.md", 0)
    failures = []
    doctest.DocTestRunner().run(example, out=failures.append)
    assert not failures, "".join(failures)
    assert len(example.examples) > 25


@pytest.mark.parametrize("block", BLOCKS["console"], ids=lambda block: block.splitlines()[0])
def test_the_commands(kw, block):
    command, _, output = block.partition("\n")
    assert kw(*shlex.split(command)[2:]).out.rstrip() == output.rstrip()


@pytest.mark.parametrize(("picture", "command"), DRAWINGS)
def test_the_drawings(kw, tmp_path, picture, command):
    *words, path = shlex.split(command)[1:]
    assert path == f"docs/{picture}"
    assert kw(*words, tmp_path / "drawing.svg").code == 0
    assert (tmp_path / "drawing.svg").read_text() == (ROOT / path).read_text()


def test_every_drawing_is_shown():
    assert {path.name for path in (ROOT / "docs" / "drawings").iterdir()} == {Path(name).name for name, _ in DRAWINGS}


def test_the_readme_shows_what_comes_out(kw):
    command, _, output = (
        (ROOT / "README.md").read_text().partition("$ kw layout ")[2].partition("```")[0].partition("\n")
    )
    assert kw("layout", *shlex.split(command)).out.startswith(output.rstrip())
