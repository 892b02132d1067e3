import pytest

from kernelwright.layouts import Layout, LayoutError, composition
from kernelwright.layouts.expressions import FUNCTIONS, evaluate, format_value
from kernelwright.layouts.queries import explain


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("composition((6,2):(8,2), (4,3):(3,1))", "((2,2),3):((24,2),8)"),
        ("(6,2):(8,2) o (4,3):(3,1)", "((2,2),3):((24,2),8)"),
        ("composition((12,(4,8)):(59,(13,1)), <3:4, 8:2>)", "(3,(2,4)):(236,(26,1))"),
        ("composition((12,(4,8)):(59,(13,1)), (3,8))", "(3,(4,2)):(59,(13,1))"),
        ("logical_divide((9,(4,8)):(59,(13,1)), <_, (2,4):(1,8)>)", "(9,((2,4),(2,2))):(59,((13,2),(26,1)))"),
        ("complement(4:2, 24)", "(2,3):(1,8)"),
        ("coalesce((2,(1,6)):(1,(6,2)), (1,1))", "(2,6):(1,2)"),
        ("(3,(2,3)):(3,(12,1))(1,5)", "17"),
        ("(3,(2,3)):(3,(12,1))(_,2)", "(3):(3)"),
        ("(4,8)(_,2)", "(4):(1)"),
        ("idx2crd(16, (3,(2,3)))", "(1,(1,2))"),
        ("shape_div((3,4), 6)", "(1,2)"),
        ("size(complement(4:2, 24))", "6"),
        ("Sw<3,3,3>(72)", "64"),
        ("recast(Sw<3,4,3>, 8, 16)", "Sw<3,3,3>"),
        ("bank_conflicts(32:32)", "32-way"),
        ("coalescing(32:1, 4)", "4 sectors"),
        ("flatten(mma.m16n8k16.bf16.C)", "(4,8,2,2):(32,1,16,8)"),
        ("make_layout(3:1, 4:3)", "(3,4):(1,3)"),
        ("(3:1)", "3:1"),
        ("composition(8:1, _)", "8:1"),
        ("logical_divide(8:1, _)", "8:1"),
        ("mma.m16n8k16.bf16.A(0,1)", "16"),
        ("find_swizzle((32,32):(32,1), 4, column)", "Sw<5,0,5> o 0 o (32,32):(32,1)"),
        ("make_layout((4,2), (2,1))", "(4,2):(2,1)"),
        ("cosize(4)", "4"),
    ],
)
def test_an_expression_comes_to_what_its_operations_give(text, result):
    assert format_value(evaluate(text).value) == result


def test_every_operation_says_what_it_did_from_the_inside_out():
    found = evaluate("coalesce(composition((6,2):(8,2), (4,3):(3,1)))")
    assert [step.call for step in found.steps] == [
        "composition((6,2):(8,2), (4,3):(3,1))",
        "coalesce(((2,2),3):((24,2),8))",
    ]
    assert "4:3 selects 4 elements, every 3rd: (2,2):(24,2)" in found.steps[0].explanation
    assert all(step.explanation for step in found.steps)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("coalesce(complement((4,6):(1,2), 24))", "coalesce(>>complement((4,6):(1,2), 24)<<)", "overlap"),
        ("size(composition((6,2):(1,7), (3,2):(2,3)))", "size(>>composition((6,2):(1,7), (3,2):(2,3))<<)", "(2,1)"),
        ("nothing(3)", ">>nothing(3)<<", "unknown operation 'nothing'"),
        ("coalesce(4, foo)", "coalesce(4, >>foo<<)", "unknown instruction 'foo'"),
        ("complement(1,2,3,4)", ">>complement(1,2,3,4)<<", "not 4 arguments"),
        ("upcast(4:1, (1,2))", ">>upcast(4:1, (1,2))<<", "(1, 2)"),
        ("mma.m16n8k16.bf16", ">>mma.m16n8k16.bf16<<", "name an operand"),
        ("mma.m16n8k16.bf16.D", ">>mma.m16n8k16.bf16.D<<", "unknown instruction"),
        ("wgmma.m64n64k16.bf16.A", ">>wgmma.m64n64k16.bf16.A<<", "shared memory"),
        ("wgmma.m64n64k16.tf32.C", ">>wgmma.m64n64k16.tf32.C<<", "K of tf32 is 8"),
        ("(4,2):(1,4)(1,2,3)", ">>(4,2):(1,4)(1,2,3)<<", "does not fit"),
        ("composition", ">>composition<<", "parentheses"),
        ("Sw<3,3>", ">>Sw<3,3><<", "3 numbers"),
        ("Sw<3,3,2>", ">>Sw<3,3,2><<", "overlap"),
        ("4:1 o Sw<1,1,1>", ">>4:1 o Sw<1,1,1><<", "left"),
        ("size(Sw<3,3,3>(_))", "size(>>Sw<3,3,3>(_)<<)", "do not fit together"),
        ("find_swizzle((8,64):(64,1),0)", ">>find_swizzle((8,64):(64,1),0)<<", "0 bytes"),
        ("idx2crd(3,(2,2),(1))", ">>idx2crd(3,(2,2),(1))<<", "not congruent"),
        ("(4,0)", ">>(4,0)<<", "must be 1 or more"),
        ("(4,2) (1,4)", "(4,2) >>(<<1,4)", "expected the end"),
        ("1" * 5000, f">>{'1' * 5000}<<", "5000 digits"),
        ("wgmma.m64n²k16.bf16.C", "wgmma.m64n>>²<<k16.bf16.C", "expected the end"),
        ("wgmma.m64n40k32.s8.C", ">>wgmma.m64n40k32.s8.C<<", "multiple of 16"),
    ],
)
def test_an_error_marks_the_part_that_has_no_answer(text, where, message):
    with pytest.raises(LayoutError) as caught:
        evaluate(text)
    assert caught.value.where == where
    assert message in caught.value.message


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_no_argument_breaks_an_operation(name):
    for given in ("", "_", "Sw<1,0,1>", "4:1, Sw<1,0,1>", "(4:1, 2:1), _", "0", "4:1, 4:1, 4:1, 4:1"):
        try:
            evaluate(f"{name}({given})")
        except LayoutError as fault:
            assert fault.message and fault.where, given


