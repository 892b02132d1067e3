"""Programs optimised without a stopwatch: every region in the likeliest choice of C++, whatever it is worth."""

import sys
from contextlib import contextmanager

import torch

from kernelwright.compiler import kernel_source
from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.in_memory import with_kernels
from kernelwright.compiler.kernel_source import Kernel, load
from kernelwright.compiler.pipeline import assembled, gradients_of, plan_of, tune_all
from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.tuning import Tuned
from kernelwright.core.optimization import RegionOutcome
from kernelwright.machines import predicted_machine
from kernelwright.problems import Problem, load_problem
from kernelwright.toolchain.cpp import FLAGS

QUICK = tuple("-O1" if flag == "-O3" else flag for flag in FLAGS)


class FirstChoice:
    """Stands where a Tuner stands."""

    device, generator, machine = "cpu", generator_for("cpu"), predicted_machine("h200")

    def __init__(self, keep=True, better=None):
        self.keep, self.kernels, self.better = keep, [], better

    def tune(self, region, reference, inputs):
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
            why="it is the first",
        )
        return Tuned(outcome, kernel)

    def whole(self, problem, changed, kernels):
        return self.better

    def notes(self):
        return []

    def first(self, region):
        for choice in self.generator.choices(region)[:1]:
            try:
                self.generator.text([Kernel(region, choice)])
            except Misfit:
                return None
            return Kernel(region, choice)
        return None


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
    made = with_kernels(Problem.from_callable(model, *args, **kwargs), FirstChoice(), sets=1)
    assert made.optimization.verdict.accepted, made.optimization.verdict.reason
    assert any(region.winner == "first" for region in made.optimization.regions)
    return made


def text_of(target, train=False, keep=True):
    """The file that `kw optimize` writes, without writing it."""
    problem, tuner = load_problem(str(target)), FirstChoice(keep)
    planned = plan_of(problem, "cpu")
    tuned = tune_all(problem, planned, "cpu", tuner)
    gradients, backward = gradients_of(problem, planned, tuned, "cpu", tuner) if train else ([], [])
    return assembled(problem, planned, tuned, backward, gradients, "A test.", "cpu")


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
