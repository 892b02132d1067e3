"""The mode around code that is running: nesting, identity of storages, what is unknown, and odd tensors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright import work
from kernelwright.core.work import ProgramWork
from kernelwright.work.formulas import FORMULAS


@torch.library.custom_op("kwtest::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.fixture
def formulas():
    before = dict(FORMULAS)
    yield
    FORMULAS.clear()
    FORMULAS.update(before)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func._schema.name.partition("::")[2].strip("_"))
        return func(*args, **(kwargs or {}))


def test_every_call_goes_on_once_to_the_mode_below():
    x = torch.ones(4, 4, requires_grad=True)
    with Recorder() as below, work.CountingMode() as mode:
        (x @ x).relu().sum().backward()
    assert len(below.calls) == len(mode.operators)
    assert [o.name for o in mode.operators if o.kind == "matrix"] == ["mm"] * 3


def test_results_are_those_of_the_program_itself():
    x = torch.randn(8, 8)
    with work.CountingMode():
        seen = torch.softmax(x @ x, -1)
    assert torch.equal(seen, torch.softmax(x @ x, -1))


def test_program_runs_once_and_its_result_is_not_kept():
    calls, results = [], []

    def program(x):
        calls.append(1)
        y = x + 1
        results.append(weakref.ref(y))
        return y

    work.count_work(program, (torch.ones(4),))
    gc.collect()
    assert len(calls) == 1
    assert results[0]() is None


def test_error_of_the_program_comes_through_and_hooks_are_gone():
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    before = len(hooks)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        work.count_work(torch.nn.Linear(4, 4), (torch.ones(2, 3),))
    assert len(hooks) == before


def test_reused_address_gets_a_new_number():
    mode = work.CountingMode()
    with mode:
        for _ in range(50):
            torch.ones(1000) * 2
    written = [number for operator in mode.operators for number in operator.writes]
    assert len(set(written)) == len(written) == 100


def test_no_tensor_is_kept_alive_and_dead_storages_are_swept(monkeypatch):
    monkeypatch.setattr("kernelwright.work.storages.MIN_PURGE_COUNT", 64)
    mode = work.CountingMode()
    with mode:
        for _ in range(300):
            torch.ones(10).add_(1)
    assert len(mode._storages._live) <= 64
    batches = work.CountingMode()
    with batches:
        for _ in range(300):
            torch.from_numpy(__import__("numpy").ones(10)).add(1)
    assert len(batches._storages._live) <= 64
    # What the dead ones add to the totals stays: every batch of 10 doubles was there before, and was read.
    assert batches.finish().fused.bytes_read == 300 * 80


def test_running_code_keeps_what_is_still_alive():
    x = torch.ones(100)
    mode = work.CountingMode()
    with mode:
        kept = (x + 1) * 2
        x.add_(1)
    seen = mode.finish()
    # Fused: x in, `kept` out, x written in place; the sum in between has died.
    assert (seen.fused.bytes_read, seen.fused.bytes_written) == (400, 800)
    assert mode.finish() == seen
    assert mode.finish(kept).output_bytes == 400


def test_saved_activations_are_no_output_but_gradients_are():
    weight = torch.ones(10, requires_grad=True)
    forward = work.count_work(lambda w: (w.exp() * 2).sum(), (weight,))
    assert forward.fused.bytes_written == 4
    backward = work.count_work(lambda w: (w.exp() * 2).sum().backward(), (weight,))
    assert backward.fused.bytes_written == 40
    weight.grad = None


def test_unregistered_operator_lowers_coverage_until_it_is_registered(formulas):
    x = torch.ones(100)
    seen = work.count_work(lambda x: double(x) + 1, (x,))
    custom = seen.operators[0]
    assert (custom.name, custom.flops_known, custom.kind) == ("kwtest.double", False, "other")
    # It reads and writes 400 bytes, as does the addition: half of the bytes are known.
    assert custom.work.total_bytes == 800
    assert seen.coverage == 0.5
    assert seen.as_written.flops == {"vector/float32": 100}
    work.register_flop_formula("kwtest::double", lambda call: call.out_numel, kind="pointwise")
    seen = work.count_work(lambda x: double(x) + 1, (x,))
    assert seen.coverage == 1.0
    assert seen.as_written.flops == {"vector/float32": 200}
    work.register_flop_formula(torch.ops.kwtest.double, lambda call: {"matrix/float16": 7})
    assert work.count_work(double, (x,)).as_written.flops == {"matrix/float16": 7}


def test_formula_that_does_not_fit_makes_the_operator_unknown(formulas):
    work.register_flop_formula("kwtest::double", lambda call: call.shape("nothing")[0])
    seen = work.count_work(double, (torch.ones(100),))
    assert (seen.coverage, seen.as_written.flops) == (0.0, {})


def test_view_in_place_moves_nothing():
    seen = work.count_work(lambda x: x.clone().t_().unsqueeze_(0), (torch.ones(4, 6),))
    assert seen.as_written.total_bytes == 2 * 96
    assert seen.coverage == 1.0


def test_aten_operator_without_a_formula_is_unknown():
    seen = work.count_work(torch.linalg.svdvals, (torch.eye(8),))
    assert seen.coverage < 1.0


def test_count_on_a_machine_that_is_not_there():
    def program(x, weight, bias):
        return torch.nn.functional.linear(x, weight, bias).softmax(-1)

    def inputs(device):
        return [torch.empty(shape, device=device) for shape in ((32, 64), (16, 64), (16,))]

    real = work.count_work(program, inputs("cpu"))
    with FakeTensorMode():
        fake = work.count_work(program, inputs("cuda"))
    meta = work.count_work(program, inputs("meta"))
    for other in (fake, meta):
        assert other.as_written == real.as_written
        assert other.fused == real.fused


def test_symbolic_sizes_count_by_their_hint():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()) as fake:
        x = fake.from_tensor(torch.ones(6, 8), static_shapes=False)
        seen = work.count_work(lambda x: torch.relu(x @ x.t()), (x,))
    assert seen.as_written.flops == {"matrix/float32": 2 * 6 * 8 * 6, "vector/float32": 36}
    assert seen.fused.bytes_read == 192


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.eye(4).to_sparse() @ torch.ones(4, 2),
        lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8).dequantize(),
        lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged) * 2,
        lambda: torch.nested.as_nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged).sin(),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_odd_tensors_do_not_break_the_count(program):
    seen = work.count_work(program, ())
    assert seen.operators
    assert 0 <= seen.coverage < 1


def test_complex_numbers_count_in_their_dtype():
    seen = work.count_work(lambda x: x * x, (torch.ones(10, dtype=torch.complex64),))
    # Six real operations each.
    assert seen.as_written.flops == {"vector/complex64": 60}
    assert seen.as_written.bytes_read == 80


def doubled_by_numpy(x):
    return torch.from_numpy(x.numpy() * 2)


def doubled_through_a_pointer(x):
    out = torch.empty_like(x)
    np.multiply(x.numpy(), 2, out=out.numpy())
    return out


@pytest.mark.parametrize("program", [doubled_by_numpy, doubled_through_a_pointer])
def test_code_that_torch_cannot_see_is_not_covered(program):
    assert work.count_work(program, (torch.ones(100),)).coverage == 0.0


def test_coverage_is_the_share_of_bytes_where_torch_sees_half_of_a_program():
    x = torch.ones(100)
    # 400 bytes made unseen, 400 read and 400 written by the addition.
    assert work.count_work(lambda x: doubled_through_a_pointer(x) + 1, (x,)).coverage == pytest.approx(2 / 3)
    assert work.count_work(lambda x: (x + 1, doubled_by_numpy(x)), (x,)).coverage == pytest.approx(2 / 3)


WEIGHT = torch.ones(10)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x,
        lambda x: x[2:5].t(),
        lambda x: WEIGHT,
        lambda x: (WEIGHT, x + 1),
        lambda x: x * torch.tensor([2.0]),
        lambda x: torch.empty(10).copy_(x),
        lambda x: torch.empty(10).index_copy_(0, torch.arange(10), x),
        lambda x: torch.tensor([0.0]).add_(x.sum()),
        lambda x: torch.empty(0),
    ],
)
def test_what_was_there_before_or_was_seen_to_be_written_is_covered(program):
    assert work.count_work(program, (torch.ones(10),)).coverage == 1.0


def test_empty_tensors_move_nothing():
    seen = work.count_work(lambda x: torch.relu(x + 1), (torch.ones(0, 4),))
    assert seen.as_written.total_bytes == 0
    assert seen.coverage == 1.0


def test_keyword_arguments_and_nested_outputs():
    seen = work.count_work(lambda x, *, scale: {"a": [x * scale], "b": (x + 1, 3)}, (torch.ones(10),), {"scale": 2.0})
    assert seen.output_bytes == 80
    assert (seen.fused.bytes_read, seen.fused.bytes_written) == (40, 80)


def test_looking_at_a_value_reads_one_element():
    seen = work.count_work(lambda x: x[3].item(), (torch.ones(10),))
    assert (seen.operators[-1].name, seen.as_written.bytes_read) == ("item", 4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_higher_order_operators_pass_through():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.ones(1, 1, 16, 8)
    seen = work.count_work(flex_attention, (q, q, q))
    assert seen.operators[-1].work.bytes_written >= 0
    assert seen.output_bytes == q.nbytes


def test_record_goes_to_json_and_back():
    import msgspec

    seen = work.count_work(lambda x: torch.relu(x @ x), (torch.ones(4, 4),))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=ProgramWork) == seen
