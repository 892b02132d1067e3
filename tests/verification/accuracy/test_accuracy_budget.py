"""What `check` accepts and rejects, and how it says so."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernelwright.core.document import build_document, decode, encode
from kernelwright.core.errors import UsageError
from kernelwright.core.verdict import REJECTIONS, Accuracy, Reason
from kernelwright.verification.accuracy.budget import check_accuracy
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS, Distribution
from kernelwright.verification.accuracy.error import (
    measure_error,
    reduced_precision_bits,
    round_to_bits,
    significand_bits,
)
from kernelwright.verification.accuracy.expected import Expected, compute_expected
from kernelwright.verification.accuracy.golden_scale import GoldenScale

GIVEN, REDRAWN = DISTRIBUTIONS[0], DISTRIBUTIONS[1]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def judge(
    got: list[Tensor] | Tensor, truth: Expected, policy: str = "reference", kind: Distribution = GIVEN
) -> tuple[Reason | None, Accuracy | None]:
    reason, accuracy = check_accuracy(got if isinstance(got, list) else [got], truth, distribution=kind, policy=policy)
    assert reason is None or reason.code in REJECTIONS
    if accuracy:
        assert decode(encode(build_document("verify", accuracy)), Accuracy) == accuracy
    return reason, accuracy


def code(*args, **kwargs) -> str | None:
    reason = judge(*args, **kwargs)[0]
    return reason and reason.code


def of(program, *inputs: Tensor) -> Expected:
    return compute_expected(program, None, (list(inputs), {}))


def test_shape_dtype_and_count() -> None:
    truth = of(torch.exp, torch.randn(4, 5))
    good = truth.reference[0]
    assert code(good, truth) is None
    assert code(good.T, truth) == "wrong-shape"
    assert code(good.double(), truth) == "wrong-dtype"
    assert code([good, good], truth) == "wrong-structure"


def test_non_finite_positions_are_exact() -> None:
    x = torch.randn(100)
    x[3], x[50], x[70] = -1.0, 0.0, torch.inf
    truth = of(torch.log, x.abs() * x.sign())
    good = truth.reference[0]
    assert good.isnan().any() and good.isinf().any()
    for policy in ("reference", "1e-3,1e-3"):
        assert code(good.clone(), truth, policy) is None
        for position, value in ((50, torch.inf), (50, torch.nan), (3, 0.0), (70, torch.nan), (70, 3e38)):
            bad = good.clone()
            bad[position] = value
            assert code(bad, truth, policy) == "not-finite", (policy, position, value)
        finite = int(good.isfinite().nonzero()[0])
        bad = good.clone()
        bad[finite] = torch.nan
        assert code(bad, truth, policy) == "not-finite"


def test_overflow_that_only_fp32_has_follows_the_reference() -> None:
    truth = of(torch.exp, torch.linspace(-5, 100, 50))
    assert truth.golden[0].isfinite().all() and truth.reference[0].isinf().any()
    assert code(truth.reference[0], truth) is None
    assert code(truth.reference[0].nan_to_num(posinf=3e38), truth) == "not-finite"


def naive_softmax(x: Tensor) -> Tensor:
    e = torch.exp(x)
    return e / e.sum(-1, keepdim=True)


@pytest.mark.parametrize("policy", ["reference", "1e-3,1e-3"])
def test_in_inputs_that_we_drew_nobody_need_overflow_with_the_reference(policy) -> None:
    x = torch.randn(8, 64)
    x[3, 5] = 200.0
    truth = of(naive_softmax, x)
    assert truth.reference[0][3, 5].isnan() and truth.golden[0].isfinite().all()
    right_answer = torch.softmax(x, -1)
    for kind, got in ((REDRAWN, right_answer), (REDRAWN, truth.reference[0]), (GIVEN, truth.reference[0])):
        assert code(got, truth, policy, kind) is None, kind.name
    assert code(right_answer, truth, policy, GIVEN) == "not-finite"
    wrong, infinite = right_answer.clone(), right_answer.clone()
    wrong[3, 5], infinite[3, 5] = 0.5, torch.inf
    assert code(wrong, truth, policy, REDRAWN) == "inaccurate"
    assert code(infinite, truth, policy, REDRAWN) == "not-finite"


def test_what_fp32_cannot_hold_overflows_in_inputs_that_we_drew_too() -> None:
    truth = of(torch.exp, torch.linspace(-5, 100, 50))
    assert code(truth.reference[0], truth, kind=REDRAWN) is None
    assert code(truth.reference[0].nan_to_num(posinf=3e38), truth, kind=REDRAWN) == "not-finite"


def test_the_classic_policy() -> None:
    x = torch.randn(1000)
    truth = of(lambda x: x * 3, x)
    good = truth.reference[0]
    off = good + 1e-3
    reason, accuracy = judge(off, truth, "1e-4,0")
    assert (
        reason and reason.code == "inaccurate" and accuracy and accuracy.error_over_limit == pytest.approx(10, rel=0.01)
    )
    assert code(off, truth, "2e-3,0") is None
    assert code(good * (1 + 1e-3), truth, "0,1.1e-3") is None
    assert code(good * (1 + 1e-3), truth, "0,0.9e-3") == "inaccurate"
    assert code(good, truth, "0,0") is None
    for policy in ("1e-4", "a,b", "nan,0", "-1,0", "inf,0", "exact", ""):
        with pytest.raises(UsageError):
            judge(good, truth, policy)


def test_integers_and_ties() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, -1.0, -2.0]])
    truth = of(lambda x: x.topk(2), x)
    values, index = truth.reference
    assert code([values, index], truth) is None
    assert code([values, index.flip(-1)], truth) is None, "tied values: either order is right"
    assert code([values, torch.tensor([[1, 1], [0, 1]])], truth) == "inaccurate", "one element picked twice"
    assert code([values, torch.tensor([[1, 3], [0, 1]])], truth) == "inaccurate"
    assert code([values, torch.tensor([[1, 9], [0, 1]])], truth) == "inaccurate", "out of range"
    flags = of(lambda x: x > 0, x)
    assert code(~flags.reference[0], flags) == "inaccurate"


@pytest.mark.parametrize(
    "scale",
    [torch.ones(200), torch.ones(200).index_fill(0, torch.tensor([0]), 2.0), (torch.arange(200.0) % 2)],
    ids=["constant", "nearly constant", "mask"],
)
def test_an_input_that_explains_nothing_excuses_no_index(scale: Tensor) -> None:
    edges = torch.linspace(-2, 2, 33)
    truth = of(lambda x, scale: torch.bucketize(x, edges) + scale.long() * 0, torch.randn(200), scale)
    good = truth.reference[0]
    assert code(good, truth) is None
    assert code(good + 7, truth) == "inaccurate"
    one = good.clone()
    one[9] += 2
    assert code(one, truth) == "inaccurate"


@pytest.mark.parametrize(
    ("program", "other"),
    [
        (lambda x: x.argmax(-1), lambda x: 7 - x.flip(-1).argmax(-1)),
        (lambda x: x.argmin(0), lambda x: 9 - x.flip(0).argmin(0)),
        (lambda x: x.argsort(dim=-1, stable=True), lambda x: 7 - x.flip(-1).argsort(dim=-1, stable=True)),
        (lambda x: x.topk(3).indices.flip(-1), lambda x: 7 - x.flip(-1).topk(3).indices.flip(-1)),
        (lambda x: x.kthvalue(4, 0).indices, lambda x: 9 - x.flip(0).kthvalue(4, 0).indices),
    ],
    ids=["argmax", "argmin", "argsort", "topk the other way", "kthvalue"],
)
def test_ties_of_every_choice_by_value_are_accepted(program, other) -> None:
    x = torch.randint(0, 4, (10, 8)).float()
    x[4] = 0.0
    truth, got = of(program, x), other(x)
    assert not torch.equal(got, truth.reference[0]), "there is a tie that falls differently"
    assert code(got, truth) is None
    assert code((got + 1) % 8, truth) == "inaccurate"


def test_every_dtype_has_a_budget() -> None:
    x = torch.randn(64, 64)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64):
        truth = of(lambda a: a @ a, x.to(dtype))
        good = truth.reference[0]
        assert code(good, truth) is None, dtype
        assert code(torch.zeros_like(good), truth) == "inaccurate", dtype
        assert code(good * 1.05, truth) == "inaccurate", dtype
    truth = of(lambda a: a @ a, x.double())
    assert code((x @ x).double(), truth) == "inaccurate", "FP32 does not pass for FP64"
    assert code(sum(x.double()[:, i : i + 8] @ x.double()[i : i + 8] for i in range(0, 64, 8)), truth) is None
    quantised = of(lambda a: a.to(torch.float8_e4m3fn), x)
    assert code(quantised.reference[0], quantised) is None


def test_degenerate_outputs() -> None:
    assert judge(torch.empty(0, 3), of(torch.exp, torch.empty(0, 3))) == (None, None)
    zero = of(lambda x: x * 0, torch.randn(1000))
    assert code(zero.reference[0], zero) is None
    assert code(zero.reference[0] + 1e-3, zero) == "inaccurate"
    scalar = of(torch.sum, torch.randn(10))
    assert code(scalar.reference[0], scalar) is None
    nothing = of(lambda x: x * torch.nan, torch.randn(10))
    assert code(nothing.reference[0], nothing) is None
    huge = of(lambda x: x * 2, torch.randn(100, dtype=torch.float64) * 1e300)
    assert code(huge.reference[0], huge) is None
    assert code(-huge.reference[0], huge) == "inaccurate"


def test_flushed_subnormals_pass() -> None:
    truth = of(lambda x: x * 2.0**-130, torch.randn(5000))
    assert code(torch.zeros(5000), truth) is None
    half = of(lambda x: x * 2.0**-16, torch.randn(5000).half())
    assert half.reference[0].abs().max() > 0
    assert code(torch.zeros(5000).half(), half) == "inaccurate", "FP16 subnormals are numbers"


def test_accuracy_is_filled() -> None:
    x = torch.randn(17, 300)
    truth = of(lambda x: x.softmax(-1), x)
    bad = truth.reference[0].clone()
    bad[16, 299] += 1.0
    reason, accuracy = judge(bad, truth)
    assert reason and accuracy and accuracy.index == (16, 299)
    assert accuracy.got == repr(bad[16, 299].item())
    assert float(accuracy.expected) == pytest.approx(x[16].double().softmax(-1)[299].item())
    assert accuracy.error_over_limit > 1000 and accuracy.error > accuracy.limit > 0
    assert "[16, 299]" in reason.detail and math.isfinite(accuracy.error_over_reference)


def test_what_it_looks_like() -> None:
    x, w = torch.randn(200, 300), torch.randn(300, 100)
    truth = of(torch.matmul, x, w)
    good = truth.reference[0]
    tile, tail, one = good.clone(), good.clone(), good.clone()
    tile.view(-1)[5000:5300] = 0
    tail.view(-1)[-100:] = 7.0
    one[3, 4] = 99.0
    looks = {
        "zeros": torch.zeros_like(good),
        "a constant": torch.ones_like(good),
        "half-precision output": good.half().float(),
        "bfloat16 output": good.bfloat16().float(),
        "half-precision arithmetic": round_to_bits(x.double(), 11).float() @ round_to_bits(w.double(), 11).float(),
        "bfloat16 arithmetic": x.bfloat16().float() @ w.bfloat16().float(),
        "a wrong tile": tile,
        "a tail": tail,
        "one wrong element": one,
        "the expected values times 1.001": good * 1.001,
    }
    for words, got in looks.items():
        reason, _ = judge(got, truth)
        assert reason and f"looks like {words}" in reason.detail, (words, reason)


def test_inputs_of_one_sign_take_the_wider_budget() -> None:
    """The bias of rounding one way, on purpose: TF32 on a long positive sum is invisible where errors average out."""
    x = torch.rand(8, 20_000)
    truth = of(lambda x: x.sum(-1), x)
    assert truth.inputs_same_sign
    assert not of(lambda x: x.sum(-1), x - 0.5).inputs_same_sign


def test_bits() -> None:
    x = torch.randn(1000, dtype=torch.float64)
    assert torch.equal(round_to_bits(x, 24), x.float().double())
    x = x.float().double()  # torch narrows FP64 in two steps, which rounds twice
    assert torch.equal(round_to_bits(x, 8), x.bfloat16().double())
    assert torch.equal(round_to_bits(x, 11), x.half().double().where(x.abs() > 1e-4, round_to_bits(x, 11)))
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0], dtype=torch.float64)
    assert torch.equal(round_to_bits(special, 11).nan_to_num(9), special.nan_to_num(9))
    assert [significand_bits(d) for d in (torch.float32, torch.bfloat16, torch.float16)] == [24, 8, 11]
    assert reduced_precision_bits(torch.float64) == 24


def test_a_wrong_tile_among_many_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and tiles cover every element, wherever it is."""
    monkeypatch.setattr("kernelwright.verification.accuracy.ranges.CHUNK_ELEMENTS", {"cpu": 1024})
    monkeypatch.setattr("kernelwright.verification.accuracy.golden_scale.MAX_QUANTILE_SAMPLES", 100)
    golden = torch.randn(5000, dtype=torch.float64)
    for position in (0, 1023, 1024, 4999):
        error = torch.zeros(5000, dtype=torch.float64)
        error[position] = 1.0
        scale = GoldenScale.of(golden, 24, 1e-30)
        seen = measure_error(scale, lambda part, values, error=error: error[part].clone())
        assert seen.worst_index == position and seen["maximum"] > 0.1 and seen["worst tile"] > 0.02
