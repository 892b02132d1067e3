"""The loss of a causal model computed with its last layer: no logits in training, the same loss and gradients."""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from on_device import DEVICE, runs_kernels
from test_models_patching import VOCABULARY, WIDE, ForCausalLMLoss, TinyAttention, TinyMLP, TinyRMSNorm, made, tokens

from kernelwright.models.patching import PatchWarning, count_patched, patch, unpatch
from kernelwright.models.patching.head import match_head


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor | None


@dataclass
class Hidden:
    last_hidden_state: Tensor


class BaseModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens, self.norm = nn.Embedding(VOCABULARY, WIDE), TinyRMSNorm(WIDE)
        self.attention, self.mlp = TinyAttention(TinyRMSNorm), TinyMLP(F.silu)

    def forward(self, input_ids, attention_mask=None, **kwargs):
        x = self.embed_tokens(input_ids)
        x = x + self.attention(self.norm(x))
        return Hidden(self.norm(x + self.mlp(x)))


class CausalModel(nn.Module):
    """Of the structure of Hugging Face's models, with a soft cap as in Gemma 2 if the configuration has one."""

    def __init__(self, softcap=None, tied=True, bias=False):
        super().__init__()
        self.model, self.lm_head = BaseModel(), nn.Linear(WIDE, VOCABULARY, bias=bias)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.config = SimpleNamespace(final_logit_softcapping=softcap, vocab_size=VOCABULARY)

    @property
    def loss_function(self):
        return getattr(self, "_loss_function", ForCausalLMLoss)

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def forward(self, input_ids=None, attention_mask=None, labels=None, logits_to_keep=0, return_dict=True, **kwargs):
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        logits = self.lm_head(outputs.last_hidden_state[:, slice(-logits_to_keep, None), :])
        if self.config.final_logit_softcapping is not None:
            logits = logits / self.config.final_logit_softcapping
            logits = torch.tanh(logits)
            logits = logits * self.config.final_logit_softcapping
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return Output(loss, logits) if return_dict else (loss, logits)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def loss_and_gradients(model, ids, labels, **kwargs):
    output = model(input_ids=ids, labels=labels, **kwargs)
    model.zero_grad()
    output.loss.backward()
    return output, {name: one.grad for name, one in model.named_parameters()}


VARIANTS = {
    "tied": {},
    "untied": {"tied": False},
    "bias": {"tied": False, "bias": True},
    "soft cap": {"softcap": 2.0},
}


@runs_kernels
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_training_has_the_same_loss_and_gradients_without_logits(variant):
    model, ids = CausalModel(**variant).to(DEVICE), tokens()
    labels = ids.clone()
    labels[0, :3] = -100
    want, wanted = loss_and_gradients(model, ids, labels)
    patch(model, check=True)
    got, gradients = loss_and_gradients(model, ids, labels)
    assert got.logits is None
    assert type(got) is Output
    torch.testing.assert_close(got.loss, want.loss)
    torch.testing.assert_close(gradients, wanted)
    assert unpatch(model)(ids, labels=labels).logits is not None
    assert type(model) is CausalModel


@runs_kernels
def test_arguments_of_the_loss():
    model, ids = CausalModel().to(DEVICE), tokens()
    shifted = ids.roll(1, 1)
    for kwargs in ({"num_items_in_batch": 5}, {"num_items_in_batch": torch.tensor(5)}, {"shift_labels": shifted}):
        want = model(ids, None, ids, **kwargs).loss
        got = patch(model)(ids, None, ids, **kwargs)  # labels by position
        assert got.logits is None
        torch.testing.assert_close(got.loss, want)
        unpatch(model)


@runs_kernels
def test_when_logits_are_returned():
    model, ids = patch(CausalModel().to(DEVICE)), tokens()
    assert model(ids, labels=ids).logits is None
    assert model(ids, labels=ids, return_dict=False)[1] is None
    assert model(ids).logits is not None, "without labels"
    assert model.eval()(ids, labels=ids).logits is not None, "in evaluation mode"
    patch(unpatch(model.train()), keep_logits=True)
    assert count_patched(model).loss
    assert model(ids, labels=ids).logits is not None, "where they are kept"


@runs_kernels
def test_a_hook_of_the_head_sees_logits():
    model, ids, seen = patch(CausalModel().to(DEVICE)), tokens(), []
    handle = model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert model(ids, labels=ids).logits is seen[0]
    handle.remove()
    assert model(ids, labels=ids).logits is None


def test_a_loss_that_is_set_afterwards_is_called():
    model, ids = patch(CausalModel()), torch.zeros(1, 3, dtype=torch.int64)
    unpatch(model.model)  # whose kernels need a GPU
    model._loss_function = lambda logits, labels, vocab_size: logits.sum()
    output = model(ids, labels=ids)
    assert torch.equal(output.loss, output.logits.sum())


@runs_kernels
def test_a_copy_has_its_own_head():
    model, ids = patch(CausalModel().to(DEVICE)), tokens()
    other = copy.deepcopy(model)
    want = model(ids, labels=ids).loss
    model.lm_head.weight.data.zero_()
    torch.testing.assert_close(other(ids, labels=ids).loss, want)


@runs_kernels
def test_under_autocast_the_loss_is_that_of_16_bits():
    model, ids = CausalModel().to(DEVICE), tokens()
    with torch.autocast(DEVICE, torch.bfloat16):
        want, wanted = loss_and_gradients(model, ids, ids)
        got, gradients = loss_and_gradients(patch(model, parts=["loss"]), ids, ids)
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-2, atol=0)
    for name, gradient in gradients.items():
        assert (gradient - wanted[name]).norm() < 0.02 * wanted[name].norm()


@runs_kernels
@pytest.mark.slow
def test_a_compiled_step_is_one_graph_that_stores_no_logits():
    model, ids = patch(CausalModel().to(DEVICE)), tokens()
    want, wanted = loss_and_gradients(model, ids, ids)
    got, gradients = loss_and_gradients(torch.compile(model, backend="aot_eager", fullgraph=True), ids, ids)
    assert got.logits is None
    torch.testing.assert_close(got.loss, want.loss)
    assert list(gradients.values()) and all(map(torch.allclose, gradients.values(), wanted.values()))


class ScaledModel(CausalModel):
    def forward(self, input_ids=None, labels=None, **kwargs):
        logits = 2 * self.lm_head(self.model(input_ids).last_hidden_state)
        return Output(self.loss_function(logits=logits, labels=labels, vocab_size=VOCABULARY), logits)


class WeightedModel(CausalModel):
    def forward(self, input_ids=None, labels=None, **kwargs):
        output = super().forward(input_ids, labels=labels)
        return Output(2 * output.loss, output.logits)


class UnlabelledModel(CausalModel):
    def forward(self, input_ids=None, **kwargs):
        return super().forward(input_ids, **kwargs)


class WrappedLinear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [(ScaledModel, "not that of the result"), (WeightedModel, "not that of"), (UnlabelledModel, "no parameter labels")],
)
def test_other_models_keep_their_logits_and_say_so(model, reason):
    assert reason in match_head(model())


def test_other_heads_keep_their_logits():
    model = CausalModel()
    model.lm_head.__class__ = WrappedLinear
    with pytest.warns(PatchWarning, match="loss: CausalModel stores its logits in training: .* pass keep_logits=True"):
        patch(model)
    assert type(model) is CausalModel
    assert count_patched(model).loss
    assert count_patched(patch(unpatch(model), keep_logits=True)).loss  # without a warning


def test_a_model_without_a_base_model_is_matched_too():
    assert callable(match_head(made()))
