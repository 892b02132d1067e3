"""Models of others with our kernels: the same results, what is not known left alone, everything taken out again."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from on_device import DEVICE, runs_kernels

from kernelwright.kernels.patching import Patched, PatchError, patch, patched, unpatch

pytestmark = runs_kernels
WIDE, HEAD, HEADS, VOCABULARY = 32, 8, 4, 50


class TinyRMSNorm(nn.Module):
    """Llama's: rounded before it is multiplied."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(width)), 1e-6

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)


class ShiftedRMSNorm(nn.Module):
    """Gemma's: weights around zero, rounded last."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), 1e-6

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).type_as(x)


class OddRMSNorm(TinyRMSNorm):
    """Named like one, and not one."""

    def forward(self, x):
        return super().forward(x) + x


class TinyMLP(nn.Module):
    def __init__(self, act_fn):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDE, 2 * WIDE, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(2 * WIDE, WIDE, bias=False), act_fn

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def rotate_half(x):
    one, other = x.chunk(2, -1)
    return torch.cat((-other, one), -1)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class TinyAttention(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.q, self.k = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, WIDE // 2, bias=False)
        self.q_norm = norm(HEAD)

    def forward(self, x):
        heads = [part.unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.q(x), self.k(x))]
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * torch.linspace(1, 0.1, HEAD // 2, device=x.device)
        angles = torch.cat((angles, angles), -1)[None].to(x.dtype)
        q, k = apply_rotary_pos_emb(self.q_norm(heads[0]), heads[1], angles.cos(), angles.sin())
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(-2)


def ForCausalLMLoss(logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, shift_labels=None):
    labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:] if shift_labels is None else shift_labels
    kept = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(logits.float().view(-1, vocab_size), labels.reshape(-1), reduction=kept)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


class Said:
    def __init__(self, logits, loss):
        self.logits, self.loss = logits, loss


class TinyModel(nn.Module):
    def __init__(self, norm=TinyRMSNorm, act_fn=F.silu):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDE), nn.Linear(WIDE, VOCABULARY, bias=False)
        self.norm, self.attention, self.mlp = norm(WIDE), TinyAttention(norm), TinyMLP(act_fn)

    @property
    def loss_function(self):
        return getattr(self, "_loss_function", ForCausalLMLoss)

    def get_input_embeddings(self):
        return self.embed

    def forward(self, input_ids, labels, **about):
        x = self.embed(input_ids)
        x = x + self.attention(self.norm(x))
        logits = self.head(x + self.mlp(self.norm(x)))
        return Said(logits, self.loss_function(logits=logits, labels=labels, vocab_size=VOCABULARY, **about))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def tokens():
    return torch.randint(VOCABULARY, (2, 7), device=DEVICE)


def made(norm=TinyRMSNorm, act_fn=F.silu, dtype=torch.float32):
    model = TinyModel(norm, act_fn)
    for module in model.modules():
        if hasattr(module, "weight") and module.weight.dim() == 1:
            module.weight.data.normal_(0.5, 0.2)
    return model.to(DEVICE, dtype)


def tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("norm", [TinyRMSNorm, ShiftedRMSNorm])
@pytest.mark.parametrize("act_fn", [F.silu, tanh_gelu, F.gelu])
def test_a_patched_model_computes_what_it_did(norm, act_fn, dtype):
    model = patch(made(norm, act_fn, dtype), check=True)
    assert patched(model) == Patched(norms=2, gates=1, rotary=1, loss=True)


def test_everything_is_taken_out():
    model, ids = made(), tokens()
    before = model(ids, ids)
    names = [(type(module), sorted(vars(module))) for module in model.modules()]
    patch(model)
    assert patch(model) is model
    unpatch(model)
    after = unpatch(model)(ids, ids)
    assert [(type(module), sorted(vars(module))) for module in model.modules()] == names
    assert not any(patched(model))
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.loss, after.loss)


def test_a_copy_of_a_patched_model_is_its_own():
    model, ids = patch(made()), tokens()
    other = copy.deepcopy(model)
    want = model(ids, ids).logits
    for one in model.parameters():
        one.data.zero_()
    torch.testing.assert_close(other(ids, ids).logits, want)


def test_unpatching_a_copy_leaves_the_original():
    model = patch(made())
    unpatch(copy.deepcopy(model))
    assert patched(model) == Patched(norms=2, gates=1, rotary=1, loss=True)


class OtherMLP(TinyMLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x))


class BiasedRMSNorm(TinyRMSNorm):
    def __init__(self, width):
        super().__init__(width)
        self.bias = nn.Parameter(torch.zeros(width))


def test_other_formulas_of_the_same_parts_are_left_alone():
    model = made(BiasedRMSNorm)
    model.mlp.__class__ = OtherMLP
    assert patched(patch(model)) == Patched(norms=0, gates=0, rotary=1, loss=True)


def test_a_forward_that_somebody_has_replaced_is_left_alone():
    model = made()
    model.mlp.forward = lambda x: x
    assert patched(patch(model)).gates == 0


def test_parameters_that_are_not_there_are_left_alone():
    model = made()
    model.norm.weight, model.attention.q_norm.weight = (
        nn.Parameter(torch.empty(0)),
        nn.Parameter(torch.empty(8, device="meta")),
    )
    assert patched(patch(model)).norms == 1


def test_a_wider_weight_gives_a_wider_result():
    model = patch(made(dtype=torch.float16))
    model.norm.float()
    assert model.norm(torch.ones(2, WIDE, device=DEVICE, dtype=torch.float16)).dtype == torch.float32


def test_frozen_models_and_modes_are_as_they_were():
    model = made().requires_grad_(False)
    model.mlp.eval()
    patch(model, check=True)
    assert model.training
    assert not model.mlp.training


def test_defaults_and_random_numbers_are_left_alone():
    model, state = made(), torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        patch(model)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)
    assert patched(model).norms == 2


def test_a_patched_model_is_compiled_whole():
    model, ids = patch(made()), tokens()
    graphs = torch._dynamo.explain(model)(ids, ids)
    assert graphs.graph_break_count == 0


def test_what_is_named_alike_is_left_alone():
    assert patched(patch(made(OddRMSNorm, torch.tanh))) == Patched(norms=0, gates=0, rotary=1, loss=True)


def test_a_model_of_something_else_is_refused():
    with pytest.raises(PatchError, match="nothing in Sequential is a norm"):
        patch(nn.Sequential(nn.Linear(3, 3)))


def test_a_patch_that_computes_something_else_is_taken_out(monkeypatch):
    from kernelwright.kernels import patching

    model, ids = made(), tokens()
    want = model(ids, ids).logits
    monkeypatch.setattr(patching, "rms_norm", lambda x, weight, **_: x * weight)
    with pytest.raises(PatchError, match="of the patched TinyModel has an error of"):
        patch(model, check=True)
    assert torch.equal(model(ids, ids).logits, want)


def test_losses_over_items_and_of_shifted_labels():
    model, ids = made(), tokens()
    labels = ids.clone()
    labels[0, :3] = -100
    for about in ({}, {"num_items_in_batch": 5}, {"num_items_in_batch": torch.tensor(5)}, {"shift_labels": labels}):
        want = model(ids, labels, **about).loss
        torch.testing.assert_close(patch(model)(ids, labels, **about).loss, want)
        unpatch(model)


try:
    import transformers
except ImportError:
    transformers = None

if transformers:
    SMALL = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 8,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }

    @pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "Gemma", "Gemma2"])
    def test_the_models_of_hugging_face(name):
        config = getattr(transformers, f"{name}Config")(**SMALL)
        model = getattr(transformers, f"{name}ForCausalLM")(config).to(DEVICE)
        found = patched(patch(model, check=True))
        assert (found.gates, found.rotary, found.loss) == (2, 2, True)
        assert found.norms >= 5
