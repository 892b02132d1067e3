"""What a straight piece of PTX computes, in numpy: so a test sees what the compiler made of floats, without a GPU."""

import re

import numpy

INSTRUCTION = re.compile(r"\s*([a-z0-9.]+)\s+(%\w+), (.*);")


def float_of(value):
    return value.view(numpy.float32)


def whole_of(value):
    return value.view(numpy.int32)


def fused(a, b, c):
    """In extended precision, which rounds once more than a GPU, 40 bits further on."""
    return (float_of(a).astype(numpy.longdouble) * float_of(b) + float_of(c)).astype(numpy.float32)


OPERATIONS = {
    "mov.b32": lambda a: a,
    "fma.rn.f32": fused,
    "add.f32": lambda a, b: float_of(a) + float_of(b),
    "sub.f32": lambda a, b: float_of(a) - float_of(b),
    "mul.f32": lambda a, b: float_of(a) * float_of(b),
    "neg.f32": lambda a: -float_of(a),
    "cvt.rni.f32.f32": lambda a: numpy.rint(float_of(a)),
    "cvt.rn.f32.s32": lambda a: whole_of(a).astype(numpy.float32),
    "cvt.rzi.s32.f32": lambda a: float_of(a).astype(numpy.int32),
    "add.s32": lambda a, b: whole_of(a) + whole_of(b),
    "sub.s32": lambda a, b: whole_of(a) - whole_of(b),
    "and.b32": lambda a, b: whole_of(a) & whole_of(b),
    "shl.b32": lambda a, b: whole_of(a) << whole_of(b),
    "shr.s32": lambda a, b: whole_of(a) >> whole_of(b),
}


def evaluated(lines, known):
    """The registers of 32 bits that follow from those that are `known`; what needs any other is left out."""
    registers = dict(known)
    for line in lines:
        if not (found := INSTRUCTION.match(line)):
            continue
        name, target, rest = found.groups()
        values = [_value(arg.strip(), registers) for arg in rest.split(",")]
        if all(value is not None for value in values):
            registers[target] = OPERATIONS[name](*values)
    return registers


def _value(arg, registers):
    if arg.startswith("%"):
        return registers.get(arg)
    if arg.startswith("0f"):
        return numpy.array([int(arg[2:], 16)], numpy.uint32)
    return numpy.array([int(arg) & 0xFFFFFFFF], numpy.uint32) if re.fullmatch(r"-?\d+", arg) else None
