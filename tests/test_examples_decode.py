"""The decoded token of the example is that of a plain causal transformer over all tokens so far."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama_decode.py"
LAYERS, WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY, POSITIONS = TINY = (2, 32, 4, 2, 48, 64, 16)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("llama_decode", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(example):
    torch.manual_seed(0)
    return example.Model(*TINY).eval()


def logits_of_all(example, model, tokens):
    """Without a cache: every position attends to itself and the earlier ones; (T, vocabulary)."""
    x, count = model.embedding[tokens][None], len(tokens)
    angles = torch.arange(count)[:, None] * model.frequencies
    cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
    for layer in model.layers:
        attention, normed = layer.attention, layer.attention_norm(x)
        query, key, value = map(attention.split_heads, (attention.query(normed), attention.key(normed),
                                                        attention.value(normed)))  # fmt: skip
        key, value = (one.repeat_interleave(HEADS // GROUPS, 1) for one in (example.rotate(key, cos, sin), value))
        mixed = F.scaled_dot_product_attention(example.rotate(query, cos, sin), key, value, is_causal=True)
        x = x + attention.output(mixed.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.mlp_norm(x))
    return (model.norm(x) @ model.embedding.T)[0]


def test_tokens_one_by_one_get_the_logits_of_all_at_once(example, model):
    tokens = torch.randint(VOCABULARY, (9,))
    with torch.no_grad():
        one_by_one = [model(token.view(1, 1), torch.tensor([at]))[0, 0] for at, token in enumerate(tokens)]
        torch.testing.assert_close(torch.stack(one_by_one), logits_of_all(example, model, tokens))


def test_a_token_changes_the_cache_at_its_position_alone(model):
    before = [buffer.clone() for buffer in model.buffers()]
    with torch.no_grad():
        model(torch.tensor([[3]]), torch.tensor([5]))
    for old, new in zip(before, model.buffers(), strict=True):
        changed = (old != new).nonzero()
        assert old.dim() == 1 or set(changed[:, 2].tolist()) == {5}


def test_logits_are_of_the_order_of_one(model):
    with torch.no_grad():
        logits = model(torch.tensor([[3]]), torch.tensor([15]))
    assert 0.3 < logits.std() < 3
