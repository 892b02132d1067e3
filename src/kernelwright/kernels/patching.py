"""The library's kernels in a model that somebody else wrote: Hugging Face's Llama, Gemma and Qwen, and their like.

A module is taken for what it is named only after it has done on random numbers what the formula does, so a class that
computes something else under the same name is left alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.core.errors import UsageError
from kernelwright.kernels.activations.op import activation
from kernelwright.kernels.activations.reference import FORMULAS
from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.kernels.norms import reference as norms
from kernelwright.kernels.norms.op import rms_norm
from kernelwright.kernels.rotary import reference as rotary
from kernelwright.kernels.rotary.op import rotary_embedding

__all__ = ["Patch", "PatchError", "patch", "unpatch"]

Model = TypeVar("Model", bound=nn.Module)
KEPT = "_kernelwright"
ROTATE, CAUSAL = "apply_rotary_pos_emb", "ForCausalLMLoss"
GATED = ("silu", "gelu_tanh", "gelu")
ROWS, CLOSE = 4, 1e-5
"""What a formula is tried on, and how near it must come in FP32."""
SEQUENCES, TOKENS = 2, 33
"""What a patched model is tried on."""
MOST_ERROR = 1.25
"""Of the original's own error, that the patched model may have."""
ROUNDINGS = 4
"""More, for results whose own error is none by chance."""


class PatchError(UsageError):
    """A model that has nothing to patch, or computes something else when it is patched."""

    code = "not-patched"
    usual_next = "patch only models whose norms, activations and loss are those of Llama, Gemma or Qwen"


@dataclass
class Patch:
    """What was put into a model: how many of each, and how they are taken out."""

    norms: int = 0
    gates: int = 0
    rotary: int = 0
    loss: bool = False
    undo: list[Callable[[], None]] = field(default_factory=list, repr=False)


def patch(model: Model, *, check: bool = False) -> Model:
    """Puts RMSNorm, SwiGLU or GeGLU, rotary embedding and the loss of a causal model in place, in the model itself.

    Args:
        model: an nn.Module of Hugging Face's; `unpatch` takes everything out again.
        check: the patched model's logits, loss and gradients on random tokens are compared with the original's before,
            against a copy in FP32 (of FP32, in FP64). Needs memory for that copy.
    Returns:
        The model; `model._kernelwright` says what was put in.
    Raises:
        PatchError: nothing to patch, or the patched model is further from the copy than the original was.
        DeviceError: with `check`, the model is not on a CUDA device.
    """
    if hasattr(model, KEPT):
        return model
    trial = _Trial(model) if check else None
    put = Patch()
    for module in model.modules():
        any(put_one(module, put) for put_one in (_put_norm, _put_gate, _put_rotary))
    _put_loss(model, put)
    if not put.undo:
        raise PatchError(f"nothing in {type(model).__name__} is a norm, an activation, a rotation or a loss known here")
    setattr(model, KEPT, put)
    if trial:
        try:
            trial.compare(model)
        except BaseException:
            unpatch(model)
            raise
    return model


def unpatch(model: Model) -> Model:
    """Takes everything out that `patch` put in; nothing where nothing was."""
    if hasattr(model, KEPT):
        for undo in getattr(model, KEPT).undo:
            undo()
        delattr(model, KEPT)
    return model


def _replace(module: nn.Module, name: str, value: Any, put: Patch) -> None:
    """An attribute of the module itself, which hides that of its class."""
    before = vars(module).get(name, module)
    object.__setattr__(module, name, value)

    def undo() -> None:
        if before is module:
            object.__delattr__(module, name)
        else:
            object.__setattr__(module, name, before)

    put.undo.append(undo)


def _put_norm(module: nn.Module, put: Patch) -> bool:
    eps, weight = getattr(module, "variance_epsilon", getattr(module, "eps", None)), getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(eps, float) or not isinstance(weight, Tensor):
        return False
    if weight.dim() != 1 or (about := _norm_of(module, eps)) is None:
        return False
    offset, cast_first = about
    _replace(module, "forward", partial(_norm_forward, module, eps, offset, cast_first), put)
    put.norms += 1
    return True


def _norm_forward(module: Any, eps: float, offset: float, cast_first: bool, hidden_states: Tensor) -> Tensor:
    return rms_norm(hidden_states, module.weight, eps=eps, offset=offset, cast_first=cast_first)


@torch.no_grad()
def _norm_of(module: Any, eps: float) -> tuple[float, bool] | None:
    """The offset of a norm's weights, and whether it rounds before it multiplies; None where it is no RMSNorm."""
    trial = copy.deepcopy(module).float().cpu()
    trial.weight.normal_()
    x = torch.randn(ROWS, trial.weight.numel())
    try:
        said = trial(x)
        for offset in (0.0, 1.0):
            if torch.allclose(said.double(), norms.norm(x, trial.weight, eps=eps, offset=offset), CLOSE, CLOSE):
                return offset, _rounds_first(trial, x.bfloat16(), eps, offset)
    except Exception:  # whatever it is, it is called in another way
        return None
    return None


def _rounds_first(trial: Any, x: Tensor, eps: float, offset: float) -> bool:
    trial.weight.data = trial.weight.data.bfloat16()
    scale = trial.weight.float() + offset
    row = norms.norm(x, eps=eps).float()
    said, first, last = trial(x).float(), (row.bfloat16().float() * scale).bfloat16(), (row * scale).bfloat16()
    return bool((said != first).sum() < (said != last).sum())


