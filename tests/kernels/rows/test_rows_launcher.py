"""What is launched again as it was compiled, and what Triton has to look at once more."""

import os
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from kernelwright.kernels.rows import launcher
from kernelwright.kernels.rows.launcher import as_rows, launch_programs

COMPILED = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="nothing is compiled where it is interpreted")
CPU = torch.device("cpu")


class Kernel:
    """Stands for one of Triton's: notes what is compiled, and what the compiled kernel is launched with."""

    programmatic_launch = False

    def __init__(self, *names, unspecialized=()):
        self.arg_names, self.fn = list(names), lambda: None
        self.params = [SimpleNamespace(do_not_specialize=name in unspecialized) for name in names]
        self.compiled, self.launched = [], []

    def __getitem__(self, grid):
        def compile(*arguments, **constants):
            self.compiled.append((arguments, constants))
            number = len(self.compiled)
            run = SimpleNamespace(
                global_scratch_size=0, profile_scratch_size=0, launch_cooperative_grid=False, launch_pdl=False
            )
            run.launch = lambda *given: self.launched.append((number, given))
            return SimpleNamespace(run=run, function="function", packed_metadata="metadata")

        return compile


@pytest.fixture
def no_device(monkeypatch):
    """The CPU as the only device, with a stream of its own, and a Triton whose launcher is known."""
    monkeypatch.setattr(launcher, "DEVICE_TYPE", "cpu")
    monkeypatch.setattr(launcher, "TRITON_3_6", True)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)


@COMPILED
def test_a_launch_like_one_before_goes_past_triton(no_device):
    kernel, x, y = Kernel("x_ptr", "scale", "M", "N", unspecialized=["M"]), torch.ones(4), torch.ones(8)
    launch_programs(kernel, 3, CPU, (x, 0.5, 7), num_warps=2, N=16)
    launch_programs(kernel, 5, CPU, (y, 2.5, 16), num_warps=2, N=16)
    ((arguments, constants),) = kernel.compiled
    assert arguments == (x, 0.5, 7)
    assert constants == {"num_warps": 2, "launch_pdl": False, "N": 16}
    about = ("function", False, False, None, None, "metadata", None, None, None)
    assert kernel.launched == [(1, (5, 1, 1, 77, *about, y.data_ptr(), 2.5, 16, 16))]


ALIGNED = torch.ones(8)
GIVEN = {
    "another place": (ALIGNED, 16, 5, 1.0, None, 4),
    "not at 16 bytes": (ALIGNED[1:], 16, 5, 1.0, None, 4),
    "another dtype": (ALIGNED.double(), 16, 5, 1.0, None, 4),
    "an integer": (ALIGNED, 17, 5, 1.0, None, 4),
    "one": (ALIGNED, 1, 5, 1.0, None, 4),
    "no float": (ALIGNED, 16, 5, 1, None, 4),
    "a tensor for None": (ALIGNED, 16, 5, 1.0, ALIGNED, 4),
    "a float for an integer": (ALIGNED, 1.0, 5, 16, None, 4),
    "long": (ALIGNED, 16, 2**31, 1.0, None, 4),
    "negative": (ALIGNED, 16, -1, 1.0, None, 4),
    "more warps": (ALIGNED, 16, 5, 1.0, None, 8),
}


@COMPILED
def test_what_triton_compiles_for_is_not_mixed_up(no_device):
    kernel = Kernel("x_ptr", "stride", "M", "scale", "y_ptr", "N", "B", unspecialized=["M"])
    for _ in range(2):
        for *given, warps in GIVEN.values():
            for constants in ({"N": 1, "B": 2}, {"B": 1, "N": 2}):
                launch_programs(kernel, 1, CPU, tuple(given), num_warps=warps, **constants)
    assert len(kernel.compiled) == len(kernel.launched) == 2 * len(GIVEN)
    assert [number for number, _ in kernel.launched] == list(range(1, 2 * len(GIVEN) + 1))


@COMPILED
def test_one_tensor_twice_is_two_arguments(no_device):
    kernel, x, y = Kernel("x_ptr", "y_ptr"), torch.ones(4), torch.ones(4)
    for one, other in [(x, x), (x, y), (y, x), (y, y)]:
        launch_programs(kernel, 1, CPU, (one, other), num_warps=1)
    assert len(kernel.compiled) == 1
    wanted = [(x, y), (y, x), (y, y)]
    assert [given[-2:] for _, given in kernel.launched] == [(a.data_ptr(), b.data_ptr()) for a, b in wanted]


@COMPILED
def test_launchers_are_not_kept_without_end(no_device, monkeypatch):
    monkeypatch.setattr(launcher, "MAX_CACHED_LAUNCHERS", 3)
    launcher._LAUNCHERS.clear()
    kernel = Kernel("stride")
    for stride in range(10):
        launch_programs(kernel, 1, CPU, (stride,), num_warps=1)
        assert len(launcher._LAUNCHERS) <= 3


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (4,), (2, 3, 4), (2, 1, 3, 4), (3, 1), (1, 1), (0, 4), (2, 3, 5, 1)])
def test_where_rows_of_a_contiguous_tensor_begin(shape, levels):
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)
    tensor, place = as_rows(x, levels)
    assert tensor is x
    sizes, strides = place[: levels - 1], place[levels - 1 :]
    for row in range(x.numel() // shape[-1]):
        rest, at = row, 0
        for size, stride in zip(sizes, reversed(strides[1:]), strict=True):
            rest, inner = divmod(rest, size)
            at += inner * stride
        begins = at + rest * strides[0]
        assert torch.equal(x.view(-1)[begins : begins + shape[-1]], x.view(-1, shape[-1])[row])
