"""Calls with another number of rows: launched as Triton would have launched them, without asking it or any Python of
the operator's again, and only where everything else is the same."""

import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
from triton.runtime import JITFunction

from kernelwright.kernels import dynamic_rows, launch_cache, launch_codegen
from kernelwright.kernels.activations import op as activations
from kernelwright.kernels.dynamic_rows import LeadingDims, find_leading_dims, row_key
from kernelwright.kernels.launch_codegen import RowCountExpr
from kernelwright.kernels.losses import op as losses
from kernelwright.kernels.norms import op as norms
from kernelwright.kernels.operators import ShapeError
from kernelwright.kernels.rows import launcher
from kernelwright.kernels.softmaxes import op as softmaxes

pytestmark = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="nothing is recorded where it is interpreted")
MULTIPROCESSORS = 32
MODULES = activations, losses, norms, softmaxes


class Device:
    """Stands for a CUDA device and Triton's dispatcher: kernels are never run, so tensors may be uninitialised.

    Attributes:
        dispatched: names of the kernels that Triton was asked for.
        launched: of every launch the kernel's name, its grid, its arguments by name, and what it was compiled with.
        starts: launches that took the operator's own Python.
    """

    def __init__(self):
        self.dispatched, self.launched, self.starts = [], [], 0

    def compile(self, kernel, *arguments, grid, warmup, **constants):
        del warmup
        name, names = kernel.fn.__name__, kernel.arg_names
        self.dispatched.append(name)
        compiled = tuple(sorted((one, constants[one]) for one in constants))

        def launch(*given):
            assert given[3] == 77, "the current stream"
            self.launched.append((name, given[:3], dict(zip(names, given[-len(names) :], strict=True)), compiled))

        passed = [one.data_ptr() if isinstance(one, Tensor) else one for one in arguments]
        launch(*grid, 1, 1, 77, *passed, *(constants[one] for one in names[len(passed) :]))

        run = SimpleNamespace(
            global_scratch_size=0,
            profile_scratch_size=0,
            launch_cooperative_grid=False,
            launch_pdl=False,
            launch=launch,
        )
        return SimpleNamespace(run=run, function=1, packed_metadata=(name, compiled))


@pytest.fixture
def device(monkeypatch):
    here = Device()
    watched = launcher.record_launch

    def counted(launch):
        here.starts += 1
        watched(launch)

    def compile(kernel, *arguments, **constants):
        return here.compile(kernel, *arguments, **constants)

    monkeypatch.setattr(JITFunction, "run", compile)
    monkeypatch.setattr(launcher, "DEVICE_TYPE", "cpu")
    monkeypatch.setattr(launcher, "TRITON_3_6", True)
    monkeypatch.setattr(launcher, "record_launch", counted)
    monkeypatch.setattr(launcher, "uses_pdl", lambda kernel, device: True)
    monkeypatch.setattr(launcher, "_LAUNCHERS", {})
    for module in (launcher, activations):
        monkeypatch.setattr(module, "multiprocessors", lambda device: MULTIPROCESSORS)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    remembering = [one for module in MODULES for one in vars(module).values() if hasattr(one, "cache_clear")]
    for one in remembering:
        one.cache_clear()
    yield here
    for one in remembering:
        one.cache_clear()


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype)


def halves(M, N):
    return empty(M, 2 * N).chunk(2, -1)


def halves_of_sequences(M, N):
    return empty(3, M, 2 * N).chunk(2, -1)


