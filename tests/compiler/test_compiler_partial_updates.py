"""A part of a buffer or argument is changed in place, unless somebody still needs what was there."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import optimised, quick, run


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick(), torch.no_grad():
        yield


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


CACHE, NEW, AT = normal(2, 9, 5), normal(2, 1, 5, seed=1), torch.tensor([3])


class Cached(nn.Module):
    """Keeps rows in a buffer, and sums all of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", CACHE.clone())

    def forward(self, new, at):
        self.rows.index_copy_(1, at, new * 2)
        return (self.rows * 3).sum(1)


def copied(cache, new, at):
    cache.index_copy_(1, at, new * 2)
    return cache.sum(1) * 3


def assigned(cache, new, at):
    cache[:, at] = new * 2
    return cache.sum(1) * 3


def of_a_slice(cache, new):
    cache[:, 3:4] = new * 2
    return cache.sum(1) * 3


def scattered(cache, new, at):
    cache.scatter_(1, at.expand(2, 1, 5), new * 2)
    return cache.sum(1) * 3


def twice(cache, new, at):
    cache.index_copy_(1, at, new * 2)
    middle = new @ cache.mT
    cache.index_copy_(1, at + 1, new * 3)
    return middle.sum(2) * cache.sum(1)


def returned(cache, new, at):
    before = cache.sum(1) * 3
    return before, cache.index_copy_(1, at, new * 2)


IN_PLACE = {
    "copied": (copied, CACHE, NEW, AT), "assigned": (assigned, CACHE, NEW, AT), "slice": (of_a_slice, CACHE, NEW),
    "scattered": (scattered, CACHE, NEW, AT), "twice": (twice, CACHE, NEW, AT),
    "returned": (returned, CACHE, NEW, AT),
}  # fmt: skip


def check(program, args):
    """What the optimised program returns and changes is what the program does; returns its code."""
    made = optimised(program, *args)
    ours, theirs = ([arg.clone() for arg in args] for _ in range(2))
    got, used = run(made, *ours)
    assert used
    torch.testing.assert_close(got, program(*theirs))
    torch.testing.assert_close(ours, theirs)
    return made.optimization.source.rpartition("def forward(self")[2]


@pytest.mark.parametrize(("program", "args"), [pytest.param(v[0], v[1:], id=k) for k, v in IN_PLACE.items()])
def test_a_part_is_changed_in_place(program, args):
    body = check(program, args)
    assert not [line for line in body.splitlines() if line.strip().startswith("cache.copy_(")]


def test_what_is_returned_is_the_argument():
    made = optimised(returned, CACHE, NEW, AT)
    cache = CACHE.clone()
    assert made(cache, NEW, AT)[1] is cache


def test_a_part_of_a_buffer_is_changed_in_place():
    model, twin = Cached(), Cached()
    made = optimised(model, NEW, AT)
    assert "copy_(" not in made.optimization.source.rpartition("def forward(self")[2]
    version, memory = model.rows._version, model.rows.data_ptr()
    for at in (AT, AT + 2):
        got, used = run(made, NEW, at)
        assert used
        torch.testing.assert_close(got, twin(NEW, at))
    torch.testing.assert_close(model.rows, twin.rows)
    assert model.rows.data_ptr() == memory and model.rows._version > version


def read_before(cache, new, at):
    """Of a matrix product, which is computed where it is read, after the update."""
    before = cache.clone()
    cache.index_copy_(1, at, new * 2)
    return (before @ cache.mT + 1).relu()


def of_itself(cache, new, at):
    cache.index_copy_(1, at, cache[:, 5:6])
    return cache.sum(1) * 3


def returned_apart(cache, new, at):
    changed = cache.index_copy(1, at, new * 2)
    cache.copy_(changed)
    return changed, changed.sum(1) * 3


def exchanged(cache, new, at):
    """The other argument becomes the cache with a new row, and the cache is doubled."""
    new.copy_(cache.index_copy(1, at, new[:, :1] * 2))
    return cache.mul_(2).sum(1)


def view_returned(cache, new, at):
    cache.index_copy_(1, at, new * 2)
    return cache[:, 2:], cache.sum(1) * 3


COPIED = {
    "read before": (read_before, CACHE, NEW, AT), "itself": (of_itself, CACHE, NEW, AT),
    "apart": (returned_apart, CACHE, NEW, AT), "exchanged": (exchanged, CACHE, normal(2, 9, 5, seed=3), AT),
    "view": (view_returned, CACHE, NEW, AT),
}  # fmt: skip


@pytest.mark.parametrize(("program", "args"), [pytest.param(v[0], v[1:], id=k) for k, v in COPIED.items()])
def test_what_somebody_still_needs_is_right(program, args):
    check(program, args)


def test_a_result_of_its_own_is_no_view_of_the_argument():
    made = optimised(returned_apart, CACHE, NEW, AT)
    cache = CACHE.clone()
    changed, _ = made(cache, NEW, AT)
    assert changed.data_ptr() != cache.data_ptr()


def test_a_trained_program_keeps_what_its_gradients_need():
    def program(cache, new, at):
        cache.index_copy_(1, at, new.detach() * 2)
        return (new * cache).relu().sum(1)

    with torch.enable_grad():
        leaf, other = (NEW.clone().requires_grad_() for _ in range(2))
        made = optimised(program, CACHE, leaf, AT)
        got = torch.autograd.grad(made(CACHE.clone(), leaf, AT).sum(), leaf)
        torch.testing.assert_close(got, torch.autograd.grad(program(CACHE.clone(), other, AT).sum(), other))