def _put_gate(module: Any, put: Patch) -> bool:
    parts = all(isinstance(getattr(module, f"{name}_proj", None), nn.Module) for name in ("gate", "up", "down"))
    code = getattr(type(module).forward, "__code__", None)
    known = {"act_fn", "gate_proj", "up_proj", "down_proj"}
    if not parts or code is None or code.co_argcount != 2 or set(code.co_names) != known:
        return False
    x = torch.linspace(-8, 8, 999)
    try:
        said = module.act_fn(x)
    except Exception:  # an activation of something else
        return False
    kind = next((name for name in GATED if torch.allclose(said, FORMULAS[name](x), CLOSE, CLOSE)), None)
    if kind is None:
        return False
    _replace(module, "forward", partial(_gate_forward, module, kind), put)
    put.gates += 1
    return True


def _gate_forward(module: Any, kind: str, x: Tensor) -> Tensor:
    return module.down_proj(activation(module.gate_proj(x), module.up_proj(x), kind=kind))


def _put_rotary(module: nn.Module, put: Patch) -> bool:
    """The module's own forward, for which the one name means something else."""
    forward = type(module).forward
    theirs = getattr(forward, "__globals__", {}).get(ROTATE)
    if ROTATE not in getattr(getattr(forward, "__code__", None), "co_names", ()) or not _rotates(theirs):
        return False
    known = {**forward.__globals__, ROTATE: _rotate}
    ours = FunctionType(forward.__code__, known, forward.__name__, forward.__defaults__, forward.__closure__)
    ours.__kwdefaults__ = forward.__kwdefaults__
    _replace(module, "forward", _Bound(ours, module), put)
    put.rotary += 1
    return True


class _Bound:
    """A function as a module's method, which a copy of the module has for itself."""

    def __init__(self, function: FunctionType, module: nn.Module) -> None:
        self.function, self.module = function, module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return MethodType(self.function, self.module)(*args, **kwargs)


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Angles of each token twice, as Hugging Face's models have them: (B, S, D)."""
    return rotary_embedding(q, k, cos, sin, heads_first=unsqueeze_dim == 1)


@torch.no_grad()
def _rotates(theirs: Any) -> bool:
    q, k, angles = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8), torch.randn(1, 3, 4)
    twice = torch.cat((angles, angles), -1)
    try:
        said = theirs(q, k, twice.cos(), twice.sin())
        pairs = zip(said, (q, k), strict=True)
    except Exception:  # of another signature
        return False
    wanted = [(one, rotary.rotary_embedding(x.transpose(1, 2), angles.cos(), angles.sin())) for one, x in pairs]
    return all(torch.allclose(one.double(), other.transpose(1, 2), CLOSE, CLOSE) for one, other in wanted)


def _put_loss(model: Any, put: Patch) -> None:
    if getattr(getattr(model, "loss_function", None), "__name__", "") == CAUSAL:
        _replace(model, "_loss_function", causal_loss, put)
        put.loss = True


def causal_loss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Hugging Face's loss of a causal model, of logits as they are: each token's label is the next one.

    Args:
        logits: (B, S, vocab_size). labels: (B, S), or shift_labels that are shifted already.
        num_items_in_batch: what the sum is divided by, else the number of labels that count.
    """
    if shift_labels is None:
        assert labels is not None
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    target = shift_labels.reshape(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = cross_entropy(logits.reshape(-1, vocab_size), target, ignore_index=ignore_index, reduction=reduction)
    if num_items_in_batch is None:
        return loss
    return loss / (num_items_in_batch.to(loss.device) if isinstance(num_items_in_batch, Tensor) else num_items_in_batch)


class _Trial:
    """What a model computes of random tokens before it is patched, and how far that is from a copy of more digits."""

    def __init__(self, model: Any) -> None:
        one = next(model.parameters())
        draw = torch.Generator().manual_seed(0)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.tokens = torch.randint(vocabulary, (SEQUENCES, TOKENS), generator=draw).to(one.device)
        wide = copy.deepcopy(model).to(torch.float64 if one.dtype == torch.float32 else torch.float32)
        self.wanted = self._computed(wide)
        del wide
        self.errors = self._errors_of(model)

    def _computed(self, model: Any) -> dict[str, Tensor]:
        mode = model.training
        model.eval()
        try:
            with torch.enable_grad():
                said = model(input_ids=self.tokens, labels=self.tokens)
                wanted = [one for one in model.parameters() if one.requires_grad]
                found = torch.autograd.grad(said.loss, wanted, allow_unused=True)
        finally:
            model.train(mode)
        there = torch.cat([one.flatten() for one in found if one is not None])
        return {"the logits": said.logits.detach(), "the loss": said.loss.detach(), "the gradient": there}

    def _errors_of(self, model: Any) -> dict[str, float]:
        found = self._computed(model)
        return {name: _rms(one.double() - self.wanted[name].double()) for name, one in found.items()}

    def compare(self, model: Any) -> None:
        """
        Raises:
            PatchError: something is further from the copy than it was by more than `MOST_ERROR` and `ROUNDINGS` allow.
        """
        for name, error in self._errors_of(model).items():
            rounding = torch.finfo(next(model.parameters()).dtype).eps * _rms(self.wanted[name].double())
            if not error <= MOST_ERROR * self.errors[name] + ROUNDINGS * rounding:
                raise PatchError(
                    f"{name} of the patched {type(model).__name__} has an rms error of {error:.2e}, "
                    f"the original's is {self.errors[name]:.2e}"
                )


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()
