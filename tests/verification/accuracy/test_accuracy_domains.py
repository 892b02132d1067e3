"""Values that are drawn in the place of others keep their domain, also where a tensor is drawn in parts."""

import pytest
import torch

from kernelwright.verification.accuracy import domains
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS
from kernelwright.verification.accuracy.domains import Domain, parts_of

generator = torch.Generator().manual_seed(0)
NORMAL = torch.randn(12, 6, generator=generator)
EXAMPLES = {
    "normal": NORMAL,
    "positive": NORMAL.abs() + 0.1,
    "negative": -NORMAL.abs() - 0.1,
    "bounded": (NORMAL / NORMAL.abs().max()) * 0.95,
    "probabilities": NORMAL.softmax(-1),
    "ascending": NORMAL.sort(-1).values,
    "with zeros": NORMAL.where(NORMAL > -0.5, 0.0),
    "small": NORMAL * 2.0**-40,
    "half": NORMAL.half(),
}


@pytest.fixture(params=[1 << 28, 18], ids=["whole", "in parts"])
def part_elements(request, monkeypatch):
    monkeypatch.setattr(domains, "MAX_PART_ELEMENTS", request.param)


@pytest.mark.parametrize("distribution", [one for one in DISTRIBUTIONS if one.sampler], ids=lambda one: one.name)
@pytest.mark.parametrize("name", EXAMPLES)
def test_drawn_values_keep_the_domain(part_elements, name, distribution):
    example = EXAMPLES[name]
    ((drawn,), _) = distribution.draw(([example], {}), 5)
    assert (drawn.shape, drawn.dtype) == (example.shape, example.dtype)
    assert not torch.equal(drawn, example)
    assert torch.equal(drawn == 0, example == 0) or (example != 0).all()
    assert drawn.isfinite().all()
    if name == "positive":
        assert (drawn > 0).all()
    if name == "negative":
        assert (drawn <= 0).all()
    if name == "bounded":
        assert drawn.abs().max() <= 1
    if name == "probabilities":
        torch.testing.assert_close(drawn.sum(-1), torch.ones(12))
    if name == "ascending":
        assert (drawn.diff() >= 0).all()


def test_a_domain_does_not_depend_on_the_parts(monkeypatch):
    whole = {name: Domain.of(example) for name, example in EXAMPLES.items()}
    monkeypatch.setattr(domains, "MAX_PART_ELEMENTS", 18)
    for name, example in EXAMPLES.items():
        in_parts = Domain.of(example)
        assert in_parts.rms == pytest.approx(whole[name].rms, rel=1e-5)
        assert (in_parts.low, in_parts.high, in_parts.rows_sum_to_one, in_parts.ascending) == (
            whole[name].low, whole[name].high, whole[name].rows_sum_to_one, whole[name].ascending
        )  # fmt: skip


def test_parts_are_views_that_cover_a_tensor_once(monkeypatch):
    monkeypatch.setattr(domains, "MAX_PART_ELEMENTS", 18)
    parts = parts_of(NORMAL)
    assert [tuple(part.shape) for part in parts] == [(3, 6)] * 4
    assert torch.equal(torch.cat(list(parts)), NORMAL)
    assert parts[1].untyped_storage().data_ptr() == NORMAL.untyped_storage().data_ptr()
    assert len(parts_of(torch.zeros(2, 40))) == 2, "a row is not split"
