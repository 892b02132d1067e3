"""Residual sums of decoder layers: added by norms with the same results, in layers whose forward has that form."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from on_device import DEVICE, runs_kernels
from test_models_patching import WIDE, ShiftedRMSNorm, TinyMLP, TinyRMSNorm

from kernelwright.models.patching import PatchError, count_patched, patch, residuals, unpatch
from kernelwright.models.patching.residuals import ResidualStream, match_residuals


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDE, WIDE)

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        return self.proj(hidden_states).tanh(), None


class Layer(nn.Module):
    """Llama's."""

    def __init__(self, norm=TinyRMSNorm):
        super().__init__()
        self.self_attn, self.mlp = Attention(), TinyMLP(torch.nn.functional.silu)
        self.input_layernorm, self.post_attention_layernorm = norm(WIDE), norm(WIDE)
        for one in (self.input_layernorm, self.post_attention_layernorm):
            one.weight.data.normal_(0.5, 0.2)

    def forward(self, hidden_states, attention_mask=None, position_ids=None, **kwargs):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states, _ = self.self_attn(hidden_states=hidden_states, attention_mask=attention_mask, **kwargs)
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states))
        return residual + hidden_states


class SandwichLayer(Layer):
    """Gemma 2's: norms of the results too."""

    def __init__(self, norm=TinyRMSNorm):
        super().__init__(norm)
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(WIDE), norm(WIDE)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states, _ = self.self_attn(self.input_layernorm(hidden_states))
        hidden_states = residual + self.post_attention_layernorm(hidden_states)
        residual = hidden_states
        hidden_states = self.mlp(self.pre_feedforward_layernorm(hidden_states))
        return residual + self.post_feedforward_layernorm(hidden_states)


class TupleLayer(Layer):
    """That of earlier versions of transformers, with the sum in the other order."""

    def forward(self, hidden_states, output_attentions=False):
        attended, weights = self.self_attn(self.input_layernorm(hidden_states))
        hidden_states = attended + hidden_states
        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states)) + hidden_states
        return (hidden_states, weights) if output_attentions else (hidden_states,)


class DeviceLayer(Layer):
    """It uses the sum as a tensor."""

    def forward(self, hidden_states):
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states))[0]
        hidden_states = hidden_states.clamp(-1, 1)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)).to(hidden_states.dtype)


class OtherLayer(Layer):
    """A sum that no norm has as input."""

    def forward(self, hidden_states):
        return hidden_states + self.input_layernorm(self.mlp(self.self_attn(torch.sin(hidden_states))[0]))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def fused(monkeypatch):
    """The kernels that ran: whether each added something."""
    calls = []
    for name in ("rms_norm", "rms_norm_with_input"):
        run = getattr(residuals, name)
        monkeypatch.setattr(
            residuals, name, lambda *args, run=run, **kwargs: calls.append("residual" in kwargs) or run(*args, **kwargs)
        )
    return calls


def patched(layer):
    return patch(copy.deepcopy(layer), parts=["residuals"])


