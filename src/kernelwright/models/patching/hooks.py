"""Whether a module's parameters may be read in place of a call: nothing else takes part in that call."""

from __future__ import annotations

from torch import nn

from kernelwright.kernels.operators import is_plain_tensor


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of a module runs a hook, or a forward that was set on the instance."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)


def has_plain_parameters(module: nn.Module) -> bool:
    """Whether a module has no hooks, and its own parameters are tensors of no subclass, such as a sharded one."""
    own = module._parameters.values()
    return not has_hooks(module) and all(one is None or is_plain_tensor(one, False) for one in own)
