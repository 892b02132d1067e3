"""The library's kernels in a model that somebody else wrote: Hugging Face's Llama, Gemma and Qwen, and their like.

A module is taken for what it is named only after its own forward has done on random numbers what the formula does, so
a class that computes something else under the same name is left alone. A patched module is one of a subclass with
another forward: copies, replicas and unpatching need nothing else.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, TypeVar

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

__all__ = ["PatchError", "Patched", "patch", "patched", "unpatch"]

Model = TypeVar("Model", bound=nn.Module)
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


class Patched(NamedTuple):
    """How many modules of a model run our kernels, and whether its loss does."""

    norms: int
    gates: int
    rotary: int
    loss: bool


def patch(model: Model, *, check: bool = False) -> Model:
    """Puts RMSNorm, SwiGLU or GeGLU, rotary embedding and the loss of a causal model in place, in the model itself.

    Args:
        model: an nn.Module of Hugging Face's; `unpatch` takes everything out again. Modules whose forward somebody
            has replaced already are left alone. A patched model is saved by its state_dict, not pickled.
        check: the patched model's logits, loss and gradient on random tokens are compared with the original's before,
            against a copy in FP32 (of FP32, in FP64). Needs memory for that copy and three gradients.
    Returns:
        The model; `patched` says what was put in.
    Raises:
        PatchError: nothing to patch, or the patched model is further from the copy than the original was.
        DeviceError: with `check`, the model is not on a CUDA device.
    """
    trial = _Trial(model) if check and not any(patched(model)) else None
    for module in list(model.modules()):
        if not isinstance(module, _Ours) and "forward" not in vars(module):
            forward = _norm_forward(module) or _gate_forward(module) or _rotary_forward(module)
            if forward is not None:
                module.__class__ = _subclass(type(module), *forward)
        if getattr(getattr(module, "loss_function", None), "__name__", "") == CAUSAL and _owns_loss(module):
            object.__setattr__(module, "_loss_function", causal_loss)
    if not any(patched(model)):
        raise PatchError(f"nothing in {type(model).__name__} is a norm, an activation, a rotation or a loss known here")
    if trial:
        try:
            trial.compare(model)
        except BaseException:
            unpatch(model)
            raise
    return model


def unpatch(model: Model) -> Model:
    """Takes everything out that `patch` put in; nothing where nothing was."""
    for module in model.modules():
        if isinstance(module, _Ours):
            module.__class__ = type(module).__bases__[1]
        if vars(module).get("_loss_function") is causal_loss:
            object.__delattr__(module, "_loss_function")
    return model


def patched(model: nn.Module) -> Patched:
    """What of a model runs our kernels."""
    ours = [module.runs for module in model.modules() if isinstance(module, _Ours)]
    loss = any(vars(module).get("_loss_function") is causal_loss for module in model.modules())
    return Patched(ours.count("norm"), ours.count("gate"), ours.count("rotary"), loss)


class _Ours:
    """A module with another forward; `runs` says which."""

    runs = ""


@functools.cache
def _subclass(original: type, runs: str, forward: Any) -> type:
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (_Ours, original), names | {"runs": runs, "forward": forward})


def _owns_loss(module: nn.Module) -> bool:
    """Whether it is its own, and not that of a module inside."""
    return isinstance(getattr(type(module), "loss_function", None), property)


def _norm_forward(module: nn.Module) -> tuple[str, Any] | None:
    eps_name = "variance_epsilon" if hasattr(module, "variance_epsilon") else "eps"
    known = type(module).__name__.endswith("RMSNorm") and list(module.state_dict()) == ["weight"]
    if not known or not isinstance(getattr(module, eps_name, None), float):
        return None
    weight: Any = module.weight
    if weight.dim() != 1 or not weight.numel() or (about := _norm_of(module, getattr(module, eps_name))) is None:
        return None
    return "norm", _norm_as(type(module), eps_name, *about)


@functools.cache
def _norm_as(original: Any, eps_name: str, offset: float, cast_first: bool) -> Any:
    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        if cast_first and self.weight.dtype != hidden_states.dtype:  # the wider of both comes out
            return original.forward(self, hidden_states)
        eps = getattr(self, eps_name)
        return rms_norm(hidden_states, self.weight, eps=eps, offset=offset, cast_first=cast_first)

    return forward


def _draw(*shape: int) -> Tensor:
    """The same numbers each time, whatever dtype, device and random state the program has."""
    generator = torch.Generator("cpu").manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), CLOSE, CLOSE)


@torch.no_grad()
def _norm_of(module: Any, eps: float) -> tuple[float, bool] | None:
    """The offset of a norm's weights, and whether it rounds before it multiplies; None where it is no RMSNorm."""
    run, weight = type(module).forward, _draw(module.weight.numel())
    x = _draw(ROWS, weight.numel())
    try:
        trial = copy.deepcopy(module)
        trial.weight = nn.Parameter(weight)
        said = run(trial, x)
        for offset in (0.0, 1.0):
            if _close(said, norms.norm(x, weight, eps=eps, offset=offset)):
                return offset, _rounds_first(run, trial, x.bfloat16(), eps, offset)
    except Exception:  # whatever it is, it is called in another way
        return None
    return None