def results(layer, x, run=lambda layer, x: layer(x)):
    """The result, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = run(layer, x)
    (y[0] if isinstance(y, tuple) else y).square().sum().backward()
    return [y, x.grad, *(one.grad for one in layer.parameters())]


def flatten(results):
    y, *gradients = results
    return [*(y if isinstance(y, tuple) else (y,)), *gradients]


@runs_kernels
@pytest.mark.parametrize("kind", [Layer, SandwichLayer, TupleLayer])
@pytest.mark.parametrize("norm", [TinyRMSNorm, ShiftedRMSNorm])
def test_results_and_gradients_are_the_same(kind, norm, fused):
    layer, x = kind(norm).to(DEVICE), torch.randn(2, 3, WIDE, device=DEVICE)
    want, got = flatten(results(layer, x)), flatten(results(patched(layer), x))
    for one, other in zip(got, want, strict=True):
        assert (one - other).norm() <= 1e-6 * other.norm()
    assert fused == [False, True]


@runs_kernels
def test_a_sum_that_is_used_as_a_tensor_is_added_before(fused):
    layer, x = DeviceLayer().to(DEVICE), torch.randn(2, 3, WIDE, device=DEVICE)
    want = results(layer, x)
    other = copy.deepcopy(layer)
    forward = residuals._fuse_residuals(
        tuple((name, residuals.detect_norm(one)) for name, one in layer.named_children() if "norm" in name)
    )
    other.__class__ = type("Patched", (DeviceLayer,), {"forward": forward(DeviceLayer.forward)})
    torch.testing.assert_close(results(other, x), want)


@runs_kernels
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant, fused):
    layer, x = Layer().to(DEVICE), torch.randn(2, 3, WIDE, device=DEVICE)
    want = results(layer, x)
    run = lambda layer, x: checkpoint(layer, x, use_reentrant=use_reentrant)  # noqa: E731
    torch.testing.assert_close(results(patched(layer), x, run), want)
    assert fused


@runs_kernels
def test_a_frozen_norm_and_an_input_that_needs_no_gradient(fused):
    layer, x = Layer().to(DEVICE), torch.randn(2, 3, WIDE, device=DEVICE)
    layer.post_attention_layernorm.requires_grad_(False)
    want = results(layer, x)
    torch.testing.assert_close(results(patched(layer), x), want)
    torch.testing.assert_close(patched(layer)(hidden_states=x), layer(x))
    assert fused == [False, True] * 2


@runs_kernels
@pytest.mark.parametrize("change", ["hook", "forward", "class", "dtype"])
def test_a_norm_that_changed_after_the_patch_is_called(change, fused):
    layer, x = Layer().to(DEVICE), torch.randn(2, 3, WIDE, device=DEVICE)
    other = patched(layer)
    for one in (layer.post_attention_layernorm, other.post_attention_layernorm):
        if change == "hook":
            one.register_forward_hook(lambda module, args, output: 2 * output)
        elif change == "forward":
            one.forward = torch.sin
        elif change == "class":
            one.__class__ = ShiftedRMSNorm
            one.eps = 1e-6
        else:
            one.double()
    if change == "dtype":
        layer.mlp.double()
        other.mlp.double()
    want = results(layer, x)
    torch.testing.assert_close(results(other, x), want, rtol=1e-5, atol=1e-5)
    assert fused == [False], "the first norm alone"


@runs_kernels
def test_autocast_keeps_the_wider_sum(fused):
    layer, x = Layer().to(DEVICE), torch.randn(2, 3, WIDE, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        want, got = results(layer, x), results(patched(layer), x)
    assert got[0].dtype == want[0].dtype == torch.float32
    for one, other in zip(got, want, strict=True):
        assert (one - other).norm() <= 0.02 * other.norm()
    assert fused == [False], "sums of two dtypes are torch's"


def test_a_compiled_layer_is_one_graph_of_plain_modules(fused):
    layer, x = Layer(), torch.randn(2, 3, WIDE)
    want = results(layer, x)
    compiled = torch.compile(patched(layer), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(results(compiled, x), want)
    assert not fused


def test_without_gradients_modules_are_called(fused):
    layer, x = Layer(), torch.randn(2, 3, WIDE)
    with torch.no_grad():
        assert torch.equal(patched(layer)(x), layer(x))
    assert not fused


def test_other_layers_are_not_matched():
    for layer in (OtherLayer(), TinyMLP(torch.tanh), Attention(), nn.Linear(2, 2)):
        assert match_residuals(layer) is None
    with pytest.raises(PatchError, match="residuals: not found in OtherLayer"):
        patch(OtherLayer(), parts=["residuals"])


def test_parts_of_one_layer_are_added_and_reverted():
    layer = Layer()
    names = [(type(one), sorted(vars(one)), sorted(one.state_dict())) for one in layer.modules()]
    patch(patch(layer, parts=["residuals"]), parts=["norms", "projections", "residuals"])
    patch(layer, parts=["norms"])
    counts = count_patched(layer)
    assert (counts.norms, counts.gates, counts.projections, counts.residuals) == (2, 0, 1, 1)
    patch(layer, parts=["gates"])
    assert count_patched(layer).gates == 1
    assert type(layer.mlp).__name__ == "TinyMLP"
    unpatch(layer)
    assert [(type(one), sorted(vars(one)), sorted(one.state_dict())) for one in layer.modules()] == names


def test_a_class_that_changed_after_the_patch_cannot_be_reverted():
    layer = patch(Layer(), parts=["residuals", "norms"])
    layer.__class__ = type("Sharded", (type(layer),), {})  # as fully_shard
    with pytest.raises(PatchError, match="the class of Sharded was changed after patch"):
        unpatch(layer)
    assert count_patched(layer).norms == 2, "nothing was reverted"


def test_a_stream_is_a_tensor_to_its_users():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    stream = ResidualStream(x)
    assert torch.equal((stream + y).tensor, x + y)
    assert torch.equal((y + stream).tensor, x + y)
    assert torch.equal((stream + y + y).tensor, x + y + y)
    assert torch.equal(stream + 1, x + 1)
    assert (stream + y).shape == x.shape
