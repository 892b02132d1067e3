"""Everything that docs/layouts.md shows is what comes out."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from kernelwright.layouts.queries import explain
from kernelwright.report import render_text
from kernelwright.report.grid import render_layout_svg

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
def test_the_commands(block):
    command, _, output = block.partition("\n")
    (expression,) = shlex.split(command)[3:]
    assert render_text(explain(expression), 100) == output.rstrip()


@pytest.mark.parametrize(("picture", "command"), DRAWINGS)
def test_the_drawings(picture, command):
    _, _, expression, *options, _, path = shlex.split(command)
    assert path == f"docs/{picture}"
    given = dict(zip(options[::2], options[1::2], strict=True))
    found = explain(
        expression, element_bytes=int(given.get("--element-bytes", 4)), colour=given.get("--colour", "offset")
    )
    assert render_layout_svg(found.drawing) == (ROOT / path).read_text()


def test_every_drawing_is_shown():
    assert {path.name for path in (ROOT / "docs" / "drawings").iterdir()} == {Path(name).name for name, _ in DRAWINGS}


def test_the_page_shows_what_comes_out():
    blocks = re.findall(r"```console\n\$ kw layout ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 3
    for command, output in blocks:
        assert render_text(explain(*shlex.split(command)), 100).startswith(output.rstrip())
