"""Commands from Python: what notebooks and services call."""

import inspect
import typing

import pytest

from kernelwright import commands
from kernelwright.commands.result import CommandResult
from kernelwright.core.errors import UsageError

FUNCTIONS = [getattr(commands, name) for name in commands.__all__ if name != "CommandResult"]


@pytest.mark.parametrize("command", FUNCTIONS, ids=lambda one: one.__name__)
def test_every_command_is_typed_and_documented(command):
    hints = typing.get_type_hints(command)
    assert inspect.getdoc(command)
    assert typing.get_origin(hints.pop("return")) is CommandResult
    assert hints.keys() == inspect.signature(command).parameters.keys()
    kinds = {one.kind for one in inspect.signature(command).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def test_a_result_has_its_status_and_the_commands_to_run_next(tmp_path):
    problem, wrong = tmp_path / "twice.py", tmp_path / "wrong.py"
    problem.write_text(
        "import torch\n\n\ndef twice(x):\n    return 2 * x\n\n\ndef twice_inputs():\n    return [torch.randn(64)]\n"
    )
    wrong.write_text("def twice(x):\n    return 3 * x\n")
    found = commands.verify(str(problem), str(wrong))
    assert found.status == "finding"
    assert found.next[0] == f"kw verify {problem} {wrong}"
    assert found.next[-1].startswith(f"fix {wrong}: ")
    assert commands.layout("size((4,8))").status == "ok"


def test_options_of_a_script_and_unknown_names_are_usage_errors():
    with pytest.raises(UsageError, match="--spec cannot be used with a script"):
        commands.why(["python", "train.py"], spec="h200")
    with pytest.raises(UsageError, match="no device 'tpu'"):
        commands.machine(device="tpu")
    with pytest.raises(UsageError, match="no rows of kind 'x'"):
        commands.evidence_status("x")
