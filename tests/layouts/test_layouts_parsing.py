import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.layouts import Layout, LayoutError, Swizzle
from kernelwright.layouts.expressions import evaluate

integers = st.recursive(st.integers(1, 9), lambda part: st.lists(part, min_size=1, max_size=3).map(tuple), max_leaves=6)


@given(integers)
def test_what_is_printed_can_be_read_again(shape):
    layout = Layout(shape)
    assert Layout.parse(str(layout)) == layout
    assert evaluate(str(layout)).value == layout


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("8", Layout(8)),
        ("8:2", Layout(8, 2)),
        (" ( 4 , ( 2 , 2 ) ) : ( 2 , ( 1 , 8 ) ) ", Layout((4, (2, 2)), (2, (1, 8)))),
        ("(3):(1)", Layout((3,), (1,))),
        ("(4,2)", Layout((4, 2))),
    ],
)
def test_a_layout_is_read_as_it_is_written(text, layout):
    assert Layout.parse(text) == layout


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("(4,2:(2,1)", "(4,2:(2,1)>><<", 'expected "," or ")", found the end'),
        ("(4,-2):(1,4)", "(4,>>-2<<):(1,4)", "non-negative integer"),
        ("(4,x):(1,4)", "(4,>>x<<):(1,4)", "found a name"),
        ("4:1)", "4:1>>)<<", "expected the end"),
        ("", ">><<", "found the end"),
        ("4:1 $", "4:1 >>$<<", "expected the end, found '$'"),
        ("(4,2):(1,2,3)", ">>(4,2):(1,2,3)<<", "are not congruent"),
        ("(4,0)", ">>(4,0)<<", "must be 1 or more"),
        ("9223372036854775808:1", ">>9223372036854775808:1<<", "2^63"),
        ("<4:1,2:1>", ">><4:1,2:1><<", "tiler is not a layout"),
        ("4:1:2", "4:1>>:<<2", "expected the end"),
        ("(" * 60, "", "nested deeper"),
    ],
)
def test_what_cannot_be_read_is_marked(text, marked, message):
    with pytest.raises(LayoutError) as caught:
        Layout.parse(text)
    assert message in caught.value.message
    assert caught.value.where == marked


@given(st.text("()<>,:_o-0123456789 Swcoalesce", max_size=30))
def test_no_text_ends_in_anything_but_a_value_or_one_error(text):
    try:
        evaluate(text)
    except LayoutError as fault:
        assert fault.message


def test_a_swizzle_is_read_as_it_is_printed():
    assert evaluate("Sw<3,4,3>").value == Swizzle(3, 4, 3) == evaluate("Swizzle(3,4,3)").value
    assert evaluate("Sw<2,0,-3>").value == Swizzle(2, 0, -3)
    composed = evaluate("Sw<3,3,3> o 0 o (8,64):(64,1)").value
    assert str(composed) == "Sw<3,3,3> o 0 o (8,64):(64,1)"
    assert evaluate(str(composed)).value == composed
