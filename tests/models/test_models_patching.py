"""Models of others with our kernels: the same results, what is not known left alone, everything taken out again."""

import copy
import functools
import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from tiers import fast_first
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from on_device import DEVICE, runs_kernels

from kernelwright.models.patching import PatchCounts, PatchError, PatchWarning, count_patched, patch, unpatch

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


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("norm", fast_first(1, [TinyRMSNorm, ShiftedRMSNorm]))
@pytest.mark.parametrize("act_fn", fast_first(1, [F.silu, tanh_gelu, F.gelu]))
def test_a_patched_model_computes_what_it_did(norm, act_fn, dtype):
    model = patch(made(norm, act_fn, dtype), check=True)
    assert count_patched(model) == PatchCounts(norms=2, gates=1, rotary=1, loss=True)


def test_everything_is_taken_out():
    model, ids = made(), tokens()
    before = model(ids, ids)
    names = [(type(module), sorted(vars(module))) for module in model.modules()]
    patch(model)
    assert patch(model) is model
    unpatch(model)
    after = unpatch(model)(ids, ids)
    assert [(type(module), sorted(vars(module))) for module in model.modules()] == names
    assert not any(count_patched(model))
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.loss, after.loss)


@runs_kernels
def test_a_copy_of_a_patched_model_is_its_own():
    model, ids = patch(made()).eval(), tokens()
    other = copy.deepcopy(model)
    want = model(ids, ids).logits
    for one in model.parameters():
        one.data.zero_()
    torch.testing.assert_close(other(ids, ids).logits, want)


def test_a_class_that_was_changed_after_patching_is_not_lost():
    """As `fully_shard` changes it."""
    model = patch(TinyModel())
    patched = type(model.norm)
    model.norm.__class__ = type("FSDPTinyRMSNorm", (patched,), {})
    with pytest.raises(PatchError, match="became FSDPTinyRMSNorm after patch"):
        unpatch(model)
    model.norm.__class__ = patched
    assert type(unpatch(model).norm) is TinyRMSNorm


def test_unpatching_a_copy_leaves_the_original():
    model = patch(made())
    unpatch(copy.deepcopy(model))
    assert count_patched(model) == PatchCounts(norms=2, gates=1, rotary=1, loss=True)


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
    with pytest.warns(PatchWarning) as caught:
        patch(model)
    assert count_patched(model) == PatchCounts(norms=0, gates=0, rotary=1, loss=True)
    norms, gates = [str(one.message) for one in caught]
    assert norms.startswith("norms: not found in TinyModel (") and "2 BiasedRMSNorm: it must have a weight" in norms
    assert gates.startswith("gates: not found in TinyModel (") and "1 OtherMLP: it is not down_proj(" in gates


def test_a_forward_that_somebody_has_replaced_is_left_alone():
    model = made()
    model.mlp.forward = lambda x: x
    with pytest.warns(PatchWarning, match="gates: not found .* 1 TinyMLP: its forward has been replaced"):
        patch(model)
    assert count_patched(model).gates == 0


def test_parameters_that_are_not_there_are_left_alone():
    model = made()
    model.norm.weight, model.attention.q_norm.weight = (
        nn.Parameter(torch.empty(0)),
        nn.Parameter(torch.empty(8, device="meta")),
    )
    with pytest.warns(PatchWarning, match=r"norms: 1 of 2 patched .* 1 TinyRMSNorm: its weight is \(0,\)"):
        assert count_patched(patch(model)).norms == 1  # on the meta device the values are to come


def test_a_wider_weight_gives_a_wider_result():
    model = patch(made(dtype=torch.float16))
    model.norm.float()
    assert model.norm(torch.ones(2, WIDE, device=DEVICE, dtype=torch.float16)).dtype == torch.float32


@runs_kernels
@pytest.mark.slow
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
    assert count_patched(model).norms == 2


@runs_kernels
@pytest.mark.slow
def test_a_patched_model_is_compiled_whole():
    model, ids = patch(made()), tokens()
    graphs = torch._dynamo.explain(model)(ids, ids)
    assert graphs.graph_break_count == 0


def test_what_is_named_alike_is_left_alone():
    with pytest.warns(PatchWarning):
        model = patch(made(OddRMSNorm, torch.tanh))
    assert count_patched(model) == PatchCounts(norms=0, gates=0, rotary=1, loss=True)


def test_a_model_of_something_else_is_refused():
    with pytest.raises(PatchError, match="nothing to patch in Sequential: norms: not found"):
        patch(nn.Sequential(nn.Linear(3, 3)))


