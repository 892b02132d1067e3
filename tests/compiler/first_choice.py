"""Programs optimised without a stopwatch: every region in the likeliest choice of C++, whatever it is worth."""

import math
import sys
from contextlib import contextmanager, nullcontext

import torch

from kernelwright.compiler import kernel_source
from kernelwright.compiler.assembly.output_file import assemble_file
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.budget import Budget
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.kernel_source import RegionKernel, load
from kernelwright.compiler.program_variant import EAGER, Variant
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.selection import ProgramSelector
from kernelwright.compiler.session import OptimizationSession
from kernelwright.compiler.tuning import TuningResult
from kernelwright.core.optimization import OWN_KERNELS, RegionOutcome
from kernelwright.machines import machine_from_spec
from kernelwright.problems import Problem, load_problem
from kernelwright.toolchain.cpp import FLAGS

QUICK = tuple("-O1" if flag == "-O3" else flag for flag in FLAGS)


class FirstChoice:
    """Stands where a Tuner stands."""

    device, backend, machine = "cpu", backend_for("cpu"), machine_from_spec("h200")
    compiles_ahead = False

    def __init__(self, keep=True):
        self.keep, self.kernels = keep, []

    def tune(self, region, reference, inputs, limit_s=0.0):
        kernel = self.first(region) if self.keep else None
        self.kernels += [kernel] if kernel else []
        outcome = RegionOutcome(
            name=region.name,
            summary="",
            text=str(region),
            bytes_moved=1,
            floor_us=1.0,
            limiter="DRAM",
            before_us=2.0,
            predicted_us=1.0,
            after_us=1.0,
            winner="first" if kernel else "torch",
            winner_reason="it is the first",
        )
        return TuningResult(outcome, kernel)

    def compile_ahead(self, region, count=None):
        return []

    def is_compiled(self, tasks):
        return True

    def stop_compiling(self):
        pass

    def compile_for_file(self, kernels, text, limit_s):
        pass

    def notes(self):
        return []

    def first(self, region):
        for choice in self.backend.generate_configs(region)[:1]:
            try:
                self.backend.emit([RegionKernel(region, choice)])
            except Unsupported:
                return None
            return RegionKernel(region, choice)
        return None


class KernelsFirst(ProgramSelector):
    """Stands where a ProgramSelector stands: kernels, where there are any."""

    def time_baselines(self):
        pass

    def time_kernels(self):
        pass

    def select(self):
        layer = self.session.kernel_layer()
        return [Variant(OWN_KERNELS, layer), EAGER] if layer else [EAGER], None


def replace_slow_steps(monkeypatch, pipeline, fork_server):
    """`optimize_file` without diagnosis, tuning and stopwatch, and with a running fork server: kernels, where there are
    any."""
    monkeypatch.setattr(pipeline, "ForkServer", lambda *_: nullcontext(fork_server))
    monkeypatch.setattr(pipeline, "why_with_work", lambda *_: (None, None))
    monkeypatch.setattr(pipeline, "refresh_memory", lambda machine, limit_s: machine)
    monkeypatch.setattr(pipeline, "CompilePool", lambda capability: nullcontext())
    monkeypatch.setattr(pipeline, "machine_here", lambda device, **_: machine_from_spec("h200"))
    monkeypatch.setattr(pipeline, "Tuner", lambda *_, **__: FirstChoice())
    monkeypatch.setattr(pipeline, "ProgramSelector", lambda session, **_: KernelsFirst(session))


@contextmanager
def quick():
    """One thread, and a compiler that does not try hard."""
    threads, flags = torch.get_num_threads(), kernel_source.FLAGS
    torch.set_num_threads(1)
    kernel_source.FLAGS = QUICK
    yield
    torch.set_num_threads(threads)
    kernel_source.FLAGS = flags


def optimised(model, *args, **kwargs):
    """As `kernelwright.optimize`, proved on one set of inputs; it has kernels."""
    made = optimize_problem(Problem.from_callable(model, *args, **kwargs), FirstChoice(), 1, KernelsFirst)
    assert made.optimization.verdict.accepted, made.optimization.verdict.reason
    assert any(region.winner == "first" for region in made.optimization.regions)
    return made


def text_of(target, train=False, keep=True):
    """The file that `kw optimize` writes, without writing it."""
    session = OptimizationSession(load_problem(str(target)), FirstChoice(keep), Budget(math.inf))
    session.make_plan(train=train)
    session.tune_regions()
    if train:
        session.tune_gradients()
    layer = session.kernel_layer()
    assert not session.faults, session.faults
    return assemble_file(session.problem, [layer] if layer else [], "A test.")


def module_of(text):
    """The file as a module."""
    return load(text)


class _Watched:
    def __init__(self, library):
        self.library, self.called = library, []

    def __getattr__(self, name):
        self.called.append(name)
        return getattr(self.library, name)


@contextmanager
def kernels_called(module):
    """The names of the kernels that an optimised module calls."""
    names = vars(sys.modules[type(module).__module__]) if "forward" not in vars(type(module)) else None
    names = names or type(module).forward.__globals__
    kernels = "KERNELS_of_file" if "KERNELS_of_file" in names else "KERNELS"
    library = names[kernels]
    names[kernels] = watched = _Watched(library)
    try:
        yield watched.called
    finally:
        names[kernels] = library


def run(module, *args, **kwargs):
    """What it returns, and whether kernels ran for it."""
    with kernels_called(module) as called:
        result = module(*args, **kwargs)
    return result, bool(called)
