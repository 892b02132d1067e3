"""Steps of optimisers on one tensor: parameter, gradient and state in, new parameter and state out.

They wait on memory: a dozen operators over four tensors, where one pass over each would do. `GPU_SCALE` is the `scale`
with which each one's inputs fill a GPU.
"""

import torch
from torch import Tensor

GPU_SCALE = {
    "sgd_momentum": 16,
    "adam": 16,
    "adamw": 16,
    "adam_in_place": 16,
    "adamw_mixed": 16,
    "lion": 16,
    "rms_prop": 1,
    "clip_by_norm": 32,
    "moving_average": 16,
}
STEP = 10


def _random_state(*shape: int) -> list[Tensor]:
    """A parameter, its gradient, and the gradient's running mean and mean square."""
    return [torch.randn(shape), torch.randn(shape) / 8, torch.randn(shape) / 16, torch.rand(shape) / 16]


def sgd_momentum(parameter: Tensor, gradient: Tensor, momentum: Tensor) -> tuple[Tensor, Tensor]:
    """All (M, N) -> the new parameter and momentum, with a weight decay of 1e-4."""
    momentum = 0.9 * momentum + gradient + 1e-4 * parameter
    return parameter - 0.01 * momentum, momentum


def sgd_momentum_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(768 * scale, 1024) for _ in range(3)]


def adam(parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All (M, N), square not negative -> the new parameter, mean and mean square, at step 10."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient * gradient
    size = 1e-3 / (1 - 0.9**STEP)
    spread = (square / (1 - 0.999**STEP)).sqrt() + 1e-8
    return parameter - size * mean / spread, mean, square


def adam_inputs(scale: int = 1) -> list[Tensor]:
    return _random_state(512 * scale, 1024)


def adamw(parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All (M, N), square not negative -> the new parameter, mean and mean square, with decoupled decay."""
    mean = torch.lerp(mean, gradient, 0.1)
    square = torch.lerp(square, gradient.square(), 0.05)
    parameter = parameter * (1 - 3e-4 * 0.1)
    return parameter - 3e-4 * mean / (square.sqrt() + 1e-8), mean, square


def adamw_inputs(scale: int = 1) -> list[Tensor]:
    return _random_state(400 * scale, 1003)


def adam_in_place(parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> list[Tensor]:
    """All (N,), square not negative: changes parameter, mean and square, and returns the three."""
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    parameter.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1e-3)
    return [parameter, mean, square]


def adam_in_place_inputs(scale: int = 1) -> list[Tensor]:
    return _random_state(500_000 * scale)


def adamw_mixed(
    master: Tensor, gradient: Tensor, mean: Tensor, square: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All (M, N), gradient in bfloat16, the rest float32 -> the parameter in bfloat16, and the new state."""
    wide = gradient.float()
    mean = 0.9 * mean + 0.1 * wide
    square = 0.95 * square + 0.05 * wide * wide
    master = master - 3e-4 * (mean / (square.sqrt() + 1e-8) + 0.1 * master)
    return master.to(gradient.dtype), master, mean, square


def adamw_mixed_inputs(scale: int = 1) -> list[Tensor]:
    master, gradient, mean, square = _random_state(512 * scale, 1024)
    return [master, gradient.bfloat16(), mean, square]


def lion(parameter: Tensor, gradient: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """All (M, N) -> the new parameter and mean; every number moves by the same step."""
    direction = torch.sign(0.9 * mean + 0.1 * gradient)
    parameter = parameter * (1 - 1e-4 * 0.1) - 1e-4 * direction
    return parameter, 0.99 * mean + 0.01 * gradient


def lion_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(512 * scale, 1000) for _ in range(3)]


def rms_prop(parameter: Tensor, gradient: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """All (M, N), square not negative -> the new parameter and mean square."""
    square = square * 0.99 + gradient.pow(2) * 0.01
    return parameter - 1e-3 * gradient / (torch.sqrt(square) + 1e-8), square


def rms_prop_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(96 * scale, 128), torch.randn(96 * scale, 128) / 8, torch.rand(96 * scale, 128) / 16]


def clip_by_norm(gradient: Tensor) -> Tensor:
    """gradient: (M, N) -> (M, N), made shorter where its length passes one."""
    norm = gradient.pow(2).sum().sqrt()
    return gradient * torch.clamp(1.0 / (norm + 1e-6), max=1.0)


def clip_by_norm_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1500 * scale, 1024) / 64]


def moving_average(average: Tensor, parameter: Tensor) -> Tensor:
    """average, parameter: (N,) -> (N,), the average of past parameters, moved by a thousandth."""
    return average * 0.999 + parameter * 0.001


def moving_average_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(700_001 * scale), torch.randn(700_001 * scale)]
