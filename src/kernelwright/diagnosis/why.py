"""Diagnosis of one program: its work is counted, the program is timed, and each operator is timed, in separate runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.errors import ProblemError, UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.units import count_text
from kernelwright.core.work import Operator, ProgramWork
from kernelwright.diagnosis.observation import MIN_FAULTS_PER_CALL, Observation, observe, predict
from kernelwright.diagnosis.record_builder import build_diagnosis
from kernelwright.diagnosis.run_once import reraise_as_problem_error, run_once
from kernelwright.machines import machine as measured_machine
from kernelwright.machines import refresh_memory
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.buffers import RotatingBuffers
from kernelwright.measure.operators import OperatorTimes, time_operators
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.problem import tensor_leaves
from kernelwright.work import CountingMode, count_work, first_read_bytes

RUN_LIMIT_S = 120.0
TIMING_BUDGET_S = 2.0
MANY_CALLS = 2000
"""Programs of more operators are timed in fewer passes: a pass takes seconds."""


def why(
    target: Problem | Callable[..., Any] | str,
    *args: Any,
    device: str | None = None,
    spec: str | None = None,
    compiled: bool = False,
    limit_s: float = RUN_LIMIT_S,
    reference: ProgramWork | None = None,
    **kwargs: Any,
) -> Diagnosis:
    """Diagnose a program: its regime, its floors, and recommendations with predicted times.

    Args:
        target: a problem, a path to one, or a callable that is called with `args` and `kwargs`.
        device: `cpu` or `cuda`; by default the device of the inputs.
        spec: the name of a datasheet: nothing is timed, everything is predicted for that machine.
        compiled: diagnose the program compiled by torch.compile.
        limit_s: time limit of one run of the program; enforced only by the command line.
        reference: the work of the program that `target` replaces, for code that bypasses the torch dispatcher.
    Raises:
        ProblemError: the program raised, or its operator calls differ from run to run.
    """
    if spec and compiled:
        raise UsageError(
            "torch.compile cannot be predicted: its fusions are known only on the machine itself", next="omit --compile"
        )
    problem = _as_problem(target, args, kwargs)
    run_device = device or _device_of(args, kwargs)
    machine = measured_machine(run_device, spec=spec)
    if spec:
        report_stage("counting the work", limit_s)
        return build_diagnosis(predict_problem(problem, machine, reference), problem.name, describe_inputs(problem))
    with problem.restore_buffers():
        if compiled:
            from kernelwright.diagnosis.compiled import observe_compiled

            observation = observe_compiled(problem, machine, run_device, limit_s)
            return build_diagnosis(observation, f"{problem.name}, compiled", describe_inputs(problem))
        observation, _ = _observe(problem, machine, run_device, limit_s, reference)
        return build_diagnosis(observation, problem.name, describe_inputs(problem))


def why_with_work(
    problem: Problem, device: str, machine: Machine, timing_s: float = TIMING_BUDGET_S
) -> tuple[Diagnosis, ProgramWork]:
    """`why` of a problem on a machine that was just measured, timed for `timing_s`, and the work that it counted."""
    with problem.restore_buffers():
        observation, work = _observe(problem, machine, device, RUN_LIMIT_S, is_fresh=True, timing_s=timing_s)
    return build_diagnosis(observation, problem.name, describe_inputs(problem)), work


def why_files(targets: Sequence[str], **options: Any) -> Diagnosis:
    """`why` for the command line: PROBLEM, or PROBLEM CANDIDATE to diagnose the candidate instead of the reference.

    Raises:
        UsageError: more than two targets.
    """
    if len(targets) > 2:
        raise UsageError(f"{len(targets)} targets: expected a problem and at most one candidate", next="kw why --help")
    problem = load_problem(targets[0])
    if len(targets) == 1:
        return why(problem, **options)
    device = options.get("device") or "cpu"
    candidate = load_candidate(targets[1], problem, device)
    report_stage("counting the work", 2 * options.get("limit_s", RUN_LIMIT_S))
    reference = count_problem(problem, device)
    target = replace(problem, name=f"{problem.name}: {candidate.name}", program=candidate.program, module=None)
    return why(target, reference=reference if bypasses_dispatcher(target, reference, device) else None, **options)


def bypasses_dispatcher(candidate: Problem, reference: ProgramWork, device: str) -> bool:
    """Whether a candidate computes outside the torch dispatcher (C++, Triton, NumPy).

    True if its dispatched operators move fewer bytes than the problem's compulsory traffic.
    """
    return count_problem(candidate, device).as_written.total_bytes < reference.fused.total_bytes


def predict_problem(problem: Problem, machine: Machine, reference: ProgramWork | None = None) -> Observation:
    """Predict the observation of a program on an unavailable machine: counted on the CPU, not timed."""
    work = as_single_operator(problem.name, reference) if reference else count_problem(problem, "cpu")
    return predict(problem.summary, machine, work)


def _as_problem(target: Problem | Callable[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Problem:
    if isinstance(target, str):
        return load_problem(target)
    return target if isinstance(target, Problem) else Problem.from_callable(target, *args, **kwargs)


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return "cuda" if any(tensor.is_cuda for tensor in tensor_leaves((args, kwargs))) else "cpu"


def describe_inputs(problem: Problem) -> str:
    """Describe the largest input or parameter: `float32, 16.8 M elements`."""
    parameters = list(problem.module.parameters()) if problem.module else []
    largest = max([*tensor_leaves(problem.meta_inputs), *parameters], key=lambda tensor: tensor.numel(), default=None)
    if largest is None:
        return ""
    return f"{str(largest.dtype).removeprefix('torch.')}, {count_text(largest.numel())} elements"


def _observe(
    problem: Problem,
    machine: Machine,
    device: str,
    limit_s: float,
    reference: ProgramWork | None = None,
    *,
    is_fresh: bool = False,
    timing_s: float = TIMING_BUDGET_S,
) -> tuple[Observation, ProgramWork]:
    import torch

    program, inputs = problem.program_on(device), problem.inputs(device, seed=0)
    with torch.set_grad_enabled(problem.needs_grad(inputs)):
        report_stage("running the program once", limit_s)
        run_once(program, inputs)
        if not is_fresh:  # takes seconds with a large cache, so after the first run of the program
            machine = refresh_memory(machine)
        report_stage("counting the work", 2 * limit_s)
        work = as_single_operator(problem.name, reference) if reference else count_work(program, *inputs)
        report_stage("timing the program")
        timing = time_variants(
            {"now": program},
            inputs,
            device=device,
            last_cache_bytes=last_cache_bytes(machine),
            budget_s=timing_s,
        ).timings["now"]
        if reference:
            faulted = {0} if device == "cpu" and (timing.page_faults_per_call or 0) >= MIN_FAULTS_PER_CALL else set()
            times = OperatorTimes([timing.time_us], faulted)
            return observe(problem.summary, machine, work, times, timing.time_us, timing), work
        report_stage("timing each operator")
        call = RotatingBuffers(inputs, last_cache_bytes(machine)).bind(program)
        is_long = timing.time_us > 1e6 or timing_s < TIMING_BUDGET_S
        passes = 1 if len(work.operators) > MANY_CALLS else 3 if is_long else 7
        times = _operator_times(call, device, len(work.operators), passes)
    try:
        return observe(problem.summary, machine, work, times, timing.time_us, timing), work
    except ValueError as error:
        raise ProblemError(
            f"the operator calls of the program differ from run to run: {error}",
            next="diagnose it while it runs: kw why -- python your_script.py",
        ) from error


def _operator_times(call: Callable[[], Any], device: str, calls: int, passes: int) -> OperatorTimes:
    """Time the counted calls; if counting decomposed composite operators, time them decomposed too."""
    times = time_operators(call, device, passes)
    return times if len(times.times_us) == calls else time_operators(call, device, passes, outer_mode=CountingMode)


def as_single_operator(name: str, reference: ProgramWork) -> ProgramWork:
    """Code that bypasses the torch dispatcher as one operator with the reference's compulsory work."""
    cold_bytes = sum(first_read_bytes(reference).values())
    operator = Operator(
        index=0,
        name=name.rpartition(": ")[2],
        kind="other",
        flops_known=reference.coverage >= 1,
        work=reference.fused,
        shapes="",
        reads=(0,),
        read_spans=((0, 0, cold_bytes, cold_bytes),),
        allocated_bytes=reference.output_bytes,
    )
    return ProgramWork(
        operators=(operator,),
        arguments=(0,),
        as_written=reference.fused,
        fused=reference.fused,
        coverage=reference.coverage,
        output_bytes=reference.output_bytes,
    )


def count_problem(problem: Problem, device: str) -> ProgramWork:
    """The work of one run of a problem on a device."""
    import torch

    inputs = problem.inputs(device, seed=0)
    with torch.set_grad_enabled(problem.needs_grad(inputs)), reraise_as_problem_error():
        return count_work(problem.program_on(device), *inputs)
