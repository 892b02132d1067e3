"""The file of an optimised program, verified before it replaces an existing one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.compiler.assembly.graph_layer import GraphLayer
from kernelwright.compiler.assembly.kernel_layer import KernelLayer
from kernelwright.compiler.backends import uses_library
from kernelwright.compiler.budget import OutOfTime, time_limit
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.program_variant import EAGER, Variant, names_in_memory
from kernelwright.compiler.session import OptimizationSession
from kernelwright.core.cache import write_atomic
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import OWN_KERNELS
from kernelwright.core.verdict import Verdict
from kernelwright.sandbox import ForkServer
from kernelwright.verification.outcome import WIDENED, operand_precision, tf32_as_set
from kernelwright.verification.verdict import verify

MORE_TIME = "use smaller inputs, or a larger --budget"
MIN_VERIFY_S = 5.0
"""Time that a file gets for its verification at least, even after the budget."""
ORIGINAL_TIMES = 3
"""The original program gets so many times as long: only one that does not end for some inputs needs more."""
MIN_REPLAN_S = 8.0
"""Time left that is worth kernels without rewrites after those with them were rejected."""
DIFFERS_FROM_ITSELF = (
    "the original program differs from itself: it may depend on what is neither an argument nor a parameter or buffer"
)


@dataclass(frozen=True)
class StagedFile:
    """A file verified in a temporary folder, so that an existing output file is replaced only by a verified one."""

    session: OptimizationSession
    target: str
    path: Path
    fork_server: ForkServer

    def first_accepted(self, variants: Sequence[Variant]) -> tuple[Variant, str, Verdict] | None:
        """Verify variants until one is accepted.

        Returns:
            It, its source and its verdict; those of the original program if all are rejected; None where kernels of a
            rewritten program are rejected and there is time for those of the program as it was written.
        Raises:
            ProblemError: the original program cannot be verified.
        """
        for variant in itertools.takewhile(lambda one: one != EAGER, variants):  # what is slower is of no use
            verified: tuple[str, Verdict] | None = None
            with self.session.isolated(f"{variant.name} is not used", self._limit_s):
                verified = self._verified(variant)
            if verified and verified[1].accepted:
                return variant, *verified
            self.session.note_rejection(variant.name, verified[1].reason if verified else None)
            if verified and self._may_lack_rewrites(variant):
                return None
        return EAGER, *self._verified_original()

    @property
    def _limit_s(self) -> float:
        """What a verification may take: the rest of the budget, and no less than it needs."""
        budget = self.session.budget
        return max(budget.until_end_s, budget.reserved_s, MIN_VERIFY_S)

    def _may_lack_rewrites(self, variant: Variant) -> bool:
        """Whether a rejected variant runs a rewritten program, and kernels without rewrites are worth the time left."""
        session = self.session
        is_rewritten = any(plan.captured.is_rewritten for plan in session.plans) and not session.trained
        if variant.engine != OWN_KERNELS or not is_rewritten:
            return False
        return session.budget.allows(MIN_REPLAN_S, "kernels without rewrites")

    def _verified_original(self) -> tuple[str, Verdict]:
        """Verify the original program: its faults are those of the problem."""
        total_s = self.session.budget.total_s
        try:
            with time_limit(ORIGINAL_TIMES * self._limit_s):  # of no use is a run that ends without a file
                source, verdict = self._verified(EAGER)
        except OutOfTime as error:
            message = f"the original program is not verified within the budget of {total_s:.0f} s"
            raise ProblemError(message, next=MORE_TIME) from error
        if not verdict.accepted:
            self.session.faults.append(DIFFERS_FROM_ITSELF)
        return source, verdict

    def _verified(self, variant: Variant) -> tuple[str, Verdict]:
        self.session.free_memory()
        source = variant.source(self.session.problem, file_header(self.session, variant))
        if variant.engine == OWN_KERNELS:
            self._compile_kernels(variant, source)
        return source, self._verify(source)

    def _compile_kernels(self, variant: Variant, source: str) -> None:
        """Compile the kernels without the original program: to define its custom operators again in this process would
        invalidate those that the program calls.

        Raises:
            RuntimeWarning: the kernels do not compile.
        """
        problem = self.session.problem
        if self.session.device == "cuda" and isinstance(variant.layer, (KernelLayer, GraphLayer)):
            self.session.tuner.compile_for_file(variant.layer.kernels, source, self._limit_s)
            return
        load(variant.source(replace(problem, source=None), ""), names_in_memory(problem, self.session.program))

    def _verify(self, source: str) -> Verdict:
        """Verify a source text.

        Timed calls are not checked: nothing here wants to deceive its clock.
        """
        write_atomic(self.path, source.encode())
        problem, device = self.session.problem, self.session.device
        with tf32_as_set():
            return verify(problem, str(self.path), device=device, fork_server=self.fork_server, check_timed_calls=False)


def file_header(session: OptimizationSession, variant: Variant) -> str:
    """The docstring of the output file."""
    name, machine = session.problem.name, session.tuner.machine.name
    if not variant.layers:
        return f"{name}, unchanged: nothing was faster on {machine}."
    what, needs = (
        variant.name.replace(OWN_KERNELS, "kernels generated by Kernelwright"),
        "this file does not need Kernelwright",
    )
    if isinstance(variant.layer, (KernelLayer, GraphLayer)) and uses_library(variant.layer.kernels):
        needs = "without Kernelwright, whose matrix product it calls, this file runs the original"
    return f"{name} with {what}, for {machine}.\n\nModelNew replaces the original program; {needs}.{_precision_line()}"


def _precision_line() -> str:
    """What the file states about a precision below FP32 that the user permits."""
    precision = operand_precision()
    return f"\nOperands of products may be rounded to {precision.upper()}." if precision in WIDENED else ""
