"""Members of the library as they were measured, from rows made by hand."""

import msgspec
import pytest

from kernelwright.core.evidence import RowGroup, RowState
from kernelwright.core.library import KernelRow, VariantResult
from kernelwright.report.kernels import kernel_summary, markdown, summary_text


def row(size, ours, eager, quack, copy=50.0, moved=2**26, **more):
    variants = (
        VariantResult(name="kernelwright", time_us=ours, errors=(2e-3, 1e-3), **more),
        VariantResult(name="eager", time_us=eager, errors=(1e-3, 1e-3), **more),
        VariantResult(name="quack", time_us=quack) if quack else VariantResult(name="quack", failure="too wide"),
    )
    return KernelRow(use_case="forward", size=size, bytes=moved, copy_us=copy, variants=variants)


ROWS = (row((4, 8), 100.0, 400.0, 200.0), row((8, 8), 100.0, 50.0, None), row((1, 8), 1.0, 4.0, 1.0, moved=64))


def section(*rows, states=()):
    known = dict(zip(range(len(rows)), states, strict=False))
    return RowGroup(
        name="softmax",
        machine="NVIDIA H200",
        device="cuda",
        environment={},
        results=rows,
        states=tuple(
            RowState(
                kind="kernel",
                workload=f"softmax/forward/{at}",
                variant="",
                machine="NVIDIA H200",
                state=known.get(at, "current"),
                reason="its code has changed" if at in known else "",
                date="2026-11-22",
                commit="abc",
            )
            for at in range(len(rows))
        ),
    )


RECORD = section(*ROWS)


def test_a_row_is_beside_the_best_of_the_others():
    assert [one.speedup for one in ROWS] == [2.0, 0.5, 1.0]
    assert [one.best_other.name for one in ROWS] == ["quack", "eager", "quack"]
    assert ROWS[0].fraction_of_copy_speed == 0.5
    assert ROWS[0].error_over_eager == 2.0


def test_who_fails_is_not_the_best():
    assert ROWS[1].best_other.name == "eager"


def test_a_table_for_each_use():
    page = markdown([RECORD])
    assert "## softmax: NVIDIA H200" in page
    assert "| 4x8 | 67.1 MB | 100 us | 0.67 | 0.50 | quack, 200 us | 2.00 | 2.00 | 2026-11-22, abc |" in page


def test_the_summary_is_a_paragraph():
    assert summary_text([RECORD]) == "Geometric means, forward and backward: softmax 1.00x (measured 2026-11-22).\n"


def test_the_sentence_names_the_others():
    assert kernel_summary(RECORD) == "1.00x the best of eager, quack in 3 comparisons on NVIDIA H200, 2026-11-22"


def test_a_call_from_python_is_told_where_it_was_timed():
    called = row((1, 8), 1.0, 4.0, 1.0, moved=64, call_us=7.5)
    assert "A call from Python at 1x8: 7.50 us, eager 7.50 us." in markdown([section(called)])


@pytest.mark.parametrize("table", [markdown, summary_text])
def test_nothing_recorded(table):
    assert "kw evidence record --kind kernel" in table([])


def test_what_is_not_current_says_so_beside_its_figures():
    old = section(*ROWS, states=("superseded",))
    assert kernel_summary(old).endswith("2026-11-22, 1 of 3 rows superseded")
    assert "| 2026-11-22, abc: superseded |" in markdown([old])
    assert summary_text([old]).endswith("\n\nNVIDIA H200, superseded: softmax (1 row). Its code has changed.\n")
    assert "superseded" not in summary_text([RECORD])


def test_rows_with_flops_have_their_rate():
    product = msgspec.structs.replace(row((4, 8, 2), 100.0, 400.0, 200.0), flops=70_000_000_000)
    text = markdown([section(product)])
    assert "| TFLOP/s |" in text and "| TB/s |" not in text and "| 700 |" in text
