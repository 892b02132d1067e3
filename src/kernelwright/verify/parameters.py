"""The reference's parameters are inputs too: some sets give them other values."""

from __future__ import annotations

import torch

ZERO_SPREAD = 0.1


def perturb(module: torch.nn.Module, seed: int) -> None:
    """New values for every floating parameter, in place; buffers, which hold tables and statistics, stay.

    Signs and zeros stay, sizes grow by up to half, so that what was constant (a scale of ones) is so no more. A
    parameter of zeros only, which would hide whatever it multiplies, becomes small and normal.
    """
    with torch.no_grad():
        for at, parameter in enumerate(module.parameters()):
            if not parameter.dtype.is_floating_point or parameter.dtype.itemsize < 2:
                continue
            generator = torch.Generator(parameter.device).manual_seed((seed + at) % (1 << 63))
            drawn = torch.empty(parameter.shape, device=parameter.device)
            if bool((parameter == 0).all()):
                parameter.copy_(drawn.normal_(0, ZERO_SPREAD, generator=generator))
            else:
                parameter.mul_(drawn.uniform_(1.0, 1.5, generator=generator).to(parameter.dtype))


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter by every name it goes by."""
    return {name: value.detach() for name, value in module.named_parameters(remove_duplicate=False)}
