"""Candidates that name modules of the judge."""

import pytest

from kernelwright.verification.attacks.judge_reference import find_judge_reference


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('import sys\nclock = sys.modules.get("kernelwright.verify.own_clock")', "kernelwright.verify.own_clock"),
        ("from kernelwright.verification.worker import tasks", "kernelwright.verification.worker"),
        ("import kernelwright.sandbox.child as c", "kernelwright.sandbox.child"),
        ("from kernelwright.kernels import softmax", ""),
        ("# measured with kernelwright", ""),
    ],
)
def test_only_names_of_judging_modules_are_found(tmp_path, text, found):
    path = tmp_path / "candidate.py"
    path.write_text(text)
    reason = find_judge_reference(f"{path}:f")
    assert (reason.detail.split()[2].rstrip(",") if reason else "") == found
    assert find_judge_reference("nowhere.py") is None
