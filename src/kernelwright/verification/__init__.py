"""Correctness of a candidate: `kernelwright.verify(problem, candidate)` returns a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.core.verdict import Verdict

if TYPE_CHECKING:
    from kernelwright.problems.problem import Candidate, Problem
    from kernelwright.sandbox import ForkServer

__all__ = ["BUILD_TIMEOUT_S", "verify"]

BUILD_TIMEOUT_S = 300.0
"""Timeout for importing, compiling and constructing a candidate: `load_inline` of CUDA C++ takes a minute."""


def verify(
    problem: Problem | str,
    candidate: Candidate | Callable[..., Any] | str,
    *,
    device: str = "cpu",
    tolerance: tuple[float, float] | None = None,
    call_timeout_s: float = 60.0,
    build_timeout_s: float = BUILD_TIMEOUT_S,
    memory_bytes: int | None = None,
    seed: int | None = None,
    sets: int | None = None,
    fork_server: ForkServer | None = None,
    spec: str | None = None,
    own_kernels: bool = False,
    fresh_outputs: bool = False,
    check_problem: bool = False,
) -> Verdict:
    """Accept a candidate, or reject it with one named reason.

    A candidate from a file runs in its own process, within limits; a callable runs in this process. The reference
    runs in this process, in native precision and in FP64, on several distributions of inputs with secret seeds.
    Parameters are inputs too: a candidate from a file gets changed parameters in every third set.

    Args:
        problem: a loaded problem or its target.
        candidate: a target (`file.py`, `file.cpp`), a loaded candidate, or any callable.
        device: `cpu` or `cuda`.
        tolerance: (atol, rtol) of the classic policy; None for the error budget against FP64.
        call_timeout_s: timeout for each call of the candidate.
        build_timeout_s: timeout for importing, compiling and constructing it, before it receives any inputs.
        memory_bytes: memory limit for the candidate's process; None for 80 % of the available memory.
        seed: seed of an earlier verdict, to reproduce its inputs, parameters and order, without a time limit on the
            sets; None for a secret one.
        sets: exact number of input sets; None for one of each distribution, or as many as the reference computes in
            about ten seconds, at least four.
        fork_server: a running fork server to use; None starts one.
        spec: name of a datasheet: a note gives the lower bound on that machine's time.
        own_kernels: reject a candidate whose work is done by library code instead of its own.
        fresh_outputs: reject a candidate whose every call overwrites the output of the call before it. One that
            overwrites an output later than that is always rejected.
        check_problem: also check whether the problem is degenerate; only done where all sets could be run.
    Raises:
        NotFoundError: a file, or a datasheet named `spec`, does not exist.
        ProblemError: the reference does not load, raises, or returns NaN for finite inputs.
        DeviceError: the device is not available.
    """
    import kernelwright.report  # noqa: F401 - registers how verdicts are printed and drawn

    # Imported here: a candidate's process imports this package's worker and must not contain the verifier.
    from kernelwright.verification.verdict import verify as run

    return run(
        problem,
        candidate,
        device=device,
        tolerance=tolerance,
        call_timeout_s=call_timeout_s,
        build_timeout_s=build_timeout_s,
        memory_bytes=memory_bytes,
        seed=seed,
        sets=sets,
        fork_server=fork_server,
        spec=spec,
        own_kernels=own_kernels,
        fresh_outputs=fresh_outputs,
        check_problem=check_problem,
    )
