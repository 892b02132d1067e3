"""Variants of a whole program, timed against each other in this process: kernels, torch, torch.compile, channels-last,
and each of them in a CUDA graph.

Operators between regions and the overhead of a call count only here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelwright.compiler.assembly.cuda_graph_layer import NUM_PLAIN_CALLS
from kernelwright.compiler.compile_ahead import CompileAhead
from kernelwright.compiler.program_variant import AUTOTUNED, COMPILED, EAGER, Variant, build_variant
from kernelwright.compiler.session import OptimizationSession
from kernelwright.core.optimization import OWN_KERNELS, TORCH, TORCH_COMPILE
from kernelwright.core.progress import report_stage
from kernelwright.core.pytree import storage_bytes
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.buffers import RotatingBuffers
from kernelwright.measure.clock import EventClock, measure_steady_us, wall_s
from kernelwright.measure.paired import InterleavedTimings, time_variants
from kernelwright.problems.held_out import declares_held_out_inputs
from kernelwright.verification.accuracy.expected import Expected, compute_expected
from kernelwright.verification.outcome import tf32_as_set
from kernelwright.verification.quick_check import find_program_mismatch
from kernelwright.verification.verdict import MIN_SETS

MIN_AUTOTUNE_BUDGET_S = 180.0
"""Budget from which on torch.compile may tune: it compiles tens of kernels for each product."""
CLEAR_SPEEDUP = 1.004
"""Speedup that a variant needs over one that is preferred, for each way in which it is more fragile: five at most, so
that no choice is slower than 0.98 times the best. See `ProgramSelector._handicap`."""
QUICK_BUDGET_S, FINAL_BUDGET_S = 0.15, 0.6
MAX_FINALISTS, MIN_VARIANT_S = 3, 1.0
RESERVE_S = {"cpu": 7.0, "cuda": 10.0}
"""What the last timing and the verification of the file take in addition to its goldens, its inputs and building the
program: a process that loads it."""
MAX_COMPILE_SHARE = 0.4
"""Share of the budget that torch.compile of the whole program may take, so that there is time for kernels."""
WARM_SHARE = 0.5
"""Part of the time of a compilation that it takes again, in a process that finds the result in the cache."""
MAX_OPTION_SPEEDUP = 1.5
"""What channels-last order or cuDNN's choice of algorithms may gain."""
MAX_COPY_SHARE = 0.25
"""A graph is tried where its copies take at most this part of a variant's time."""
MAX_CHECKED_SHARE = 32
"""Inputs of at most this part of the device's memory are checked before the file is verified."""
GRAPH_BELOW_US = 20_000.0
"""Longer programs do not wait for their launches."""
_CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Conv3d, torch.nn.ConvTranspose3d)


