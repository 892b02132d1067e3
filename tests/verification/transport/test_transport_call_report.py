"""Whatever a process that holds a candidate reports, the verdict is the candidate's."""

import pytest

from kernelwright.core import errors
from kernelwright.sandbox.exceptions import TaskError
from kernelwright.verification.output_checker import to_reason
from kernelwright.verification.transport.call_report import candidate_at_fault


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (errors.InternalError("made by the candidate"), "runtime-error"),
        (errors.ProblemError("blames the problem"), "runtime-error"),
        (errors.UsageError("blames the user"), "runtime-error"),
        (KeyError("segments"), "forged-answer"),
        (ValueError("invalid literal"), "forged-answer"),
        (TaskError("ValueError: x"), "runtime-error"),
        (errors.TimeLimitError("stopped"), "timeout"),
        (errors.CompileError("no compiler takes it"), "compile-error"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else one,
)
def test_every_error_is_a_rejection(raised, code):
    with pytest.raises(errors.KernelwrightError) as seen, candidate_at_fault():
        raise raised
    assert to_reason(seen.value).code == code


def test_memory_of_this_process_and_a_missing_file_are_not_the_candidates():
    with pytest.raises(MemoryError), candidate_at_fault():
        raise MemoryError
    with pytest.raises(errors.NotFoundError), candidate_at_fault(errors.NotFoundError):
        raise errors.NotFoundError("no such function")
