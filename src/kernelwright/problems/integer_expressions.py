"""Parse and evaluate integer expressions of a header, such as `M*N + 1`, without executing code from the file."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
}
Number = int | float
NUMBER_FUNCTIONS: dict[str, Callable[..., Number]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}
"""Functions of numbers."""
TENSOR_FUNCTIONS = ("numel", "size", "stride")
"""Functions whose first argument is the name of a tensor."""


def parse(text: str) -> ast.expr:
    """Parse an expression.

    Raises:
        ValueError: it is not a single expression of numbers, names, + - * / // % and function calls.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not an expression") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED_NODES):
            raise ValueError(f"{text!r} may contain numbers, names, + - * / // %, functions; not {type(node).__name__}")
    return tree


def variable_names(tree: ast.expr) -> set[str]:
    """The variables of an expression, without the functions that it calls."""
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in calls}


def evaluate(tree: ast.expr, values: Mapping[str, Number], functions: Mapping[str, Callable[..., Number]]) -> Number:
    """Evaluate an expression that `parse` returned.

    Raises:
        ValueError: an unknown name or function, division by zero, overflow, or a result that is not a number.
    """
    match tree:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            if name not in values:
                raise ValueError(f"{name} is not defined")
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](evaluate(operand, values, functions))
        case ast.BinOp(left=left, op=op, right=right):
            sides = evaluate(left, values, functions), evaluate(right, values, functions)
            try:
                return OPERATORS[type(op)](*sides)
            except ArithmeticError as error:
                raise ValueError(f"{ast.unparse(tree)} has no value: {error}") from error
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in functions:
                raise ValueError(f"unknown function {name}")
            named = [ast.unparse(one) for one in args[:1]] if name in TENSOR_FUNCTIONS else []
            return functions[name](*named, *(evaluate(one, values, functions) for one in args[len(named) :]))
    raise ValueError(f"{ast.unparse(tree)} is not a number")


_ALLOWED_NODES = (ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.BinOp, ast.Call, *OPERATORS)
