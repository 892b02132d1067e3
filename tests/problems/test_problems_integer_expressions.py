"""Header expressions: the same numbers as Python's, and nothing else of Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.problems.integer_expressions import evaluate, parse, variable_names

VALUES = {"M": 7, "N": 12, "scale": 0.5}
FUNCTIONS = {"cdiv": lambda a, b: -(-a // b), "max": max, "numel": lambda name: {"x": 84}[name]}


def value(text: str):
    return evaluate(parse(text), VALUES, FUNCTIONS)


leaves = st.one_of(st.integers(1, 99).map(str), st.sampled_from(sorted(VALUES)))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda one: f"-{one}"),
        st.tuples(inner, st.integers(1, 9)).map(lambda parts: f"({parts[0]} // {parts[1]})"),
    ),
    max_leaves=12,
)


@given(expressions)
def test_agrees_with_python(text):
    assert value(text) == eval(text, {}, VALUES)


@given(st.text(max_size=40))
def test_any_text_gives_a_number_or_a_clear_error(text):
    try:
        value(text)
    except (ValueError, TypeError, KeyError):
        return


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("cdiv(M, 2)", 4),
        ("max(M, N)", 12),
        ("numel(x) // M", 12),
        ("2 * (M + 1)", 16),
        ("M * scale", 3.5),
        ("-M % 4", 1),
    ],
)
def test_functions_and_precedence(text, result):
    assert value(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M N",
        "M ** N",
        "M if N else 1",
        "[M]",
        "x.shape",
        "x[0]",
        "lambda: M",
        "M := 1",
        "M < N",
        "f'{M}'",
        "(" * 500,
    ],
)
def test_the_rest_of_python_is_refused(text):
    with pytest.raises(ValueError, match=r"expression|may contain"):
        parse(text)


@pytest.mark.parametrize("text", ["'text'", "1j", "M(1)(2)", "max(M, key=N)", "None"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match=r"not a number|may contain"):
        value(text)


def test_unknown_names_are_named():
    cases = (("M + K", "K is not defined"), ("-cdiv(M, K)", "K is not defined"), ("exec(M)", "unknown function exec"))
    for text, message in cases:
        with pytest.raises(ValueError, match=message):
            value(text)


def test_names_are_the_variables():
    assert variable_names(parse("cdiv(M, 2) * N")) == {"M", "N"}
