"""Is a candidate right? `kernelwright.verify(problem, candidate)` is the one place that decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.core.records import Verdict

if TYPE_CHECKING:
    from kernelwright.problems.problem import Candidate, Problem
    from kernelwright.sandbox import ForkServer

__all__ = ["BUILD_TIMEOUT_S", "verify"]

BUILD_TIMEOUT_S = 300.0
"""How long a candidate may take to be imported, compiled and constructed: `load_inline` of CUDA C++ takes a minute."""


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
    check_problem: bool = False,
) -> Verdict:
    """Accepts a candidate, or rejects it for one named reason.

    A candidate from a file runs in a process of its own, within limits; a live callable runs here. The reference
    runs here, as it is and in FP64, on several distributions of inputs with secret seeds. A problem's parameters are
    inputs too: a candidate from a file meets changed ones in every third set.

    Args:
        problem: a loaded problem or its target.
        candidate: a target (`file.py`, `file.cpp`), a loaded candidate, or any callable.
        device: `cpu` or `cuda`.
        tolerance: (atol, rtol) of the classic policy; None is the error budget against FP64.
        call_timeout_s: limit for each call of the candidate.
        build_timeout_s: limit for loading it: import, compilation and construction. It has no inputs meanwhile.
        memory_bytes: limit for the candidate's process; None is 80 % of what is available.
        seed: of an earlier verdict, whose inputs, parameters and order it draws again, with no limit on their time;
            None is a secret one.
        sets: exactly so many input sets; None is one of each kind, or at least four within about ten seconds.
        fork_server: a warm one to use; None starts one.
        spec: the name of a datasheet: a note says how long the work takes on that machine at least.
        own_kernels: reject a candidate whose work is done by a library's code and not by its own.
        check_problem: ask of the problem itself, too, whether it is degenerate; for one of which all sets can be run.
    Raises:
        NotFoundError: a file, or a datasheet named `spec`, is not there.
        ProblemError: the reference does not load, raises, or returns NaN for finite inputs.
        DeviceError: no such device here.
    """
    import kernelwright.report  # noqa: F401 - so that the verdict prints and draws itself

    # Imported here, so that a candidate's process, which imports this package's worker, holds no judge.
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
        check_problem=check_problem,
    )