def targets(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def norm_of(x, centred):
    return x, None, empty(x.shape[-1]), None, 1e-6, 0.0, centred, False, True


def loss_of(x, dloss):
    scale = empty(*[0] * dloss.dim(), dtype=FP32)
    return dloss, scale, x, targets(*x.shape[:-1]), None, empty(2, *x.shape[:-1], dtype=FP32), -100, 0.0, 0.0, 0.0


FP32 = torch.float32
CALLS = {
    "rms_norm": (norms.rms_norm, lambda M, N: ((empty(M, N), empty(N)), {})),
    "rms_norm, no weight": (norms.rms_norm, lambda M, N: ((empty(M, N),), {})),
    "rms_norm, sequences": (norms.rms_norm, lambda M, N: ((empty(3, M, N), empty(N)), {})),
    "rms_norm, residual": (norms.rms_norm, lambda M, N: ((empty(M, N), empty(N)), {"residual": empty(M, N)})),
    "rms_norm, residual in FP32": (
        norms.rms_norm,
        lambda M, N: ((empty(M, N), empty(N)), {"residual": empty(M, N, dtype=FP32)}),
    ),
    "rms_norm, strided residual of sequences": (
        norms.rms_norm,
        lambda M, N: ((empty(3, M, N), empty(N)), {"residual": halves_of_sequences(M, N)[1]}),
    ),
    "rms_norm, strided": (norms.rms_norm, lambda M, N: ((halves(M, N)[1], empty(N)), {})),
    "layer_norm": (norms.layer_norm, lambda M, N: ((empty(M, N), empty(N), empty(N)), {})),
    "layer_norm, one tensor twice": (norms.layer_norm, lambda M, N: ((empty(M, N), *[empty(N)] * 2), {})),
    "layer_norm, residual": (norms.layer_norm, lambda M, N: ((empty(M, N),), {"residual": empty(M, N)})),
    "softmax": (softmaxes.softmax, lambda M, N: ((empty(M, N),), {})),
    "softmax, FP32": (softmaxes.softmax, lambda M, N: ((empty(M, N, dtype=FP32),), {})),
    "softmax, mask": (softmaxes.softmax, lambda M, N: ((empty(M, N),), {"mask": empty(M, N, dtype=torch.bool)})),
    "softmax, mask of columns": (softmaxes.softmax, lambda M, N: ((empty(M, N),), {"mask": empty(1, N)})),
    "softmax, mask of sequences' columns": (softmaxes.softmax, lambda M, N: ((empty(2, M, N),), {"mask": empty(N)})),
    "log_softmax": (softmaxes.log_softmax, lambda M, N: ((empty(M, N),), {"scale": 0.5})),
    "mean loss": (losses.cross_entropy, lambda M, N: ((empty(M, N), targets(M)), {})),
    "summed loss": (losses.cross_entropy, lambda M, N: ((empty(M, N), targets(M)), {"reduction": "sum"})),
    "losses": (losses.cross_entropy, lambda M, N: ((empty(M, N), targets(M)), {"reduction": "none"})),
    "losses of sequences": (
        losses.cross_entropy,
        lambda M, N: ((empty(2, M, N), targets(2, M)), {"reduction": "none", "label_smoothing": 0.1}),
    ),
    "swiglu": (activations.swiglu, lambda M, N: ((empty(M, N), empty(M, N)), {})),
    "swiglu of halves": (activations.swiglu, lambda M, N: (halves(M, N), {})),
    "swiglu of sequences' halves": (activations.swiglu, lambda M, N: (halves_of_sequences(M, N), {})),
    "gelu with bias": (activations.gelu, lambda M, N: ((empty(M, N),), {"bias": empty(N)})),
    "dropout": (activations.dropout_add, lambda M, N: ((empty(M, N), empty(M, N), 0.5), {"seed": M})),
    "rms_norm, its statistics kept": (norms._forward, lambda M, N: (norm_of(empty(M, N), centred=False), {})),
    "layer_norm, its statistics kept": (norms._forward, lambda M, N: (norm_of(empty(3, M, N), centred=True), {})),
    "gradient of softmax": (softmaxes._backward, lambda M, N: ((empty(M, N), empty(M, N), 1.0, False, False), {})),
    "mean loss, to be differentiated": (
        losses._forward,
        lambda M, N: ((empty(M, N), targets(M), None, -100, 0.0, 0.0, 0.0, "mean", True), {}),
    ),
    "gradient of a mean loss": (losses._backward, lambda M, N: (loss_of(empty(M, N), empty(dtype=FP32)), {})),
    "gradient of losses": (losses._backward, lambda M, N: (loss_of(empty(M, N), empty(M, dtype=FP32)), {})),
    "loss and gradient in place": (
        losses._overwrite_with_gradient,
        lambda M, N: ((empty(M, N), targets(M), None, losses.LossParams(-100, 0.0, 0.0, 0.0), "mean"), {}),
    ),
    "gradient of swiglu": (
        activations._backward,
        lambda M, N: ((empty(M, N), empty(M, N), empty(M, N), None, "silu", False, 0.0, 0), {}),
    ),
}
ROWS = 0, 1, 2, 3, 5, 8, 9, 13, 16, 31, 64, 100, 133, 1000, 1024, 2047, 4095, 4096, 4097, 6000, 20000
"""On both sides of every number where a configuration changes, and equal to a row's length."""
WARM = 5000, 5001, 5002
"""A group's first call, and two that are recorded."""


def plainly(call):
    """The call by the operator's own Python, with nothing that is remembered."""
    return lambda *args, **kwargs: launch_cache._call_on_fast_path(call, args, kwargs)


def launches(here, call, args, kwargs):
    """The launches of a call, and its results."""
    here.launched.clear()
    results = call(*args, **kwargs)
    return list(here.launched), [results] if isinstance(results, Tensor) else list(results)


def comparable(launched, results, args, kwargs):
    """Names for addresses, and how results lie."""
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
    names = {one.data_ptr(): f"result {at}" for at, one in enumerate(results) if one.numel()}
    names |= {one.data_ptr(): f"argument {at}" for at, one in enumerate(tensors)}
    found = []
    for kernel, grid, given, compiled in launched:
        pointers = {name: names.get(one, "scratch") for name, one in given.items() if one and name.endswith("_ptr")}
        found.append((kernel, grid, given | pointers, compiled))
    return found, [(one.shape, one.stride(), one.dtype) for one in results]


@pytest.mark.parametrize("N", [13, 64, 4096, 20000])
@pytest.mark.parametrize("name", CALLS)
def test_any_number_of_rows_is_launched_as_by_the_operators_own_python(device, name, N):
    call, given = CALLS[name]
    for M in (*ROWS, *ROWS[::-1], *ROWS):
        args, kwargs = given(M, N)
        got = comparable(*launches(device, call, args, kwargs), args, kwargs)
        want = comparable(*launches(device, plainly(call), args, kwargs), args, kwargs)
        assert got == want, M


@pytest.mark.parametrize("N", [13, 64, 4096, 20000])
@pytest.mark.parametrize("name", CALLS)
def test_a_new_number_of_rows_needs_neither_triton_nor_the_operators_own_python(device, name, N):
    call, given = CALLS[name]
    for M in WARM:
        args, kwargs = given(M, N)
        call(*args, **kwargs)
    dispatched, starts = len(device.dispatched), device.starts
    for M in (5003, 8192, 7001):
        args, kwargs = given(M, N)
        assert launches(device, call, args, kwargs)[0]
    assert (len(device.dispatched), device.starts) == (dispatched, starts)


def test_each_kernel_is_dispatched_once(device):
    for M in range(4200, 4300):
        losses.cross_entropy(empty(M, 512), targets(M))
    assert sorted(device.dispatched) == ["cross_entropy_forward", "reduce_losses_kernel", "reduce_losses_kernel"]
    del device.dispatched[:]
    for M in range(4200, 4300):
        norms.rms_norm(empty(M, 512))
    assert device.dispatched == ["norm_forward"]


def misaligned(M, N):
    return torch.empty(M * N + 1, dtype=torch.bfloat16)[1:].view(M, N)


OTHER = {
    "a row's length": (lambda M: (empty(M, 128), empty(128)), {}),
    "a dtype": (lambda M: (empty(M, 64, dtype=torch.float16), empty(64)), {}),
    "a dtype of the weight": (lambda M: (empty(M, 64), empty(64, dtype=FP32)), {}),
    "an address that is no multiple of 16": (lambda M: (misaligned(M, 64), empty(64)), {}),
    "a stride of rows": (lambda M: (halves(M, 64)[0], empty(64)), {}),
    "no weight": (lambda M: (empty(M, 64),), {}),
    "an option": (lambda M: (empty(M, 64), empty(64)), {"cast_first": True}),
    "few rows": (lambda M: (empty(M % 7 + 2, 64), empty(64)), {}),
    "one row": (lambda M: (empty(1, 64), empty(64)), {}),
    "one dimension": (lambda M: (empty(64), empty(64)), {}),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_triton_compiles_for_is_dispatched_again(device, name):
    given, kwargs = OTHER[name]
    for M in (*WARM, 6000):
        norms.rms_norm(empty(M, 64), empty(64))
    dispatched, starts = len(device.dispatched), device.starts
    args = given(6000)
    got = comparable(*launches(device, norms.rms_norm, args, kwargs), args, kwargs)
    assert (len(device.dispatched), device.starts) == (dispatched + 1, starts + 1)
    assert got == comparable(*launches(device, plainly(norms.rms_norm), args, kwargs), args, kwargs)


def test_another_device_is_another_group(monkeypatch):
    monkeypatch.setattr(launch_cache, "is_plain_tensor", lambda tensor, asks: True)
    one, other = (launch_cache._make_call_key((torch.empty(4, 8, device=device),), 0) for device in ("cpu", "meta"))
    assert one and other and one.static_args != other.static_args


def test_a_replay_launches_on_its_tensors_device_and_the_stream_that_is_current(device, monkeypatch):
    there, current, streams, launched = None, [None], [5], []

    @contextmanager
    def on(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0])
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: streams[0])

    def run(stream, x):
        launched.append((stream, current[0]))

    @launch_cache.cached_launch(rows="x")
    def call(x):
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(run, (launch_codegen.CURRENT_STREAM,), (x,)))

    for M in WARM:
        call(empty(M, 8))
    for at, (where, stream) in enumerate([(None, 5), (1, 5), (None, 6)]):
        current[0], streams[0] = where, stream
        call(empty(6000 + at, 8))
        assert current[0] == where
    assert launched == [(5, there), (5, there), (6, there)]


