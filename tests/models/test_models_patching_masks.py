"""Causal masks of base models: omitted under torch.compile where attention is causal without them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kernelwright.models.patching.masks import match_mask


def create_causal_mask(config, inputs_embeds, attention_mask, cache, position_ids=None, or_mask_function=None):
    size = inputs_embeds.shape[1]
    return torch.ones(size, size, dtype=torch.bool).tril()


def decorate(function):
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


class BaseModel(nn.Module):
    """Of the structure of Hugging Face's; the result says whether a mask was created."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="sdpa")

    @decorate
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, cache=None, use_cache=None):
        positions = torch.arange(input_ids.shape[1]) if position_ids is None else position_ids
        inputs = {"attention_mask": attention_mask, "cache": cache, "position_ids": positions}
        mask = create_causal_mask(config=self.config, inputs_embeds=input_ids, **inputs)
        return input_ids + (1 if mask is None else 0)


@pytest.fixture
def model():
    model = BaseModel()
    model.__class__ = type("Patched", (BaseModel,), {"forward": match_mask(model)})
    return model


def omits_mask(model, *args, **kwargs):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    ids = torch.zeros(1, 4)
    assert not model(ids, *args, **kwargs).any(), "never without torch.compile"
    return bool(compiled(ids, *args, **kwargs).any())


def test_a_mask_that_is_plainly_causal_is_omitted(model):
    assert omits_mask(model)
    assert omits_mask(model, use_cache=False)
    assert omits_mask(model, None, None)


@pytest.mark.parametrize("name", ["attention_mask", "position_ids", "cache"])
def test_a_mask_that_depends_on_inputs_is_created(model, name):
    assert not omits_mask(model, **{name: torch.zeros(1, 4)})


def test_a_mask_that_depends_on_a_positional_input_is_created(model):
    assert not omits_mask(model, torch.ones(1, 4))


class PatternedModel(BaseModel):
    def forward(self, input_ids=None):
        return create_causal_mask(self.config, input_ids, None, None, or_mask_function=lambda *_: True)


@pytest.mark.parametrize("module", [PatternedModel(), nn.Linear(2, 2)], ids=["another pattern", "no mask"])
def test_modules_that_create_no_causal_mask_are_left_alone(module):
    assert match_mask(module) is None


@pytest.mark.parametrize("config", [{"_attn_implementation": "eager"}, {"is_causal": False}], ids=str)
def test_a_mask_that_attention_needs_is_created(model, config):
    vars(model.config).update(config)
    assert not omits_mask(model)
