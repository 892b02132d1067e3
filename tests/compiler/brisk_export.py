"""torch.export without what it does over and over: a third of the time of a capture, and the same graph.

On every capture torch registers fifteen Python kernels for each of some 750 composite operators, and looks each of
them up in the dispatcher's list. Nothing of it changes between two captures of one process.
"""

import functools

import torch
import torch._dynamo
from torch._export import utils
from torch._ops import OpOverload

usual, look_up = OpOverload.py_impl, utils._materialize_cpp_cia_ops
seen = []


def py_impl(self, key):
    """As `OperatorBase.py_impl` for dispatch keys; it evaluates two annotations with type variables for each call."""
    if not isinstance(key, torch._C.DispatchKey) or key == torch._C.DispatchKey.Python:
        return usual(self, key)
    return functools.partial(registered, self, key)


def registered(operator, key, function):
    if key in operator.py_kernels:
        raise RuntimeError(f"Trying to override a python impl for {key} on operator {operator.name()}")
    operator.py_kernels[key] = function
    operator._dispatch_cache.clear()
    return function


def look_up_once():
    """Again only where somebody has registered an operator since."""
    found = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    if found != seen:
        look_up()
        seen[:] = found


OpOverload.py_impl = py_impl
utils._materialize_cpp_cia_ops = look_up_once