WRONG = {
    "a weight of another length": lambda M: norms.rms_norm(empty(M, 64), empty(M)),
    "a residual of fewer rows": lambda M: norms.rms_norm(empty(M, 64), empty(64), residual=empty(M - 1, 64)),
    "fewer targets": lambda M: losses.cross_entropy(empty(M, 64), targets(M - 1)),
    "targets of another shape": lambda M: losses.cross_entropy(empty(M, 64), targets(M, 1)),
    "a mask of other rows": lambda M: softmaxes.softmax(empty(M, 64), mask=empty(M - 1, 64)),
    "a mask of one sequence": lambda M: softmaxes.softmax(empty(2, M, 64), mask=empty(1, M - 1, 64)),
    "other rows of the other half": lambda M: activations.swiglu(empty(M, 64), empty(M - 1, 64)),
}


@pytest.mark.parametrize("name", WRONG)
def test_sizes_that_do_not_go_together_are_told_after_any_number_of_calls(device, name):
    for M in (64, *WARM, 64, 6000, 2, 3, 4):
        norms.rms_norm(empty(M, 64), empty(64))
        norms.rms_norm(empty(M, 64), empty(64), residual=empty(M, 64))
        losses.cross_entropy(empty(M, 64), targets(M))
        softmaxes.softmax(empty(M, 64), mask=empty(M, 64))
        softmaxes.softmax(empty(2, M, 64), mask=empty(1, M, 64))
        activations.swiglu(empty(M, 64), empty(M, 64))
    for M in (6001, 6002, 6003, 64, 65):
        if (name, M) == ("a weight of another length", 64):
            continue
        with pytest.raises(ShapeError):
            WRONG[name](M)