def test_a_layout_is_asked_about_banks_sectors_and_swizzles():
    found = explain("(64,64):(64,1)", element_bytes=2)
    assert [question.topic for question in found.questions] == ["bank conflicts", "coalescing", "swizzle"]
    assert found.questions[2].values["swizzle"] == "Sw<3,3,3>"
    assert (found.size, found.cosize, found.rank, found.depth) == (4096, 4096, 2, 1)


def test_the_threads_of_a_question_can_be_named():
    few = explain("(64,8):(64,1)", element_bytes=2, threads=8)
    assert few.questions[0].values["wavefronts"] == 8
    with pytest.raises(LayoutError, match="65 threads"):
        explain("(64,8):(64,1)", threads=65)


def test_ldmatrix_gives_neighbours_to_one_thread():
    cells = explain("ldmatrix.x4").drawing.cells
    assert [(cell.text, cell.subtext) for cell in cells[0][:3]] == [("T0", "V0"), ("T0", "V1"), ("T1", "V0")]
    assert [(cell.text, cell.subtext) for cell in cells[9][:1]] == [("T4", "V2")]


def test_the_size_of_an_element_holds_for_a_question_in_the_expression():
    assert explain("bank_conflicts((32,8):(64,1))", element_bytes=2).result == "8-way"


def test_a_question_that_would_take_too_long_says_so():
    assert "use a tile of the layout" in explain("(1024,1024)").questions[0].answer


@pytest.mark.parametrize("name", ["mma.m16n8k16.bf16.A", "ldmatrix.x4.trans", "stmatrix.x2.memory"])
def test_a_fragment_is_drawn_as_who_holds_what(name):
    cells = explain(name).drawing.cells
    held = {(cell.text, cell.subtext) for row in cells for cell in row}
    assert len(held) == sum(map(len, cells))


def test_a_result_can_be_drawn_over_a_matrix():
    drawing = explain("((4,8),(2,2)):((32,1),(16,8))", tile=(16, 8)).drawing
    assert (drawing.cells[9][3].text, drawing.cells[9][3].subtext) == ("T5", "V3")
    with pytest.raises(LayoutError, match="no thread holds"):
        explain("((4,8),(2,2)):((32,1),(16,8))", tile=(16, 9))


@pytest.mark.parametrize("colour", ["offset", "bank", "line", "thread"])
def test_every_cell_of_a_drawing_holds_the_offset_of_its_coordinate(colour):
    layout = composition(Layout((8, 8), (8, 1)), Layout((4, (2, 4)), (2, (1, 8))))
    drawing = explain(str(layout), colour=colour).drawing
    assert [[int(cell.text) for cell in row] for row in drawing.cells] == [
        [layout(row, column) for column in range(8)] for row in range(4)
    ]
    assert {cell.colour for row in drawing.cells for cell in row} <= set(range(8))


def test_a_colour_that_is_none_is_refused():
    with pytest.raises(LayoutError, match="offset, bank, thread, line"):
        explain("4:1", colour="red")


def test_what_does_not_fit_a_drawing_is_said():
    assert explain("(100,100)").drawing.truncation_note == "64x64 of 100x100 cells are drawn"
