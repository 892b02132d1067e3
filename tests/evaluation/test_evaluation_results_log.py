"""Lines that are there stay, whoever dies."""

import math

import pytest

from kernelwright.core.errors import UsageError
from kernelwright.core.record import Record
from kernelwright.core.verdict import Reason
from kernelwright.evaluation.results_log import ResultsLog


class Found(Record, frozen=True, kw_only=True, tag="found"):
    value: float
    why: Reason | None = None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lines.jsonl"


def journal(path):
    return ResultsLog[Found](path, Found, option="--results")


@pytest.mark.parametrize("value", [1.5, math.inf, -math.inf])
def test_a_line_comes_back(path, value):
    line = Found(value=value, why=Reason(code="inaccurate", detail="far\noff"))
    with journal(path) as first:
        first.append(line)
    with journal(path) as second:
        assert second.records == [line]


def test_no_number_comes_back_as_none(path):
    with journal(path) as first:
        first.append(Found(value=math.nan))
    with journal(path) as second:
        assert math.isnan(second.records[0].value)


def test_half_a_line_is_cut_off_and_the_next_one_is_whole(path):
    with journal(path) as first:
        first.append(Found(value=1.0))
        first.append(Found(value=2.0))
    path.write_bytes(path.read_bytes()[:-5])
    with journal(path) as second:
        assert [one.value for one in second.records] == [1.0]
        second.append(Found(value=3.0))
    with journal(path) as third:
        assert [one.value for one in third.records] == [1.0, 3.0]


def test_one_writer_at_a_time(path):
    with journal(path), pytest.raises(UsageError, match="another run is writing"), journal(path):
        pass


def test_somebody_elses_file_is_left_as_it_is(path):
    path.write_text("hello\nworld")
    with pytest.raises(UsageError, match="line 1 of"), journal(path):
        pass
    assert path.read_text() == "hello\nworld"


def test_no_place(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        journal(tmp_path / "nowhere" / "lines.jsonl")
