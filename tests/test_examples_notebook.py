"""The notebook shows what its cells print: executed in order, with names that exist, and they run again."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "from_python.ipynb"
MOST_BYTES = 400_000
SIZE, SMALL = "TOKENS, WIDTH = 1536, 4096", "TOKENS, WIDTH = 64, 256"
ARMS, FEWER = '("eager", "compile")', '("eager",)'


@functools.cache
def cells(kind: str) -> tuple[dict[str, Any], ...]:
    return tuple(cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind)


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def outputs() -> list[dict[str, Any]]:
    return [output for cell in cells("code") for output in cell["outputs"]]


def test_every_cell_was_executed_in_order_and_none_failed():
    assert [cell["execution_count"] for cell in cells("code")] == list(range(1, len(cells("code")) + 1))
    assert not [output for output in outputs() if output["output_type"] == "error" or output.get("name") == "stderr"]


def test_outputs_are_drawn_and_the_file_stays_small():
    drawn = ["".join(output["data"]["text/html"]) for output in outputs() if "text/html" in output.get("data", {})]
    assert len(drawn) >= 6
    assert all('class="kw card' in one for one in drawn)
    assert NOTEBOOK.stat().st_size < MOST_BYTES


def test_outputs_hold_no_path_of_the_machine_they_were_made_on():
    assert not re.findall(r"(?:/home|/root|/tmp|/work|/Users|/usr)/[\w.-]+|\w*Warning\b", json.dumps(outputs()))


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)\)", "\n".join(map(source, cells("markdown"))))
    assert targets
    assert not [target for target in targets if not (NOTEBOOK.parent / target).exists()]


def test_every_import_and_every_name_of_the_package_exists():
    tree = ast.parse("\n".join(map(source, cells("code"))))
    imported = {a.asname or a.name: a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert imported["kw"] == "kernelwright"
    modules = {alias: importlib.import_module(name) for alias, name in imported.items()}
    chains = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used = sorted(chain for chain in chains if re.fullmatch(r"kw(\.\w+)+", chain))
    assert {"kw.why", "kw.verify", "kw.bench", "kw.machine", "kw.watch", "kw.Problem.from_callable"} <= set(used)
    for chain in used:
        functools.reduce(getattr, chain.split(".")[1:], modules["kw"])


def ran(*replaced: tuple[str, str]) -> dict[str, Any]:
    """The names that are left after every code cell has run, top to bottom."""
    names: dict[str, Any] = {"__name__": "notebook"}
    text = "\n\n".join(map(source, cells("code")))
    for old, new in replaced:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    exec(compile(text, str(NOTEBOOK), "exec"), names)
    return names


def proven(names: dict[str, Any]) -> None:
    assert names["recommendation"].predicted_us < names["diagnosis"].time_us
    assert names["verdict"].reason.code == "inaccurate"
    assert {one.name for one in names["timed"].variants} >= {"builtin_gelu", "eager"}
    assert names["timed"].verdicts[0].accepted
    assert names["seen"].diagnosis.operators
    assert names["predicted"].predicted


@pytest.mark.slow
def test_cells_run_top_to_bottom_at_a_small_size():
    proven(ran((SIZE, SMALL), (ARMS, FEWER)))


@pytest.mark.exhaustive
def test_cells_run_top_to_bottom_as_they_stand():
    names = ran()
    proven(names)
    assert "torch.compile" in {one.name for one in names["timed"].variants}
