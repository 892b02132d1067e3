"""The tables of modules in docs/architecture.md are those that the docstrings give today."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "docs" / "generate_modules.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_modules", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_up_to_date(generator):
    page = generator.PAGE.read_text("utf-8")
    assert generator.replace_tables(page) == page, "out of date; run: python docs/generate_modules.py (or make docs)"


def test_every_module_has_a_row(generator):
    modules = [path for path in generator.PACKAGE.rglob("*.py") if not path.is_relative_to(generator.SAMPLES)]
    packages = list(generator.PACKAGE.glob("*/__init__.py"))
    in_packages = [path for path in modules if path.parent != generator.PACKAGE]
    rows = [line for line in generator.module_tables().splitlines() if line.startswith("| `")]
    assert len(rows) == len(in_packages) - len(packages)
    assert not [row for row in rows if row.endswith("|  |")], "a module has no docstring"


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One line.", "One line."),
        ("Two\nlines. And a second sentence.", "Two lines."),
        ("A heading\n\nand more.", "A heading"),
        ("Versions 2.1 and 3.6. `x` next.", "Versions 2.1 and 3.6."),
        ("`cpu|cuda`.", "`cpu\\|cuda`."),
    ],
)
def test_the_first_sentence_of_a_docstring(generator, docstring, sentence):
    assert generator.first_sentence(docstring) == sentence


def test_a_page_without_markers_is_an_error(generator):
    with pytest.raises(ValueError, match="must contain each of these lines once"):
        generator.replace_tables("# Architecture\n")
