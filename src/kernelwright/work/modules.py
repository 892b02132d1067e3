"""Find the nn.Module that made a call, in forward and backward, without touching the program's autograd graph.

Forward: global hooks maintain the stack of running modules. Backward: autograd reports the running node, whose sequence
number dates from forward; a short list of (number, module) maps it back.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

MAX_BOUNDARIES = 1 << 18
MAX_SEQUENCE_NR = (1 << 63) - 1
"""Gradient accumulation nodes are not part of the sequence; their number is larger than this."""


class _ActiveModule(NamedTuple):
    module_id: int
    path: str
    is_recomputed: bool
    names: dict[int, str]


class ModulePathTracker:
    """Tracks the running module between `attach` and `detach`.

    Paths are those of `named_modules`, such as `layers.0.attn`, without the root's name. Calls made by the root itself
    have the name of its class; outside all modules the path is empty. For a second root the paths are prefixed with its
    class name, to distinguish two models.
    """

    def __init__(self) -> None:
        self._stack: list[_ActiveModule] = []
        self._names_of: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._sequence_numbers: list[int] = []
        self._paths: list[str] = []
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Register the global module hooks."""
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._stack = [], []

    @property
    def current(self) -> str:
        """Path of the module that makes the call being dispatched."""
        node = torch._C._current_autograd_node()
        if node is None or (self._stack and self._stack[-1].is_recomputed):
            return self._stack[-1].path if self._stack else ""
        return self._path_at(node._sequence_nr())

    def _path_at(self, sequence_nr: int) -> str:
        at = bisect_right(self._sequence_numbers, sequence_nr) - 1
        return self._paths[at] if at >= 0 and sequence_nr <= MAX_SEQUENCE_NR else ""

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        names = self._stack[-1].names if self._stack else self._names_of.get(module, {})
        if id(module) not in names or (not self._stack and module in self._roots):
            names = self._names_under(module)
        # A module entered while a node runs is a recomputation (checkpointing): then the stack is correct.
        recomputed = torch._C._current_autograd_node() is not None
        self._stack.append(_ActiveModule(id(module), names[id(module)], recomputed, names))
        self._record_boundary(names[id(module)])

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        """Pop the module and everything above it that an exception left on the stack."""
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at].module_id == id(module):
                del self._stack[at:]
                break
        self._record_boundary(self._stack[-1].path if self._stack else "")

    def _record_boundary(self, path: str) -> None:
        """Assign the autograd nodes created from now on to `path`."""
        sequence_nr = torch.autograd._get_sequence_nr()
        if self._sequence_numbers and sequence_nr < self._sequence_numbers[-1]:
            return  # another thread, with a sequence of its own; its nodes are not assigned
        if self._sequence_numbers and sequence_nr == self._sequence_numbers[-1]:
            self._paths[-1] = path
            return
        self._sequence_numbers.append(sequence_nr)
        self._paths.append(path)
        if len(self._sequence_numbers) > MAX_BOUNDARIES:
            del self._sequence_numbers[: MAX_BOUNDARIES // 2], self._paths[: MAX_BOUNDARIES // 2]

    def _names_under(self, root: torch.nn.Module) -> dict[int, str]:
        """Path of every module under a root, by identity; rebuilt when a submodule was replaced.

        Stored for every module, so that one that is later called by itself (recomputation) keeps its path.
        """
        modules = dict(root.named_modules())
        names = self._names_of.get(root, {})
        if any(id(module) not in names for module in modules.values()):
            title = type(root).__name__
            prefix = f"{title}." if any(other is not root for other in self._roots) else ""
            names = {id(module): prefix + name if name else title for name, module in modules.items()}
            self._names_of.update(dict.fromkeys(modules.values(), names))
            if len(modules) > 1:
                self._roots.add(root)
        return names
