"""Members of the library as they were measured, from rows made by hand."""

import msgspec
import pytest

from kernelwright.core.library import ArmTime, KernelRecord, KernelRow
from kernelwright.report.kernels import brief, markdown, sentence


def row(size, ours, eager, quack, copy=50.0, moved=2**26, **more):
    arms = (
        ArmTime(name="kernelwright", time_us=ours, errors=(2e-3, 1e-3), **more),
        ArmTime(name="eager", time_us=eager, errors=(1e-3, 1e-3), **more),
        ArmTime(name="quack", time_us=quack) if quack else ArmTime(name="quack", failed="too wide"),
    )
    return KernelRow(what="forward", size=size, bytes=moved, copy_us=copy, arms=arms)


ROWS = (row((4, 8), 100.0, 400.0, 200.0), row((8, 8), 100.0, 50.0, None), row((1, 8), 1.0, 4.0, 1.0, moved=64))
RECORD = KernelRecord(
    kind="kernel", name="softmax", state="measured", device="cuda", machine="NVIDIA H200", date="2026-11-22",
    software={}, sources={}, rows=ROWS,
)  # fmt: skip


def test_a_row_is_beside_the_best_of_the_others():
    assert [one.gain for one in ROWS] == [2.0, 0.5, 1.0]
    assert [one.best.name for one in ROWS] == ["quack", "eager", "quack"]
    assert ROWS[0].of_copy == 0.5
    assert ROWS[0].accuracy == 2.0


def test_who_fails_is_not_the_best():
    assert ROWS[1].best.name == "eager"


def test_a_table_for_each_use():
    page = markdown([RECORD])
    assert "## softmax: NVIDIA H200" in page
    assert "| 4x8 | 67.1 MB | 100 us | 0.67 | 0.50 | quack, 200 us | 2.00 | 2.00 |" in page


def test_the_brief_row():
    line = brief([RECORD]).splitlines()[-1]
    assert line == "| softmax | forward | 3 | 1.00x | 0.50x | 0.50 | 2.00 |"


def test_the_sentence_names_the_others():
    assert sentence(RECORD) == "1.00x the best of eager, quack in 3 comparisons on NVIDIA H200, 2026-11-22"


def test_a_call_from_python_is_told_where_it_was_timed():
    called = row((1, 8), 1.0, 4.0, 1.0, moved=64, call_us=7.5)
    record = KernelRecord(
        kind="kernel", name="softmax", state="measured", device="cuda", machine="GPU", date="", software={}, sources={},
        rows=(called,),
    )  # fmt: skip
    assert "A call from Python at 1x8: 7.50 us, eager 7.50 us." in markdown([record])


@pytest.mark.parametrize("table", [markdown, brief])
def test_nothing_recorded(table):
    assert "kw evidence record --kind kernel" in table([])


def test_a_pending_record_says_so_beside_its_figures():
    waits = msgspec.structs.replace(RECORD, state="pending", notes=("its source changed",))
    for said in (sentence(waits), brief([waits, RECORD]), markdown([waits])):
        assert "pending: its source changed" in said
    assert brief([waits]).endswith("\n\nNVIDIA H200, softmax: pending: its source changed.\n")
    assert "pending" not in brief([RECORD])
    assert sentence(msgspec.structs.replace(waits, rows=())) == "pending: its source changed"
