"""Problems from files, functions and modules, and what a person reads when they do not load."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from kernelwright.core.errors import NotFoundError, ProblemError, UsageError
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.loading import split_arguments

MODEL = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self, width, scale):
            super().__init__()
            self.linear, self.scale = nn.Linear(width, 3), scale

        def forward(self, x):
            return torch.relu(self.linear(x)) * self.scale

    def get_init_inputs():
        return [4, 2.0]

    def get_inputs():
        return [torch.randn(5, 4)]
"""


@pytest.fixture
def write(tmp_path):
    def write(source: str, name: str = "problem.py") -> str:
        (tmp_path / name).write_text(textwrap.dedent(source))
        return str(tmp_path / name)

    return write


def run(problem: Problem, seed: int = 1):
    args, kwargs = problem.inputs("cpu", seed)
    return problem.program(*args, **kwargs)


def test_kernelbench_form(write):
    problem = load_problem(write(MODEL))
    assert problem.name == "problem"
    assert problem.summary == "relu(linear(x)) * scale"
    assert problem.init_inputs == (4, 2.0)
    assert isinstance(problem.module, torch.nn.Module)
    assert run(problem).shape == (5, 3)


def test_model_is_constructed_under_a_fixed_seed_and_leaves_the_callers_random_state(write):
    path = write(MODEL)
    torch.manual_seed(5)
    first = load_problem(path)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    assert torch.equal(run(first), run(load_problem(path)))


def test_inputs_depend_on_the_seed_alone(write):
    problem = load_problem(write("""
        import random
        import numpy
        import torch
        def problem(x, y, z): return x * y * z
        def get_inputs(): return [torch.randn(3), random.random(), float(numpy.random.rand())]
    """))  # fmt: skip
    assert torch.equal(run(problem, 1), run(problem, 1))
    first, second = problem.inputs("cpu", 1)[0], problem.inputs("cpu", 2)[0]
    assert first[1] != second[1]
    assert first[2] != second[2]
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize(
    ("returned", "args", "kwargs"),
    [
        ([1, 2], [1, 2], {}),
        ((1, 2), [1, 2], {}),
        ({"a": 1}, [], {"a": 1}),
        (([1], {"b": 2}), [1], {"b": 2}),
        ([[1], {"b": 2}], [[1], {"b": 2}], {}),
        (7, [7], {}),
        ([{"a": 1}], [{"a": 1}], {}),
    ],
)
def test_what_an_inputs_function_may_return(returned, args, kwargs):
    assert split_arguments(returned) == (args, kwargs)


def test_inputs_of_every_kind(write):
    problem = load_problem(write("""
        import torch
        def problem(x, pair, table, n, flag, *, mask=None, scale=1.0):
            return {"sum": x.sum() + n + table["bias"], "pair": (pair[0] & mask, flag)}
        def get_inputs():
            pair = (torch.tensor([True, False]), torch.randint(0, 9, (2,)))
            return ([torch.ones(3), pair, {"bias": torch.tensor(1)}, 2, True], {"mask": torch.tensor([True, True])})
    """))  # fmt: skip
    result = run(problem)
    assert result["sum"] == 6
    assert result["pair"][0].tolist() == [True, False]


def test_example_has_shapes_and_no_values(write):
    args, _ = load_problem(write(MODEL)).meta_inputs
    assert args[0].device.type == "meta"
    assert args[0].shape == (5, 4)


FUNCTIONS = """
    '''Two programs in one file.'''
    import torch
    def double(x): return 2 * x
    def double_inputs(): return [torch.ones(2)]
    def triple(x):
        y = 3 * x
        return y
    def get_inputs(): return [torch.ones(3)]
"""


def test_function_in_a_file_with_its_own_inputs_or_the_files(write):
    path = write(FUNCTIONS)
    double, triple = load_problem(f"{path}:double"), load_problem(f"{path}:triple")
    assert (double.name, double.summary, run(double).tolist()) == ("double", "2 * x", [2, 2])
    assert (triple.name, triple.summary, run(triple).tolist()) == ("triple", "Two programs in one file.", [3, 3, 3])


def test_function_in_a_package_found_from_the_working_folder(write, tmp_path, monkeypatch):
    (tmp_path / "some_package").mkdir()
    write(FUNCTIONS, "some_package/programs.py")
    monkeypatch.chdir(tmp_path)
    assert run(load_problem("some_package.programs:double")).tolist() == [2, 2]


def test_function_named_like_its_file(write):
    path = write("import torch\ndef gelu(x): return x\ndef get_inputs(): return [torch.ones(1)]\n", "gelu.py")
    assert load_problem(path).name == "gelu"


def test_class_can_be_named(write):
    assert load_problem(write(MODEL) + ":Model").module is not None


def test_deterministic_is_read(write):
    assert not load_problem(write(MODEL)).deterministic
    assert load_problem(write("DETERMINISTIC = True\n" + textwrap.dedent(MODEL))).deterministic


def test_files_beside_can_be_imported(write):
    write("WIDTH = 4\n", "beside_the_problem.py")
    path = write(
        "import torch, beside_the_problem as b\ndef problem(x): return x\ndef get_inputs(): return [b.WIDTH]\n"
    )
    assert run(load_problem(path)) == 4


def test_what_a_file_prints_does_not_reach_stdout(write, capsys):
    load_problem(write("print('hello')\n" + textwrap.dedent(MODEL)))
    assert capsys.readouterr().out == ""