def test_a_gradient_that_is_wanted_is_not_forgotten(device):
    for M in WARM:
        norms.rms_norm(empty(M, 64))
    assert norms.rms_norm(empty(6000, 64).requires_grad_()).requires_grad
    assert not norms.rms_norm(empty(6000, 64)).requires_grad


def test_more_groups_than_are_tried_before_a_key_is_made(device):
    lengths = [64 * one for one in range(1, launch_cache.MAX_RECENT_CALLS + 4)]
    for M in WARM:
        for N in lengths:
            norms.rms_norm(empty(M, N))
    starts = device.starts
    for M in range(6000, 6004):
        for N in lengths:
            assert norms.rms_norm(empty(M, N)).shape == (M, N)
    assert device.starts == starts


def repeated_over_rows(function):
    """Of x, launching what `function` gives of its rows: the grid's size, and a number that the kernel takes."""
    launched, calls = [], []

    def run(*given):
        launched.append(given)

    @launch_cache.cached_launch(rows="x")
    def call(x):
        calls.append(x)
        result, (grid, number) = torch.empty_like(x), function(x)
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(run, (grid,), (number, x, result)))
        return result

    return call, launched, calls


def test_what_follows_from_no_number_of_rows_is_never_replayed_for_another(device):
    call, launched, calls = repeated_over_rows(lambda x: (3, x.shape[0] ** 2))
    for M in range(2, 100):
        call(empty(M, 8))
    assert len(calls) == 98 and not launched


