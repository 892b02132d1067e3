"""A file that computes in channels-last order has the values, and the layouts, of the original program."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import module_of

from kernelwright.compiler.assembly.channels_last_layer import ChannelsLastLayer
from kernelwright.compiler.assembly.output_file import assemble_file
from kernelwright.problems import load_problem

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU())
        self.linear = nn.Linear(channels, 5)

    def forward(self, x, *, scale=2.0, mask=None):
        images = self.layers(x) * scale
        images = images if mask is None else images * mask
        return {"images": images, "scores": [self.linear(images.mean((2, 3))), scale]}


def get_inputs():
    return [torch.randn(2, 3, 9, 8)]


def get_init_inputs():
    return [6]
"""


def made_from(folder, text):
    path = folder / "problem.py"
    path.write_text(text)
    return module_of(assemble_file(load_problem(str(path)), [ChannelsLastLayer()], "A test."))


@pytest.fixture
def pair(tmp_path):
    """A model and its new one with the same weights."""
    made = made_from(tmp_path, MODEL)
    old, new = made.Model(6), made.ModelNew(6)
    assert not new.load_state_dict(old.state_dict()).missing_keys
    return old, new


def same(got, right):
    torch.testing.assert_close(got, right)
    for one, other in zip(tensors_of(got), tensors_of(right), strict=True):
        assert one.stride() == other.stride()


def tensors_of(value):
    return [one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


@pytest.mark.parametrize("training", [False, True])
def test_values_and_strides_are_those_of_the_original(pair, training):
    old, new = (model.train(training) for model in pair)
    x = torch.randn(2, 3, 9, 8)
    same(new(x), old(x))
    torch.testing.assert_close(new.state_dict(), old.state_dict())


def test_arguments_that_are_keywords_only_are_passed_on(pair):
    old, new = pair
    x, mask = torch.randn(2, 3, 9, 8), torch.rand(2, 6, 7, 6)
    same(new(x, scale=3.0, mask=mask), old(x, scale=3.0, mask=mask))
    same(new(x=x, mask=mask[0]), old(x=x, mask=mask[0]))


def test_a_channels_last_call_is_passed_on_as_it_is(pair, monkeypatch):
    old, new = (model.eval() for model in pair)
    x, seen = torch.randn(2, 3, 9, 8).contiguous(memory_format=torch.channels_last), []
    forward = type(old).forward
    monkeypatch.setattr(type(old), "forward", lambda self, x, **given: (seen.append(x), forward(self, x, **given))[1])
    torch.testing.assert_close(new(x), old(x))
    assert seen[0] is x


@pytest.mark.parametrize("how", [lambda x: x.mT.contiguous().mT, lambda x: torch.cat([x, x])[::2]], ids=["mT", "part"])
def test_a_call_with_other_layouts_gives_the_strides_that_it_gave(pair, how):
    old, new = (model.eval() for model in pair)
    x = how(torch.randn(2, 3, 9, 8))
    same(new(x), old(x))


def test_a_mask_with_another_layout_gives_the_same_values(pair):
    old, new = pair
    x, mask = torch.randn(2, 3, 9, 8), torch.rand(6, 1, 1).expand(6, 7, 6)
    torch.testing.assert_close(new(x, mask=mask), old(x, mask=mask))


def test_a_mask_with_another_layout_gives_the_strides_that_it_gave(pair):
    old, new = pair
    x, mask = torch.randn(2, 3, 9, 8), torch.rand(6, 1, 1).expand(6, 7, 6)
    same(new(x, mask=mask), old(x, mask=mask))


def test_weights_are_reordered_once_and_stay_so_when_others_are_loaded(pair):
    old, new = pair
    weight = new.layers[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    assert new.linear.weight.is_contiguous()
    new.load_state_dict({name: value + 1 for name, value in old.state_dict().items()})
    assert new.layers[0].weight is weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_the_caller_keeps_his_input(pair):
    _, new = pair
    x = torch.randn(2, 3, 9, 8)
    before = x.clone()
    new(x)
    assert x.is_contiguous()
    assert torch.equal(x, before)


def test_gradients_are_those_of_the_original(pair):
    old, new = (model.double() for model in pair)  # the gradients of some biases are zero but for rounding
    x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for model in (old, new):
        result = model(x)
        (result["images"].square().sum() + result["scores"][0].sum()).backward()
    for one, other in zip(new.parameters(), old.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_volumes_are_reordered_too(tmp_path):
    text = MODEL.replace("Conv2d", "Conv3d").replace("Norm2d", "Norm3d").replace("(2, 3))", "(2, 3, 4))")
    made = made_from(tmp_path, text.replace("9, 8)", "5, 9, 8)"))
    old, new = made.Model(6), made.ModelNew(6)
    new.load_state_dict(old.state_dict())
    assert new.layers[0].weight.is_contiguous(memory_format=torch.channels_last_3d)
    x = torch.randn(2, 3, 5, 9, 8)
    same(new(x), old(x))


def test_a_channels_last_input_gives_the_strides_that_it_gave(tmp_path):
    x = torch.randn(2, 3, 9, 8).contiguous(memory_format=torch.channels_last)
    made = made_from(tmp_path, MODEL)
    old, new = made.Model(6), made.ModelNew(6)
    new.load_state_dict(old.state_dict())
    same(new(x), old(x))