def test_in_place_program_gets_fresh_inputs_each_time(write):
    problem = load_problem(
        write("import torch\ndef problem(x): return x.add_(1)\ndef get_inputs(): return [torch.zeros(1)]\n")
    )
    assert run(problem).item() == 1
    assert run(problem).item() == 1


def test_live_objects():
    x = torch.ones(2)
    problem = Problem.from_callable(lambda a, b: a.add_(b), x, b=3)
    assert run(problem).tolist() == [4, 4]
    assert x.tolist() == [1, 1]
    assert Problem.from_module(torch.nn.Linear(2, 1), x).module is not None


# ---- what goes wrong


def test_missing_file_names_near_ones(write, tmp_path):
    write(MODEL, "softmax.py")
    with pytest.raises(NotFoundError, match=r"softmx\.py") as caught:
        load_problem(str(tmp_path / "softmx.py"))
    assert "did you mean" in caught.value.next
    assert "softmax.py" in caught.value.next


def test_missing_file_without_its_suffix(write, tmp_path):
    write(MODEL, "softmax.py")
    with pytest.raises(NotFoundError) as caught:
        load_problem(str(tmp_path / "softmax"))
    assert "softmax.py" in caught.value.next


def test_missing_folder(tmp_path):
    with pytest.raises(NotFoundError):
        load_problem(str(tmp_path / "no" / "such.py"))


def test_missing_module():
    with pytest.raises(NotFoundError, match="no_such_package"):
        load_problem("no_such_package.module:function")


def test_a_folder_is_not_a_problem(tmp_path):
    with pytest.raises(UsageError, match="folder"):
        load_problem(str(tmp_path))


def test_missing_function_names_near_ones(write):
    with pytest.raises(ProblemError, match="doubel") as caught:
        load_problem(write(FUNCTIONS) + ":doubel")
    assert caught.value.next == "did you mean double?"


def test_file_without_model_names_what_has_inputs(write):
    path = write("class Net: pass\ndef something(x): return x\ndef something_inputs(): return [1]\n")
    with pytest.raises(ProblemError, match="it defines Net, something, something_inputs") as caught:
        load_problem(path)
    assert caught.value.next == f"name the program: {path}:something"


def test_file_without_model_and_inputs_says_what_is_expected(write):
    with pytest.raises(ProblemError, match="it defines something, Net") as caught:
        load_problem(write("def something(x): return x\nclass Net: pass\n"))
    assert "Model and get_inputs()" in caught.value.next


SCRIPTS = [
    "class RMSNorm: pass\ndef main(): pass\nif __name__ == '__main__':\n    main()\n",
    "def main(): pass\nmain()\n",
    "class RMSNorm: pass\nfor step in range(3):\n    pass\n",
]


@pytest.mark.parametrize("text", SCRIPTS)
def test_a_script_is_to_be_watched(write, text):
    path = write(text)
    with pytest.raises(ProblemError) as caught:
        load_problem(path)
    assert caught.value.next == f"kw why -- python {path}"


def test_a_script_with_a_function_of_its_name_is_to_be_watched(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def train(steps): pass\nif __name__ == '__main__':\n    train(3)\n")
    with pytest.raises(ProblemError, match="no example inputs") as caught:
        load_problem(str(path))
    assert caught.value.next == f"kw why -- python {path}"


def test_a_script_with_a_model_is_both(write):
    path = write("class Model:\n    def __call__(self, x): return x\nif __name__ == '__main__':\n    Model()\n")
    with pytest.raises(ProblemError) as caught:
        load_problem(path)
    steps = [f"kw why -- python {path}", "add get_inputs(), which returns a list of arguments"]
    assert caught.value.next.splitlines() == steps


def test_empty_file_says_what_is_expected(write):
    with pytest.raises(ProblemError, match="it defines nothing") as caught:
        load_problem(write(""))
    assert "Model and get_inputs()" in caught.value.next


def test_no_inputs(write):
    with pytest.raises(ProblemError, match="no example inputs") as caught:
        load_problem(write("def f(x): return x\n") + ":f")
    assert "f_inputs()" in caught.value.next


def test_other_languages_are_for_candidates(write):
    with pytest.raises(ProblemError, match="not a Python file"):
        load_problem(write("", "kernel.cpp"))


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("import torch\n\nx = 1 / 0\n", 3, "ZeroDivisionError"),
        ("def f(:\n    pass\n", 1, "SyntaxError"),
        ("import no_such_module_at_all\n", 1, "no_such_module_at_all"),
        ("def f():\n    raise KeyError('k')\n\nf()\n", 2, "KeyError"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit"),
    ],
)
def test_a_file_that_does_not_import_names_its_line(write, source, line, says):
    path = write(source)
    with pytest.raises(ProblemError, match=says) as caught:
        load_problem(path)
    assert caught.value.where == f"{path}:{line}"


def test_a_constructor_that_raises_names_its_line(write):
    path = write("class Model:\n    def __init__(self):\n        raise ValueError('no')\n")
    with pytest.raises(ProblemError, match="does not construct: ValueError: no") as caught:
        load_problem(path)
    assert caught.value.where == f"{path}:3"


def test_inputs_that_raise_name_their_line(write):
    path = write("def problem(x): return x\ndef get_inputs():\n    return [undefined]\n")
    problem = load_problem(path)
    with pytest.raises(ProblemError, match="undefined") as caught:
        problem.inputs("cpu", 0)
    assert caught.value.where == f"{path}:3"


def test_relative_paths_are_named_by_line_too(write, tmp_path, monkeypatch):
    write("x = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProblemError) as caught:
        load_problem("problem.py")
    assert caught.value.where == f"{Path('problem.py')}:1"
