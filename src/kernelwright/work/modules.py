"""Says which nn.Module made a call, in forward and in backward, without touching the program's autograd graph.

Forward: global hooks keep the stack of running modules. Backward: the engine says which node is running, and a node
carries the sequence number that it got when it was made in forward; a short list of (number, module) gives it back.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

MAX_BOUNDARIES = 1 << 18
MAX_SEQUENCE_NR = (1 << 63) - 1
"""Nodes that accumulate gradients have no place in the sequence and carry a number beyond this one."""


class _ActiveModule(NamedTuple):
    module_id: int
    path: str
    is_recomputed: bool
    names: dict[int, str]


class ModulePathTracker:
    """Follows the running module between `attach` and `detach`.

    A path is written as `named_modules` does, `layers.0.attn`, without the root's name. The calls that a root makes
    itself carry the name of its class; outside every module the path is empty. A second root of a program puts the
    name of its class before its paths, so that two models do not mix.
    """

    def __init__(self) -> None:
        self._stack: list[_ActiveModule] = []
        self._names_of: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._sequence_numbers: list[int] = []
        self._paths: list[str] = []
        self._handles: list[Any] = []

    def attach(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._stack = [], []

    @property
    def current(self) -> str:
        """Path of the module that makes the call that is being dispatched."""
        node = torch._C._current_autograd_node()
        if node is None or (self._stack and self._stack[-1].is_recomputed):
            return self._stack[-1].path if self._stack else ""
        return self._path_at(node._sequence_nr())

    def _path_at(self, sequence: int) -> str:
        at = bisect_right(self._sequence_numbers, sequence) - 1
        return self._paths[at] if at >= 0 and sequence <= MAX_SEQUENCE_NR else ""

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        names = self._stack[-1].names if self._stack else self._names_of.get(module, {})
        if id(module) not in names or (not self._stack and module in self._roots):
            names = self._names_under(module)
        # A module entered while a node runs is a recomputation (checkpointing): then the stack knows better.
        recomputed = torch._C._current_autograd_node() is not None
        self._stack.append(_ActiveModule(id(module), names[id(module)], recomputed, names))
        self._record_boundary(names[id(module)])

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        """Drops the module, and whatever is above it after an exception that no hook saw."""
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at].module_id == id(module):
                del self._stack[at:]
                break
        self._record_boundary(self._stack[-1].path if self._stack else "")

    def _record_boundary(self, path: str) -> None:
        """From the next autograd node on, nodes belong to `path`."""
        sequence = torch.autograd._get_sequence_nr()
        if self._sequence_numbers and sequence < self._sequence_numbers[-1]:
            return  # another thread counts for itself; its nodes stay unplaced
        if self._sequence_numbers and sequence == self._sequence_numbers[-1]:
            self._paths[-1] = path
            return
        self._sequence_numbers.append(sequence)
        self._paths.append(path)
        if len(self._sequence_numbers) > MAX_BOUNDARIES:
            del self._sequence_numbers[: MAX_BOUNDARIES // 2], self._paths[: MAX_BOUNDARIES // 2]

    def _names_under(self, root: torch.nn.Module) -> dict[int, str]:
        """Path of every module under a root, by identity; made anew when a submodule was exchanged.

        Modules remember it, so that one that is called by itself later (recomputation) keeps its path.
        """
        modules = dict(root.named_modules())
        names = self._names_of.get(root, {})
        if any(id(module) not in names for module in modules.values()):
            title = type(root).__name__
            prefix = f"{title}." if any(known is not root for known in self._roots) else ""
            names = {id(module): prefix + name if name else title for name, module in modules.items()}
            self._names_of.update(dict.fromkeys(modules.values(), names))
            if len(modules) > 1:
                self._roots.add(root)
        return names