@dataclass
class ProgramSelector:
    """Builds, checks and times variants of a session's program.

    Attributes:
        quick_us: quick times by the name of the variant.
        ahead: the process that compiles the program already.
    """

    session: OptimizationSession
    use_torch_compile: bool = True
    ahead: CompileAhead | None = None
    variants: dict[str, Variant] = field(default_factory=dict)
    quick_us: dict[str, float] = field(default_factory=dict)
    _kernels_generated: bool = False
    _programs: dict[str, Callable[..., Any]] = field(default_factory=dict)
    _expected: Expected | None = None

    def time_baselines(self) -> None:
        """Time what torch offers for the whole program; the golden first, so that its share of the time is known."""
        budget = self.session.budget
        budget.reserved_s = reserve_s = RESERVE_S[self.session.device] + self.session.rebuilding_s
        with self.session.isolated("no variant is checked"), torch.no_grad():
            start_s = wall_s()
            if not self._too_large_to_check():
                self._golden()
            budget.reserved_s = reserve_s + MIN_SETS * (wall_s() - start_s)
        self._try(EAGER)
        if self.ahead is None:
            self._time_compiled()
        if self.session.device == "cpu":  # the kernels are planned for the order of channels that is fastest
            self.time_options()

    @property
    def later_s(self) -> float:
        """What torch.compile of the whole program takes after the kernels: about what their plan took."""
        return self.session.planning_s if self.ahead else 0.0

    def _time_compiled_ahead(self, ahead: CompileAhead) -> None:
        """Time what another process has compiled, waiting for it if necessary."""
        report_stage("torch.compile of the whole program in another process", 120)
        if ahead.wait(self.session.budget.remaining_s - self.later_s):
            self._time_compiled()
        else:
            self.session.budget.left_out.append(TORCH_COMPILE)

    def _time_compiled(self) -> None:
        """Time torch.compile of the whole program."""
        if not self.use_torch_compile:
            return
        report_stage("torch.compile of the whole program", 300)
        start_s = wall_s()
        self._try(COMPILED)
        if TORCH_COMPILE in self.variants:  # it is compiled again where the file is verified
            again_s = (wall_s() - start_s) * (1.0 if self.ahead else WARM_SHARE)
            held_out_s = wall_s() - start_s if declares_held_out_inputs(self.session.problem) else 0.0
            self.session.budget.reserved_s += again_s + held_out_s

    def time_options(self) -> None:
        """Time torch with channels last and with cuDNN's fastest algorithms, then the best variants in CUDA graphs."""
        if self.session.problem.source and has_convolutions(self.session.program) and not self._kernels_lead():
            options: list[dict[str, Any]] = [{"channels_last": True}]
            options += [{"cudnn_benchmark": True}] if self.session.device == "cuda" else []
            for option in options:
                for engine in (TORCH, TORCH_COMPILE):
                    self._try_option(engine, **option)
        if TORCH_COMPILE in self.variants and MIN_AUTOTUNE_BUDGET_S <= self.session.budget.total_s < math.inf:
            self._try(AUTOTUNED)
        self._try_graphs(2)

    def _kernels_lead(self) -> bool:
        """Whether the kernels are so much faster than torch that no option of torch's makes up for it."""
        fastest, torch_alone = self._fastest(TORCH, TORCH_COMPILE, OWN_KERNELS), self._fastest(TORCH, TORCH_COMPILE)
        if fastest is None or torch_alone is None:
            return False
        return self.quick_us[torch_alone.name] > MAX_OPTION_SPEEDUP * self.quick_us[fastest.name]

    def _try_option(self, engine: str, **option: Any) -> None:
        """Try the fastest variant of an engine with one more option; torch.compile only where it helps torch."""
        if (fastest := self._fastest(engine)) is None:
            return
        helps_torch = any(getattr(self._fastest(TORCH), name, False) for name in option)
        if engine == TORCH or helps_torch:
            self._try(replace(fastest, **option))

    def _fastest(self, *engines: str) -> Variant | None:
        """The fastest variant so far of some engines, simpler ones preferred."""
        names = [name for name in self._best(len(self.quick_us)) if self.variants[name].engine in engines]
        return self.variants[names[0]] if names else None

    @property
    def options(self) -> dict[str, bool]:
        """The options of the fastest variant of torch, for the kernels."""
        fastest = self._fastest(TORCH, TORCH_COMPILE) or EAGER
        return {"channels_last": fastest.channels_last, "cudnn_benchmark": fastest.cudnn_benchmark}

    def time_kernels(self) -> None:
        """Time the program with its regions' kernels, then the best variants in CUDA graphs."""
        layer = None
        with self.session.isolated("the kernels are not used"):
            layer = self.session.kernel_layer()
        if layer:
            self._kernels_generated = any(not kernel.torch_source for kernel in layer.kernels)
            options = {**self.options, "channels_last": self.session.channels_last}
            self._try(Variant(OWN_KERNELS, layer, **options))
            self._try_graphs(1)
        if self.ahead and TORCH_COMPILE not in self.variants:
            self._time_compiled_ahead(self.ahead)

    def _try_graphs(self, count: int) -> None:
        """Try the best variants in CUDA graphs, unless they are so long that launches do not matter."""
        for name in self._best(count) if self.session.device == "cuda" else ():
            if (
                self.quick_us[name] < GRAPH_BELOW_US
                and not self.variants[name].in_graph
                and self._copies_are_short(name)
            ):
                self._try(replace(self.variants[name], in_graph=True))

    def _copies_are_short(self, name: str) -> bool:
        """Whether the copies into a graph take a small part of a variant's time."""
        memory = self.session.tuner.machine.levels[-1]
        copy_us = 2 * storage_bytes(self.session.inputs) / (memory.copy_gb_s or math.inf) / 1e3
        return copy_us < MAX_COPY_SHARE * self.quick_us[name]

    def _best(self, count: int) -> list[str]:
        """The names of the fastest variants, simpler ones preferred."""
        return sorted(self.quick_us, key=lambda name: self.quick_us[name] * self._handicap(name))[:count]

    def _handicap(self, name: str) -> float:
        """Factor on the time of a variant, so that a more fragile one has to be clearly faster."""
        variant = self.variants[name]
        own, torch_alone = (1.0, CLEAR_SPEEDUP) if self._kernels_generated else (CLEAR_SPEEDUP, 1.0)
        factor = own if variant.engine == OWN_KERNELS else torch_alone
        factor *= CLEAR_SPEEDUP if variant.engine == TORCH_COMPILE else 1.0
        return factor * CLEAR_SPEEDUP ** len(variant.options)

    # ---- one variant

    def _try(self, variant: Variant) -> None:
        """Build, check and quickly time a variant; whatever goes wrong costs this variant alone."""
        if variant is not EAGER and not self.session.budget.allows(MIN_VARIANT_S, variant.name):
            return
        report_stage(f"trying {variant.name}", 120)
        budget = self.session.budget
        share = MAX_COMPILE_SHARE if variant in (COMPILED, AUTOTUNED) else 1.0
        limit_s = max(min(budget.remaining_s, share * budget.total_s), MIN_VARIANT_S)
        with self.session.isolated(f"{variant.name} is not used", limit_s), torch.no_grad():
            program = self._build(variant)
            if reason := self._find_mismatch(program, variant):
                self.session.faults.append(f"{variant.name} is not used: {reason}")
                return
            quick_us = self._time_us(program)
            self.variants[variant.name], self._programs[variant.name] = variant, program
            self.quick_us[variant.name] = quick_us
            self._drop_slow_programs()

    def _drop_slow_programs(self) -> None:
        """Free the programs that can neither win nor are baselines: graphs hold device memory."""
        kept = {TORCH, TORCH_COMPILE, *self._best(MAX_FINALISTS)}
        self._programs = {name: program for name, program in self._programs.items() if name in kept}

    def _build(self, variant: Variant) -> Callable[..., Any]:
        return build_variant(variant, self.session.problem, self.session.program, self.session.device)

    def _find_mismatch(self, program: Callable[..., Any], variant: Variant) -> str:
        """What is wrong with a variant's results for the session's inputs, or an empty string."""
        if variant is EAGER or self._too_large_to_check():
            return ""
        calls = 1 + NUM_PLAIN_CALLS * variant.in_graph  # a graph is captured after some calls
        mismatches = (find_program_mismatch(program, self.session.inputs, self._golden()) for _ in range(calls))
        return next(filter(None, mismatches), "")

    def _too_large_to_check(self) -> bool:
        """Whether FP64 copies of the inputs do not fit next to what is timed; the file is verified by itself."""
        if self.session.device != "cuda":
            return False
        return storage_bytes(self.session.inputs) > torch.cuda.mem_get_info()[1] / MAX_CHECKED_SHARE

    def _golden(self) -> Expected:
        if self._expected is None:
            report_stage("computing the program in FP64", 120)
            with tf32_as_set():
                self._expected = compute_expected(
                    self.session.program, self.session.problem.module, self.session.inputs
                )
        return self._expected

    def _time_us(self, program: Callable[..., Any]) -> float:
        buffers = RotatingBuffers(self.session.inputs, self._cache_bytes)
        if not self._too_large_to_check() and self._golden().mutated_inputs:
            buffers.save_if_mutated(program)
        try:
            return measure_steady_us(buffers.bind(program), self.session.device, budget_s=QUICK_BUDGET_S)
        finally:
            buffers.restore()

    @property
    def _cache_bytes(self) -> int:
        return last_cache_bytes(self.session.tuner.machine)

    # ---- the choice

    def select(self) -> tuple[list[Variant], InterleavedTimings | None]:
        """Time the fastest variants interleaved with eager torch and torch.compile.

        Returns:
            The variants, best first, and the timings; the original alone, without timings, if nothing could be timed.
        """
        if not self.variants:
            return [EAGER], None
        baselines = [name for name in (TORCH, TORCH_COMPILE) if name in self.variants]
        names = list(dict.fromkeys([*self._best(MAX_FINALISTS), *baselines]))
        self._programs |= {name: self._build(self.variants[name]) for name in names if name not in self._programs}
        programs = {name: self._programs[name] for name in names}
        report_stage(f"timing {len(programs)} variants of the whole program")
        in_graph = any(self.variants[name].in_graph for name in names)
        with self.session.problem.restore_buffers(), torch.no_grad():
            rounds = time_variants(
                programs,
                self.session.inputs,
                device=self.session.device,
                last_cache_bytes=self._cache_bytes,
                budget_s=FINAL_BUDGET_S * len(programs),
                clock=EventClock() if in_graph else None,
            )
        times = self._eligible(rounds)
        best = sorted(times, key=lambda name: times[name] * self._handicap(name))
        return [self.variants[name] for name in best], rounds

    def drop_kernels(self) -> None:
        """Forget the variants with kernels."""
        for name in [name for name, variant in self.variants.items() if variant.engine == OWN_KERNELS]:
            for known in (self.variants, self.quick_us, self._programs):
                known.pop(name, None)

    def release(self) -> None:
        """Free the programs and their memory, which the process that verifies the file needs."""
        self._programs.clear()
        self._expected = None
        self.session.release()

    def _eligible(self, rounds: InterleavedTimings) -> dict[str, float]:
        """The times of the variants that may win.

        Where CUDA graphs of several calls were timed, which hide launch overhead, torch.compile may not win if its
        plain call is slower than another's.
        """
        times = {name: timing.time_us for name, timing in rounds.timings.items()}
        if TORCH_COMPILE in times and rounds.timings[TORCH_COMPILE].conditions.clock == "graph":
            others = [self.quick_us[name] for name in times if name != TORCH_COMPILE]
            if others and self.quick_us[TORCH_COMPILE] > min(others):
                del times[TORCH_COMPILE]
        return times


def has_convolutions(program: Any) -> bool:
    """Whether a module has two- or three-dimensional convolutions."""
    return isinstance(program, torch.nn.Module) and any(isinstance(one, _CONVOLUTIONS) for one in program.modules())
