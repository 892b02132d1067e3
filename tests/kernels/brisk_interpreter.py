"""Triton's interpreter without what it does over and over: half the time of a test, and the same arithmetic.

On import, once it is known that kernels are interpreted.
"""

import functools

import triton.language
from triton.language import core
from triton.runtime import interpreter


def called(self, *args, **kwargs):
    """A device function, as Triton calls it; its kernel has patched the language already."""
    if self.fn.__globals__.get("tl") is not triton.language:
        interpreter._patch_lang(self.fn)
    try:
        return self.rewrite()(*args, **kwargs)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def filled(self, args, type=None):
    """A tuple, as every tensor has one of its sizes: nobody asks for its type, whose name is costly."""
    self.values = list(args)
    if type is not None:
        self.type = type if isinstance(type, core.tuple_type) else core.tuple_type(type)


def sized(self, element_ty, shape, made=core.block_type.__init__, known={}):  # noqa: B006 - `known` is kept on purpose
    """A block's type, which is worked out once for its elements and sizes."""
    sizes = tuple(getattr(size, "value", size) for size in shape)
    if (element_ty.name, sizes) not in known:
        made(self, element_ty, shape)
        known[element_ty.name, sizes] = dict(vars(self))
    vars(self).update(known[element_ty.name, sizes], element_ty=element_ty)


def numpy_type(of, looked_up=interpreter._get_np_dtype, known={}):  # noqa: B006 - `known` is kept on purpose
    """Of a type by its name, as a pointer's cannot be hashed."""
    name = of.scalar.name
    if name not in known:
        known[name] = looked_up(of)
    return known[name]


interpreter.InterpretedFunction.__call__ = called
core.tuple.__init__ = filled
core.tuple.type = functools.cached_property(lambda self: core._type_for_tuple_values(self.values))
core.tuple.type.__set_name__(core.tuple, "type")
core.block_type.__init__ = sized
interpreter._get_np_dtype = numpy_type