@runs_kernels
def test_a_patch_that_computes_something_else_is_taken_out(monkeypatch):
    from kernelwright.models.patching import forwards

    model, ids = made(), tokens()
    want = model(ids, ids).logits
    monkeypatch.setattr(forwards, "rms_norm", lambda x, weight, **_: x * weight)
    with pytest.raises(PatchError, match="of the patched TinyModel has an error of"):
        patch(model, check=True)
    assert torch.equal(model(ids, ids).logits, want)


@runs_kernels
def test_losses_over_items_and_of_shifted_labels():
    model, ids = made(), tokens()
    labels = ids.clone()
    labels[0, :3] = -100
    for about in ({}, {"num_items_in_batch": 5}, {"num_items_in_batch": torch.tensor(5)}, {"shift_labels": labels}):
        want = model(ids, labels, **about).loss
        torch.testing.assert_close(patch(model)(ids, labels, **about).loss, want)
        unpatch(model)


def renamed(old, new):
    """As `deprecate_kwarg` of transformers 5.24, which wraps the forward of every attention module."""

    def wrap(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            if old in kwargs:
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return wrapped

    return wrap


def bare(function):
    """A decorator that leaves no trace of what it wraps but its closure."""
    return lambda *args: function(*args)


class Callback:
    """A decorator whose result is no function, so that nothing can be bound anew in it."""

    def __init__(self, function):
        functools.update_wrapper(self, function)

    def __get__(self, module, kind=None):
        return functools.partial(self.__wrapped__, module) if module is not None else self


def attention_with(forward):
    """Attention of a class of its own, on a model that has everything else too."""
    model = made()
    model.attention.__class__ = type("DecoratedAttention", (TinyAttention,), {"forward": forward})
    return model


def bound_in_closure(apply_rotary_pos_emb):
    def forward(self, x):
        q = self.q(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
        angles = torch.linspace(0, 1, x.shape[1] * HEAD, device=x.device).view(1, -1, HEAD).to(x.dtype)
        angles[..., HEAD // 2 :] = angles[..., : HEAD // 2]
        q, _ = apply_rotary_pos_emb(q, q, angles.cos(), angles.sin())
        return q.transpose(1, 2).flatten(-2)

    return forward


DECORATED = {
    "renamed": renamed("past_key_values", "cache")(TinyAttention.forward),
    "twice": renamed("a", "b")(renamed("c", "d")(TinyAttention.forward)),
    "bare": bare(TinyAttention.forward),
    "no_grad": torch.enable_grad()(TinyAttention.forward),
    "closure": bound_in_closure(apply_rotary_pos_emb),
    "decorated closure": bare(bound_in_closure(apply_rotary_pos_emb)),
}


@runs_kernels
@pytest.mark.parametrize("forward", DECORATED.values(), ids=DECORATED)
def test_rotation_is_found_behind_decorators(forward, monkeypatch):
    from kernelwright.models.patching import rotation

    model, other, calls = attention_with(forward), attention_with(forward), []
    ours = rotation.rotary_embedding
    monkeypatch.setattr(rotation, "rotary_embedding", lambda *args, **kwargs: calls.append(1) or ours(*args, **kwargs))
    x = torch.randn(2, 7, WIDE, device=DEVICE)
    want = model.attention(x)
    assert count_patched(patch(model)).rotary == 1
    torch.testing.assert_close(model.attention(x), want)
    assert len(calls) == 1, "our rotation runs"
    other.attention(x)
    assert len(calls) == 1, "only in the model that was patched"
    assert unpatch(model).attention.forward.__func__ is forward


MODELING = """
import torch
from torch import nn

@kernelized
def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    return rotate(q, k, cos, sin, unsqueeze_dim)

class Attention(nn.Module):
    @renamed("past_key_values", "cache")
    def forward(self, q, k, position_embeddings=None, cache=None, **kwargs):
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        return q, k, cache
"""


@runs_kernels
def test_an_attention_module_of_transformers_5_24_keeps_its_decorator():
    modeling = ModuleType("modeling_tiny")
    vars(modeling).update(renamed=renamed, rotate=apply_rotary_pos_emb, kernelized=lambda function: function)
    exec(MODELING, vars(modeling))
    before, model = modeling.apply_rotary_pos_emb, nn.Sequential(modeling.Attention())
    q, k = torch.randn(1, 4, 3, HEAD, device=DEVICE), torch.randn(1, 2, 3, HEAD, device=DEVICE)
    angles = torch.randn(1, 3, HEAD // 2, device=DEVICE).repeat(1, 1, 2)
    given = {"position_embeddings": (angles.cos(), angles.sin()), "past_key_values": "cached"}
    want, signature = model[0](q, k, **given), inspect.signature(model[0].forward)
    assert count_patched(patch(model, parts=["rotary"])).rotary == 1
    got = model[0](q, k, **given)
    torch.testing.assert_close(got[:2], want[:2])
    assert got[2] == "cached"
    assert inspect.signature(model[0].forward) == signature
    assert modeling.apply_rotary_pos_emb is before


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (Callback(TinyAttention.forward), "its forward cannot be rebound"),
        (lambda self, x: apply_multimodal_rotary_pos_emb(x), "calls apply_multimodal_rotary_pos_emb"),  # noqa: F821
        (bound_in_closure(lambda q, k, cos, sin: (q * cos, k * sin)), "computes another rotation"),
    ],
)
def test_a_rotation_that_cannot_be_replaced_is_reported(forward, reason):
    model = attention_with(forward)
    with pytest.warns(PatchWarning, match=f"rotary: not found in TinyModel .* 1 DecoratedAttention: .*{reason}"):
        patch(model)
    assert count_patched(model) == PatchCounts(norms=2, gates=1, rotary=0, loss=True)


def without(part):
    model = made()
    if part == "rotary":
        model.attention = nn.Linear(WIDE, WIDE)
    elif part == "gates":
        model.mlp = nn.Linear(WIDE, WIDE)
    else:
        model.norm, model.attention.q_norm = nn.LayerNorm(WIDE), nn.LayerNorm(HEAD)
    return model


@pytest.mark.parametrize("part", ["norms", "gates", "rotary"])
def test_a_part_that_a_model_does_not_have_is_reported(part, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="5.24.0"))
    others = [one for one in PatchCounts._fields if one != part]
    with pytest.warns(PatchWarning) as caught:
        patch(without(part))
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message.startswith(f"{part}: not found in TinyModel (transformers 5.24.0): it does not have a module ")
    assert message.endswith(f"pass parts={others} to patch only the parts that were found")
    found = count_patched(patch(without(part), parts=others))  # no warning: the caller has said so
    assert [bool(count) for count in found] == [one != part for one in PatchCounts._fields]


@pytest.mark.parametrize("part", ["norms", "gates", "rotary"])
def test_a_part_that_is_named_has_to_be_there(part):
    model = without(part)
    with pytest.raises(PatchError, match=f"{part}: not found in TinyModel") as caught:
        patch(model, parts=PatchCounts._fields)
    assert "pass parts=[" in caught.value.next
    assert not any(count_patched(model))


def test_only_the_parts_that_are_named_are_patched():
    assert count_patched(patch(made(), parts=["rotary"])) == PatchCounts(norms=0, gates=0, rotary=1, loss=False)
    assert count_patched(patch(made(), parts=("loss", "norms"))) == PatchCounts(norms=2, gates=0, rotary=0, loss=True)


@pytest.mark.parametrize("parts", [["rope"], "norms"])
def test_names_that_are_no_parts_are_refused(parts):
    with pytest.raises(PatchError, match=f"parts is '{parts[0] if isinstance(parts, list) else parts}'"):
        patch(made(), parts=parts)


def test_no_parts_are_nothing_to_patch():
    with pytest.raises(PatchError, match="nothing to patch"):
        patch(made(), parts=[])


class BaseModel(nn.Module):
    """It has the property, as every model of Hugging Face's, and computes no loss."""

    loss_function = TinyModel.loss_function

    def forward(self, input_ids):
        return self.norm(self.mlp(self.attention(self.embed(input_ids))))


def test_a_model_that_computes_no_loss_has_none():
    model = made()
    model.__class__ = BaseModel
    with pytest.warns(PatchWarning, match="loss: not found in BaseModel"):
        assert not count_patched(patch(model)).loss


def other_loss(logits, labels, vocab_size):
    return logits.sum()


def test_a_loss_of_another_name_is_reported():
    model = made()
    model._loss_function = other_loss
    with pytest.warns(PatchWarning, match="loss: not found .* its loss_function is other_loss, not ForCausalLMLoss"):
        assert not count_patched(patch(model)).loss


def test_parts_are_added_to_those_that_are_patched():
    model = patch(made(), parts=["norms"])
    assert count_patched(patch(model)) == PatchCounts(norms=2, gates=1, rotary=1, loss=True)


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

    @pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Mistral"])
    def test_the_models_of_hugging_face(name):
        config = getattr(transformers, f"{name}Config")(**SMALL)
        model = getattr(transformers, f"{name}ForCausalLM")(config).to(DEVICE)
        found = count_patched(patch(model, check=True))
        assert (found.gates, found.rotary, found.loss) == (2, 2, True)
        assert found.norms >= 5

    def test_a_base_model_of_hugging_face_has_no_loss():
        model = transformers.LlamaModel(transformers.LlamaConfig(**SMALL)).to(DEVICE)
        with pytest.warns(
            PatchWarning, match=f"loss: not found in LlamaModel .transformers {transformers.__version__}"
        ):
            found = count_patched(patch(model))
        assert (found.norms, found.gates, found.rotary, found.loss) == (5, 2, 2, False)
