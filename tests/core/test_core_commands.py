"""Which next steps are commands; and that every one written in the sources is either a command or a sentence."""

import ast
from pathlib import Path

import pytest
from next_steps import can_run

from kernelwright.core.commands import add_options, is_command, split_commands

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "kernelwright"


@pytest.mark.parametrize(
    "text",
    [
        "kw why --help",
        "kw bench 'my problem.py' candidate.cpp --device cuda",
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python train.py --steps 20",
        "pip install 'kernelwright[cuda]'",
        "/usr/bin/python3 train.py",
        "kw layout 'size((4,8))'",
        "kw sass k.cu --define BK=16",
        "apt-get install g++",
    ],
)
def test_a_command(text):
    assert is_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fuse all 4 operators into one pass",
        "give 1 or more, or leave it out for 12",
        "kw suite run DIR [--candidates DIR]",
        "kw evidence check --folder DIR, or kw evidence record",
        "kw bench ... --device cuda, or kw verify ... --device emulated",
        "MALLOC_MMAP_MAX_=0 python ...",
        "KERNELWRIGHT_CACHE=DIR",
        "--device cpu",
        "an apostrophe's word",
    ],
)
def test_no_command(text):
    assert not is_command(text)


def test_steps_are_divided_in_their_order():
    assert split_commands(["kw machine", "", "wait", "kw kernels"]) == (["kw machine", "kw kernels"], ["wait"])


@pytest.mark.parametrize(
    ("command", "options", "again"),
    [
        ("kw verify a b", "--device cpu", "kw verify a b --device cpu"),
        ("kw verify --device cuda a b", "--device cpu", "kw verify a b --device cpu"),
        ("kw verify --device=cuda a b", "--device cpu", "kw verify a b --device cpu"),
        ("kw why --json -- python a.py --json", "--debug", "kw why --json --debug -- python a.py --json"),
        ("kw judge-check --rounds 0", "--rounds 1 --workers 1", "kw judge-check --rounds 1 --workers 1"),
        ("kw verify a b", "--out FILE", None),
        ("kw verify a b", "--spec with one of: h200", None),
        ("kw verify a b", "leave it out", None),
        ("kw verify a b", "", None),
    ],
)
def test_the_same_command_with_other_options(command, options, again):
    assert add_options(command.split(), options) == again


def written():
    """Every text given as `next=` in the sources, a line each; what is filled in is `x`."""
    samples = PACKAGE / "redteam" / "samples"
    for path in sorted(path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(samples)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "next":
                for line in text_of(node.value).splitlines():
                    yield path.relative_to(PACKAGE).as_posix(), node.value.lineno, line


def text_of(node):
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in parts)
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.List(elts=words)]):
            return " ".join(text_of(word) or "x" for word in words)
    return ""


def test_what_reads_like_a_command_in_the_sources_runs():
    found = [(place, line, text) for place, line, text in written() if is_command(text)]
    assert len(found) > 10
    assert [one for one in found if not can_run(one[2])] == []


def test_every_step_in_the_sources_that_begins_like_a_command_is_one():
    begun = [
        one for one in written() if one[2].startswith(("kw ", "pip ", "python ")) and one[0] != "benchmark/bench.py"
    ]
    assert [one for one in begun if not is_command(one[2])] == []