def _rounds_first(run: Any, trial: Any, x: Tensor, eps: float, offset: float) -> bool:
    trial.weight = nn.Parameter(trial.weight.bfloat16())
    scale, row = trial.weight.float() + offset, norms.norm(x, eps=eps).float()
    said, first, last = run(trial, x).float(), (row.bfloat16().float() * scale).bfloat16(), (row * scale).bfloat16()
    return bool((said != first).sum() < (said != last).sum())


@torch.no_grad()
def _gate_forward(module: Any) -> tuple[str, Any] | None:
    if not all(isinstance(getattr(module, f"{name}_proj", None), nn.Module) for name in ("gate", "up", "down")):
        return None
    x = torch.linspace(-8, 8, 999, dtype=torch.float32, device="cpu")
    projections = {"gate_proj": lambda x: x - 0.5, "up_proj": lambda x: 1.0 + x.sin(), "down_proj": lambda x: 2.0 * x}
    try:
        said = type(module).forward(SimpleNamespace(act_fn=module.act_fn, **projections), x)
        wanted = {kind: 2.0 * FORMULAS[kind](x - 0.5) * (1.0 + x.sin()) for kind in GATED}
        kind = next((kind for kind, want in wanted.items() if _close(said, want)), None)
    except Exception:  # it needs more than an activation and three projections
        return None
    return None if kind is None else ("gate", _gate_as(kind))


@functools.cache
def _gate_as(kind: str) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.down_proj(activation(self.gate_proj(x), self.up_proj(x), kind=kind, cast_first=True))

    return forward


def _rotary_forward(module: nn.Module) -> tuple[str, Any] | None:
    """The module's own forward, for which the one name means something else."""
    forward = type(module).forward
    theirs = getattr(forward, "__globals__", {}).get(ROTATE)
    if ROTATE not in getattr(getattr(forward, "__code__", None), "co_names", ()) or not _rotates(theirs):
        return None
    return "rotary", _rotary_as(forward)


@functools.cache
def _rotary_as(forward: FunctionType) -> FunctionType:
    known = {**forward.__globals__, ROTATE: _rotate}
    ours = FunctionType(forward.__code__, known, forward.__name__, forward.__defaults__, forward.__closure__)
    ours.__kwdefaults__, ours.__annotations__ = forward.__kwdefaults__, forward.__annotations__
    return ours


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Angles of each token twice, as Hugging Face's models have them: (B, S, D)."""
    return rotary_embedding(q, k, cos, sin, heads_first=unsqueeze_dim == 1)


@torch.no_grad()
def _rotates(theirs: Any) -> bool:
    q, k, angles = _draw(1, 2, 3, 8), _draw(1, 1, 3, 8), _draw(1, 3, 4)
    twice = torch.cat((angles, angles), -1)
    try:
        said = theirs(q, k, twice.cos(), twice.sin())
        wanted = [rotary.rotary_embedding(x.transpose(1, 2), angles.cos(), angles.sin()) for x in (q, k)]
        return all(_close(one, other.transpose(1, 2)) for one, other in zip(said, wanted, strict=True))
    except Exception:  # of another signature
        return False


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
        draw = torch.Generator("cpu").manual_seed(0)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.tokens = torch.randint(vocabulary, (SEQUENCES, TOKENS), generator=draw, device="cpu").to(one.device)
        wide = copy.deepcopy(model).to(torch.float64 if one.dtype == torch.float32 else torch.float32)
        self.wanted = self._computed(wide)
        del wide
        self.errors = self._errors_of(model)

    def _computed(self, model: Any) -> dict[str, list[Tensor]]:
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            with torch.enable_grad():
                said = model(input_ids=self.tokens, labels=self.tokens)
                wanted = [one for one in model.parameters() if one.requires_grad]
                found = torch.autograd.grad(said.loss, wanted, allow_unused=True) if wanted else ()
        finally:
            for module, training in modes.items():
                module.training = training
        there = [one for one in found if one is not None]
        return {"the logits": [said.logits.detach()], "the loss": [said.loss.detach()], "the gradient": there}

    def _errors_of(self, model: Any) -> dict[str, float]:
        found = self._computed(model)
        return {
            name: _norm2(got.to(want.dtype) - want for got, want in zip(found[name], wanted, strict=True))
            for name, wanted in self.wanted.items()
        }

    def compare(self, model: Any) -> None:
        """
        Raises:
            PatchError: something is further from the copy than it was by more than `MOST_ERROR` and `ROUNDINGS` allow.
        """
        rounding = ROUNDINGS * torch.finfo(next(model.parameters()).dtype).eps
        for name, error in self._errors_of(model).items():
            if not error <= MOST_ERROR * self.errors[name] + rounding * _norm2(self.wanted[name]):
                raise PatchError(
                    f"{name} of the patched {type(model).__name__} has an error of {error:.2e}, "
                    f"the original's is {self.errors[name]:.2e}"
                )


def _norm2(tensors: Iterable[Tensor]) -> float:
    return sum(one.square().sum().item() for one in tensors) ** 0.5
