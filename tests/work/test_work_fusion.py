"""Groups that one pass could compute, and what that pass would move."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelwright import work
from kernelwright.core.work import Work


def runs(program, *args):
    seen = work.count_work(program, args)
    groups = work.fusion_groups(seen)
    return [[o.name for o in run] for run in groups], [work.fused_work(run, seen) for run in groups], seen


def test_pointwise_chain_is_one_run_and_as_cheap_as_the_fused_program():
    names, works, seen = runs(
        lambda x, y, b: torch.relu((x + y).t() * 2 + b), *(torch.ones(64, 64),) * 2, torch.ones(64)
    )
    assert names == [["add", "mul", "add", "relu"]]
    assert works == [seen.fused]


def test_product_keeps_its_neighbours_apart():
    names, _, _ = runs(lambda x: ((x + 1).relu() @ x).exp().neg(), torch.ones(8, 8))
    assert names == [["add", "relu"], ["exp", "neg"]]


def test_group_never_needs_a_value_that_waits_for_itself():
    # b comes from a through a product, and both meet again: the last addition cannot join the first group.
    def program(x):
        a = (x + 1).exp()
        b = (a @ x).neg()
        return a + b

    names, works, _ = runs(program, torch.ones(8, 8))
    assert names == [["add", "exp"], ["neg", "add"]]
    # The first reads x and writes a (for the product and the addition); the second reads product and a, writes one.
    assert works[0] == Work(flops={"vector/float32": 64, "special/float32": 64 * 8}, bytes_read=256, bytes_written=256)
    assert works[1] == Work(flops={"vector/float32": 128}, bytes_read=512, bytes_written=256)


def test_later_member_must_not_close_a_ring_through_another_group():
    def program(x, y):
        a = x + 1  # first group
        p = a @ x
        b = y.exp()  # second group, so far independent of the first
        q = b @ y
        c = b + p  # joins the second group, which now waits for the first
        return c, (a + q).neg()  # joining the first would make each wait for the other

    names, _, _ = runs(program, torch.ones(8, 8), torch.ones(8, 8))
    assert names == [["exp", "add"], ["add", "neg"]]


def test_softmax_in_pieces_is_one_run():
    def program(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    names, works, _ = runs(program, torch.ones(4, 64))
    assert names == [["amax", "sub", "exp", "sum", "div"]]
    assert (works[0].bytes_read, works[0].bytes_written) == (1024, 1024)


def test_reduction_over_a_long_row_is_not_broadcast_back():
    x = torch.empty(1, 1_000_000, device="meta")
    names, _, _ = runs(lambda x: (x.exp() / x.exp().sum(-1, keepdim=True)) + 1, x)
    assert names == [["exp", "div", "add"], ["exp", "sum"]]
    names, _, _ = runs(lambda x: x.exp().sum().log() * 2, x)
    assert names == [["exp", "sum", "log", "mul"]]


def test_value_that_somebody_else_reads_is_written():
    def program(x):
        y = x + 1
        z = y.relu()
        return z.sum(), y

    names, works, _ = runs(program, torch.ones(100))
    assert names == [["add", "relu", "sum"]]
    # y is an output and the sum too; z never leaves.
    assert (works[0].bytes_read, works[0].bytes_written) == (400, 404)


def test_in_place_update_of_an_input_is_written():
    names, works, _ = runs(lambda x: x.mul_(2).add_(1), torch.ones(100))
    assert names == [["mul_", "add_"]]
    assert (works[0].bytes_read, works[0].bytes_written) == (400, 400)


def test_loss_reads_the_logits_once():
    names, works, _ = runs(F.cross_entropy, torch.randn(32, 100), torch.zeros(32, dtype=torch.int64))
    assert names == [["log_softmax", "nll_loss"]]
    assert works[0].bytes_read == 32 * 100 * 4 + 32 * 8


def test_halves_of_one_input_are_read_once_each():
    def rotate(x, c):
        a, b = x[..., :4], x[..., 4:]
        return torch.cat((a * c - b, b * c + a), -1)

    names, works, seen = runs(rotate, torch.ones(10, 8), torch.ones(4))
    assert sorted(names[0]) == ["add", "cat", "mul", "mul", "sub"]
    assert works == [seen.fused]
    assert works[0].bytes_read == 320 + 16


def test_unrelated_neighbours_and_single_operators_are_no_run():
    names, _, _ = runs(lambda x, y: (x + 1, y * 2), torch.ones(8), torch.ones(8))
    assert names == []


def test_scratch_buffer_that_is_written_again_is_not_kept():
    def program(x):
        buffer = torch.empty(100)
        torch.add(x, 1, out=buffer)
        return buffer.mul_(2).sum()

    names, works, _ = runs(program, torch.ones(100))
    assert names == [["add", "mul_", "sum"]]
    assert (works[0].bytes_read, works[0].bytes_written) == (400, 4)


def test_thousands_of_operators_group_quickly():
    def program(x):
        for _ in range(1500):
            x = (x + 1) @ x
        return x

    names, _, _ = runs(program, torch.empty(8, 8, device="meta"))
    assert names == []
