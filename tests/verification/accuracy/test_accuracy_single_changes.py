"""Changes of one element or row: nothing else differs, and the domain stays."""

import pytest
import torch

from kernelwright.verification.accuracy.single_changes import changed_values, draw_place, has_effect, is_changeable


def changes(value, seed):
    generator = torch.Generator().manual_seed(seed)
    return list(changed_values(value, generator, draw_place(value.shape, generator, 0, [[0]] * value.dim())))


@pytest.mark.parametrize("seed", range(8))
def test_one_element_or_one_row_differs(seed):
    x = torch.randn(9, 7, generator=torch.Generator().manual_seed(1))
    found = changes(x, seed)
    assert found
    for one in found:
        differing = (one != x).nonzero()
        assert len(differing) == 1 or (len(differing) <= 7 and len(set(differing[:, 0].tolist())) == 1)


@pytest.mark.parametrize("seed", range(4))
def test_domains_stay(seed):
    generator = torch.Generator().manual_seed(1)
    positive, unit = torch.rand(50, generator=generator) * 9 + 0.1, torch.rand(400, generator=generator)
    assert all((one > 0).all() for one in changes(positive, seed))
    assert all(((one >= 0) & (one <= 1)).all() for one in changes(unit, seed))
    index = torch.randint(3, 20, (50,), generator=generator)
    assert all({int(v) for v in one} <= set(index.tolist()) for one in changes(index, seed))
    offsets = torch.arange(0, 100, 10)
    for one in changes(offsets, seed):
        assert (one.diff() >= 0).all() and (one[0], one[-1]) == (0, 90) and (one != offsets).sum() == 1
    order = torch.randperm(30, generator=generator)
    assert all(torch.equal(one.sort().values, torch.arange(30)) for one in changes(order, seed))
    flags = torch.ones(6, 2).bool()
    assert all((one != flags).sum() == 1 for one in changes(flags, seed))


def test_a_constant_weight_can_change():
    assert changes(torch.full((64,), 0.25), 1)


def test_an_expanded_tensor_cannot_change_in_one_place():
    assert not is_changeable(torch.randn(1, 5).expand(4, 5))
    assert is_changeable(torch.randn(4, 5).t())


def test_an_effect_is_more_than_an_error_budget():
    x = torch.ones(100)
    assert not has_effect([x], [x + 1e-5])
    assert has_effect([x], [x + 1e-2])
    assert has_effect([x], [x[:50]])
    assert not has_effect([x.bfloat16()], [(x + 2.0**-7).bfloat16()])
    assert has_effect([torch.arange(3)], [torch.tensor([0, 1, 3])])


def test_places_are_far_apart_in_every_dimension():
    shape, orders = torch.Size((40, 30)), [[2, 0, 1], [1, 2, 0]]
    generator = torch.Generator().manual_seed(0)
    places = [divmod(draw_place(shape, generator, place, orders), 30) for place in range(3)]
    assert [row * 3 // 40 for row, _ in places] == orders[0]
    assert [column * 3 // 30 for _, column in places] == orders[1]
