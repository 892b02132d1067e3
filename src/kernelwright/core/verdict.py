"""Verdicts on candidates."""

from __future__ import annotations

from kernelwright.core.record import Record, require
from kernelwright.core.timing import Device

REJECTIONS = (
    "compile-error",
    "runtime-error",
    "timeout",
    "out-of-memory",
    "crash",
    "wrong-shape",
    "wrong-dtype",
    "wrong-device",
    "wrong-structure",
    "wrong-parameters",
    "not-finite",
    "inaccurate",
    "input-mutated",
    "nondeterministic",
    "late-work",
    "stale-output",
    "aliased-output",
    "false-time",
    "forged-answer",
    "not-own-kernels",
    "undetermined",
)
"""Every value of `Reason.code`; `docs/verdicts.md` describes each."""


class Reason(Record, frozen=True, kw_only=True):
    """Why a candidate was rejected: `code` is one of `REJECTIONS`."""

    code: str
    detail: str

    def __post_init__(self) -> None:
        require(self.code in REJECTIONS, f"no rejection code {self.code!r}")


class Accuracy(Record, frozen=True, kw_only=True):
    """The error of the worst input set.

    `error_over_reference` is the candidate's error over the reference's, both against the golden value. An
    `error_over_limit` above 1 is a rejection.
    """

    policy: str
    error: float
    reference_error: float
    limit: float
    error_over_reference: float
    error_over_limit: float
    metric: str
    distribution: str
    output: str
    index: tuple[int, ...]
    got: str
    expected: str


class NearLimit(Record, frozen=True, kw_only=True):
    """Accuracy so close to its limit that `input_sets` input sets of one distribution were run to decide.

    `sets_over_limit` counts sets above the limit. `rms_over_limit` and `max_over_limit` are the root mean square and
    the maximum, over the sets, of the largest error over its limit. Rejected if `rms_over_limit` is above 1 or at
    least half of the sets are above the limit.
    """

    distribution: str
    input_sets: int
    sets_over_limit: int
    rms_over_limit: float
    max_over_limit: float


class Verdict(Record, frozen=True, kw_only=True):
    """Accepted, or rejected with one `reason`, and the evidence.

    `input_sets` counts the input sets that were run, `held_out_sets` those of other shapes that the problem declares;
    `golden` names the method of the expected result; `sandbox` lists the active protections; `call_us` is the median
    time of a call by the judge's own clock, if measured; `own_kernel_share` is the fraction of the work that ran in
    the candidate's own code, if requested and observable; `problem_warnings` are sentences on why the problem is a
    weak test; `near_limit` is set if the accuracy was close to its limit; `seed` reproduces inputs, parameters and
    order.
    """

    accepted: bool
    reason: Reason | None
    problem: str
    candidate: str
    device: Device
    input_sets: int
    golden: str
    held_out_sets: int = 0
    accuracy: Accuracy | None = None
    sandbox: tuple[str, ...] = ()
    call_us: float | None = None
    own_kernel_share: float | None = None
    problem_warnings: tuple[str, ...] = ()
    near_limit: NearLimit | None = None
    seed: int | None = None
    notes: tuple[str, ...] = ()
    time_s: float = 0.0

    def __post_init__(self) -> None:
        require(self.accepted == (self.reason is None), "a verdict has a reason exactly if it is rejected")
        require(0 <= (self.own_kernel_share or 0) <= 1, f"own_kernel_share is {self.own_kernel_share}")
