"""What counts as a Python command, and how a script that is watched ends."""

import pytest
from tiers import fast_first

from kernelwright.diagnosis import is_python_command

SCRIPT = """
import atexit
import torch

atexit.register(print, "the handler ran")
torch.randn(64, 64) @ torch.randn(64, 64)
"""


@pytest.mark.parametrize("word", ["python", "python3", "python3.12", "/usr/bin/python3", "python2.7"])
def test_an_interpreter_begins_a_command(word):
    assert is_python_command([word, "x.py"])


@pytest.mark.parametrize("word", ["python_softmax.py", "python.py", "python3_kernels.py:f", "a/pythonic", "x.py"])
def test_a_problem_may_be_called_like_an_interpreter(word):
    assert not is_python_command([word])


@pytest.mark.parametrize(("end", "code"), fast_first(1, [("", 0), ("raise ValueError('late')", 2)]))
def test_exit_handlers_of_a_watched_script_run(kw, tmp_path, end, code):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + end)
    answer = kw("why", "--json", "--", "python", script)
    assert answer.code == code
    assert "the handler ran" in answer.err
    assert answer.document["status"] == ("error" if code else "ok")