def test_a_choice_that_comes_out_otherwise_is_made_anew(device):
    call, launched, calls = repeated_over_rows(lambda x: (3, launch_cache.choose_by_rows(halved, x.shape[0], 10)))
    for M in (2, 3, 4, 5, 6):
        call(empty(M, 8))
    assert [one[:2] for one in launched] == [(3, 0), (3, 0)] and len(calls) == 3
    for M in (10, 11, 12, 13, 7):
        call(empty(M, 8))
    assert [one[:2] for one in launched] == [(3, 0), (3, 0), (3, 1), (3, 1), (3, 0)] and len(calls) == 5


def halved(rows, at):
    return rows // at


def test_a_number_of_rows_that_only_happens_to_be_another_number(device):
    """A launch of always eight programs, first recorded of eight rows."""
    call, launched, calls = repeated_over_rows(lambda x: (8, RowCountExpr(8)))
    for M in (8, 8, 9, 10, 11, 8):
        call(empty(M, 4))
    assert all(one[:2] == (8, 8) for one in launched) and launched and len(calls) < 6


@pytest.mark.parametrize("count", [Tensor.__len__, Tensor.numel])
def test_programs_are_counted_by_rows_and_by_elements(device, count):
    call, launched, _ = repeated_over_rows(lambda x: (RowCountExpr(count(x), 3, 2), RowCountExpr(count(x))))
    for M in (2, 3, 4, 5, 100):
        call(x := empty(M, 8))
    assert launched[-1][:2] == (-(-count(x) // 3) * 2, count(x))


def test_what_has_more_elements_than_32_bits_count_is_not_replayed(device):
    launched, calls = [], []
    run = launched.append

    @launch_cache.cached_launch(rows="x")
    def call(x):
        calls.append(len(x))
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(run, (), (x,)))

    one = empty(1, 1)
    for M in (2, 3, 4, 5, 2**31 - 1, 2**31):
        call(one.expand(M, 1))
    assert calls == [2, 3, 4, 2**31] and len(launched) == 2


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8), (5, 5)])
def test_where_leading_sizes_are_in_a_shape(shape):
    x = empty(*shape)
    leading = find_leading_dims([empty(8), x], x)
    assert leading is not None and leading == LeadingDims(1, shape[:-1], shape[-1])
    assert leading.split_shape(shape) == ((), shape[-1:])
    assert leading.split_shape(shape[:-1]) == ((), ())
    assert leading.split_shape((2, *shape[:-1])) in (((2,), ()), ((), shape[1:-1]))
    assert leading.split_shape((7,)) is None


def test_tensors_that_may_share_some_of_several_leading_sizes_have_no_group():
    x = empty(2, 3, 8)
    leading = find_leading_dims([x], x)
    assert leading is not None
    assert row_key(leading, [x, empty(8), empty(2, 3)]) is not None
    assert row_key(leading, [x, empty(3, 8)]) is None
    assert row_key(leading, [x.transpose(0, 1).contiguous().transpose(0, 1)]) is None


def test_recording_ends(device, monkeypatch):
    monkeypatch.setattr(dynamic_rows, "MAX_RECORDINGS", 4)
    recorded = []
    monkeypatch.setattr(
        launch_cache, "generate_replay", lambda *given: recorded.append(1) or launch_codegen.generate_replay(*given)
    )
    call, _, _ = repeated_over_rows(lambda x: (3, x.shape[0] ** 2))
    for M in range(2, 30):
        call(empty(M, 8))
    assert len(recorded) == 4
