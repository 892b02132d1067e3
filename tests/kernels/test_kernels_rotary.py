"""Rotary embedding: both layouts of pairs, partial, with positions, heads first, and its gradient, against FP64."""

import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_where

sys.path.insert(0, str(Path(__file__).parent))
from on_device import DEVICE, poisoned, random, require_close, runs_kernels

from kernelwright.kernels.operators import ShapeError
from kernelwright.kernels.rotary import op, reference
from kernelwright.kernels.rotary.op import rotary_embedding
from kernelwright.kernels.rows.launcher import launch_programs

pytestmark = runs_kernels


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def angles(*shape):
    turn = torch.rand(shape, device=DEVICE) * 6.3
    return turn.cos(), turn.sin()


@pytest.mark.parametrize("S", [6, 5], ids=["all heads of a token", "some heads of few tokens"])
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize(
    ("heads", "D", "R"),
    fast_where([1, 4], [((4, 4), 64, 64), ((6, 2), 24, 24), ((9, 17), 80, 32), ((1, 1), 2, 2), ((3, 0), 16, 16)]),
)
def test_values_and_gradients(heads, D, R, interleaved, S, monkeypatch):
    launched = []
    monkeypatch.setattr(op, "multiprocessors", lambda device: 10)
    monkeypatch.setattr(
        op, "launch_programs", lambda *given, **more: (launched.append(given[1]), launch_programs(*given, **more))
    )
    q, k = (random(2, S, H, D, grad=True) for H in heads)
    cos, sin = angles(S, R // 2)
    got = poisoned(lambda: rotary_embedding(q, k, cos, sin, interleaved=interleaved))
    want = [reference.rotary_embedding(x, cos, sin, interleaved=interleaved) for x in (q, k)]
    for one, other in zip(got, want, strict=True):
        require_close(one.detach(), other.detach())
    dq, dk = random(*q.shape), random(*k.shape)
    one = torch.autograd.grad(got, (q, k), (dq, dk))
    other = torch.autograd.grad(want, (q, k), (dq.double(), dk.double()))
    for mine, theirs in zip(one, other, strict=True):
        require_close(mine, theirs)
    programs = 12 if S == 6 else 10 * sum(-(-H // op.HEADS_PER_PROGRAM) for H in heads)
    assert launched == [programs] * 2


def test_the_gradient_of_one_of_both():
    q, k = random(1, 3, 2, 8, grad=True), random(1, 3, 2, 8, grad=True)
    rotary_embedding(q, k, *angles(3, 4))[1].sum().backward()
    assert k.grad.any()
    assert q.grad is None or not q.grad.any()


def test_turning_back_gives_what_was_there():
    q, k = random(2, 4, 3, 32), random(2, 4, 3, 32)
    cos, sin = angles(2, 4, 16)
    back = rotary_embedding(*rotary_embedding(q, k, cos, sin), cos, -sin)
    torch.testing.assert_close(back, (q, k))


def test_positions_choose_rows_of_a_table():
    q, k = random(2, 4, 3, 32), random(2, 4, 1, 32)
    cos, sin = angles(50, 16)
    for positions in (torch.tensor([3, 0, 49, 7]), torch.randint(50, (2, 4))):
        positions = positions.to(DEVICE)
        got = rotary_embedding(q, k, cos, sin, positions=positions)
        want = rotary_embedding(q, k, cos[positions], sin[positions])
        assert all(map(torch.equal, got, want))


def test_hugging_faces_layout_and_angles():
    q, k = random(2, 3, 4, 32), random(2, 1, 4, 32)  # heads first
    cos, sin = angles(1, 4, 16)
    got = rotary_embedding(q, k, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1), heads_first=True)
    for one, x in zip(got, (q, k), strict=True):
        want = reference.rotary_embedding(x.transpose(1, 2), cos, sin).transpose(1, 2)
        require_close(one, want)
        assert one.stride() == x.stride()


def test_queries_and_keys_of_one_tensor_are_read_as_they_lie():
    packed = random(2, 5, 3, 4, 16)
    q, k = packed[:, :, 0], packed[:, :, 1]
    cos, sin = angles(5, 8)
    for one, x in zip(rotary_embedding(q, k, cos, sin), (q, k), strict=True):
        require_close(one, reference.rotary_embedding(x, cos, sin))


def test_what_does_not_fit_is_said():
    q, (cos, sin) = random(2, 4, 3, 32), angles(4, 16)
    for call, says in (
        (lambda: rotary_embedding(q, q[:1], cos, sin), r"k is \(1, 4, 3, 32\)"),
        (lambda: rotary_embedding(q, q, cos, sin[:3]), "sin is"),
        (lambda: rotary_embedding(q, q, cos[:3], sin[:3]), "2 x 4 tokens"),
        (lambda: rotary_embedding(q, q, *angles(4, 17)), "cos has 17 columns, which rotates 34; heads have 32"),
        (lambda: rotary_embedding(q, q, cos, sin, positions=torch.zeros(3, dtype=torch.int64)), "positions is"),
    ):
        with pytest.raises(ShapeError, match=says):
            call()


def test_it_is_an_operator_of_torch():
    given = [random(1, 3, 2, 8, grad=True) for _ in range(2)]
    torch.library.opcheck(torch.ops.kernelwright.rotary.default, (*given, *angles(1, 3, 4), None, False, False))


def test_repeated_angles_of_neighbouring_pairs():
    q, k = random(2, 4, 3, 32), random(2, 4, 1, 32)
    cos, sin = angles(4, 16)
    repeated = (one.repeat_interleave(2, -1) for one in (cos, sin))
    got = rotary_embedding(q, k, *repeated, interleaved=True)
    assert all(map(torch.equal, got, rotary_embedding(q, k, cos, sin, interleaved=True)))


def test_results_lie_as_torch_compile_is_told():
    q = random(1, 3, 8, 2).transpose(-1, -2)
    torch.library.opcheck(torch.ops.kernelwright.rotary.default, (q, q, *angles(1, 3, 4), None, False, False))
