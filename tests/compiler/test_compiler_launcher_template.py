"""A kernel is launched past Triton's Python where what that found out still holds, and through it everywhere else."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from kernelwright.compiler.triton.launcher_template import LAUNCHER_TEMPLATE

X = torch.zeros(64)


class Run:
    """A launcher of Triton 3.6: `launch` is what its own call leads to."""

    launch_cooperative_grid, launch_pdl = "cooperative", "pdl"
    profile_scratch_size = 0

    def __init__(self, scratch):
        self.global_scratch_size, self.seen = scratch, []

    def launch(self, *given):
        self.seen.append(("launch", given))

    def __call__(self, *given):
        self.seen.append(("run", given))


class Kernel:
    """`compiled` is what Triton gives; the interpreter gives None."""

    def __init__(self, compiled, cuda):
        self.compiled, self.cuda, self.calls, self.devices = compiled, cuda, [], []

    def __getitem__(self, grid):
        def launch(*tensors, **options):
            self.calls.append((grid, tensors, options))
            self.devices.append(self.cuda.here)
            return self.compiled

        return launch


class Cuda:
    """Of torch what knows which device is the current one; tensors here lie on -1."""

    here = -1

    def get_device_properties(self, device):
        return SimpleNamespace(multi_processor_count=46)

    @contextmanager
    def device(self, index):
        before, self.here = self.here, index
        yield
        self.here = before


def of_file(cuda, version="3.6.0"):
    """What a file's launches begin with, on machines that are not here."""
    guards = SimpleNamespace(_empty_strided_cuda=lambda *layout: ("taken here", *layout))
    inside = SimpleNamespace(_cuda_getDevice=lambda: cuda.here, _dynamo=SimpleNamespace(guards=guards))
    names = {
        "torch": SimpleNamespace(cuda=cuda, _C=inside),
        "triton": SimpleNamespace(__version__=version),
        "driver": SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: f"stream of {device}")),
    }
    exec(LAUNCHER_TEMPLATE, names)
    return names


def started(compiled, version="3.6.0", cuda=None, **options):
    cuda = cuda or Cuda()
    kernel = Kernel(compiled, cuda)
    return kernel, of_file(cuda, version)["make_launcher"](kernel, 12, 4, **options)


def compiled_with(scratch=0):
    return SimpleNamespace(run=Run(scratch), function="function", packed_metadata="metadata")


HOOKS = ("metadata", None, None, None)


@pytest.mark.parametrize(
    ("version", "scratch", "how", "about"),
    [
        ("3.6.1", 0, "launch", ("function", "cooperative", "pdl", None, None, *HOOKS)),
        ("3.6.0", 8, "run", ("function", *HOOKS)),
        ("3.7.0", 0, "run", ("function", *HOOKS)),
    ],
)
def test_what_was_launched_once_is_launched_as_it_is(version, scratch, how, about):
    compiled = compiled_with(scratch)
    kernel, start = started(compiled, version)
    start(X, X[16:])
    start(X, X[16:])
    ((grid, _, options),) = kernel.calls
    assert (grid, options) == ((12,), {"num_warps": 4})
    pointers = X.data_ptr(), X[16:].data_ptr()
    assert compiled.run.seen == [(how, (12, 1, 1, f"stream of {X.get_device()}", *about, *pointers))]


def test_memory_that_is_not_aligned_is_for_triton_to_look_at():
    compiled = compiled_with()
    kernel, start = started(compiled)
    for tensor in (X[1:], X, X[1:], X):
        start(tensor)
    assert len(kernel.calls) == 3
    assert len(compiled.run.seen) == 1


def test_what_lies_on_another_device_is_launched_there():
    cuda, compiled = Cuda(), compiled_with()
    kernel, start = started(compiled, cuda=cuda)
    start(X)
    cuda.here = 3
    start(X)
    assert kernel.devices == [-1, -1]
    assert not compiled.run.seen


def test_programs_that_wait_for_each_other_are_not_started_where_they_would_wait_for_ever():
    kernel, start = started(compiled_with(), resident_programs=47)
    with pytest.raises(RuntimeError, match="47 programs have to be resident at once, but this GPU has 46"):
        start(X)
    assert not kernel.calls
    kernel, start = started(compiled_with(), resident_programs=46)
    start(X)
    assert len(kernel.calls) == 1


def test_the_interpreter_compiles_nothing():
    kernel, start = started(None)
    start(X)
    start(X)
    assert len(kernel.calls) == 2


@pytest.mark.parametrize(("is_cuda", "lies_on", "here"), [(True, 0, 0), (True, 1, 0), (False, -1, -1)])
def test_memory_is_taken_where_the_tensor_lies(is_cuda, lies_on, here):
    cuda, layout = Cuda(), ((2, 3), (3, 1), torch.float16)
    cuda.here = here
    tensor = SimpleNamespace(
        is_cuda=is_cuda,
        dtype=torch.int8,
        get_device=lambda: lies_on,
        new_empty_strided=lambda shape, strides, dtype: ("beside it", shape, strides, dtype),
    )
    how = "taken here" if is_cuda and lies_on == here else "beside it"
    assert of_file(cuda)["empty_on_device_of"](tensor, *layout) == (how, *layout)
    if is_cuda and lies_on == here:
        assert of_file(cuda)["empty_on_device_of"](tensor, *layout[:2]) == (how, *layout[:2], torch.int8)
