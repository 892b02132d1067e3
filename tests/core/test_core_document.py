import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.core.bench import Bench, Comparison, VariantTiming
from kernelwright.core.diagnosis import MetricEvidence, Recommendation
from kernelwright.core.document import STATUSES, build_document, build_error_document, decode, encode
from kernelwright.core.errors import InternalError, KernelwrightError, ProblemError, UsageError, error_types_by_code
from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.verdict import REJECTIONS, Reason, Verdict
from kernelwright.core.work import Work

positive = st.floats(min_value=1e-6, max_value=1e12, allow_nan=False)
maybe = st.none() | positive
text = st.text(max_size=30)
counts = st.integers(min_value=0, max_value=2**62)
levels = st.builds(
    MemoryLevel,
    name=text,
    capacity_bytes=st.none() | counts,
    read_gb_s=maybe,
    write_gb_s=maybe,
    copy_gb_s=maybe,
    triad_gb_s=maybe,
)
records = st.one_of(
    st.builds(Work, flops=st.dictionaries(text, counts, max_size=3), bytes_read=counts, bytes_written=counts),
    st.builds(
        Machine,
        name=text,
        device=st.sampled_from(["cpu", "cuda"]),
        provenance=st.sampled_from(["measured", "datasheet"]),
        levels=st.lists(levels, max_size=3).map(tuple),
        matrix_tflop_s=st.dictionaries(text, positive, max_size=3),
        dispatch_us=maybe,
        notes=st.lists(text, max_size=2).map(tuple),
    ),
    st.builds(
        Comparison,
        variant=text,
        baseline=text,
        verdict=st.sampled_from(["FASTER", "SAME", "SLOWER", "UNCLEAR"]),
        speedup=st.just(1.5),
        low=st.floats(0.1, 1.5),
        high=st.floats(1.5, 9.0),
        pairs=counts,
        method=text,
    ),
    st.builds(
        lambda reason, **fields: Verdict(accepted=reason is None, reason=reason, **fields),
        reason=st.none() | st.builds(Reason, code=st.sampled_from(REJECTIONS), detail=text),
        problem=text,
        candidate=text,
        device=st.just("cpu"),
        input_sets=counts,
        golden=text,
    ),
    st.builds(Recommendation, kind=text, action=text, predicted_us=positive),
    st.builds(MetricEvidence, metric=text, value=text, threshold=text, source=text),
)


@settings(max_examples=200, deadline=None)
@given(record=records, status=st.sampled_from(STATUSES), steps=st.lists(text, max_size=3))
def test_a_record_comes_back_from_its_document(record, status, steps):
    written = encode(build_document("why", record, status=status, next=steps))
    assert decode(written, type(record)) == record
    envelope = json.loads(written)
    assert envelope["schema"] == {"name": "kernelwright.why", "version": 2}
    assert (envelope["verb"], envelope["status"]) == ("why", status)
    assert sorted([*envelope["next"], *envelope["advice"]]) == sorted(filter(None, steps))


@settings(max_examples=100, deadline=None)
@given(
    text=st.text(max_size=60)
    | st.sampled_from(['{"schema": 3}', '{"schema": {"version": 9}}', "[]", '{"schema": {"version": 2}, "x": 1}'])
)
def test_what_is_no_document_is_refused_clearly(text):
    with pytest.raises(UsageError):
        decode(text, Machine)


def test_a_status_that_does_not_exist_is_our_bug():
    with pytest.raises(ValueError, match="great"):
        build_document("why", Work(), status="great")


def test_a_field_may_not_hide_the_envelope():
    with pytest.raises(ValueError, match="verb"):
        build_document("why", {"verb": "x"})


def test_an_error_document_says_what_where_and_next():
    doc = build_error_document("why", ProblemError("no Model in x.py", next="write one", where="x.py:3"))
    assert doc["error"] == {"code": "problem-error", "message": "no Model in x.py", "where": "x.py:3"}
    assert (doc["status"], doc["next"], doc["advice"]) == ("error", ["kw why --help"], ["write one"])


def test_an_error_document_names_the_same_command_with_other_options():
    doc = build_error_document(
        "why", UsageError("no device", next="--device cpu"), ["kw", "why", "x.py", "--device", "tpu"]
    )
    assert (doc["next"], doc["advice"]) == (["kw why x.py --device cpu"], [])


def test_our_own_bug_is_shown_by_the_same_command_with_debug():
    doc = build_error_document("why", InternalError("KeyError: 3"), ["kw", "why", "x.py"])
    assert (doc["next"], len(doc["advice"])) == (["kw why x.py --debug"], 1)


def test_an_error_may_have_a_command_and_a_sentence():
    doc = build_error_document("why", ProblemError("no Model", next="kw why -- python x.py\nadd get_inputs()"))
    assert (doc["next"], doc["advice"]) == (["kw why -- python x.py"], ["add get_inputs()"])


def test_error_codes_are_unique_and_exit_codes_are_the_contract():
    classes, todo = [], [KernelwrightError]
    while todo:
        cls = todo.pop()
        classes.append(cls)
        todo.extend(cls.__subclasses__())
    mine = [c for c in classes if c.__module__.startswith("kernelwright")]
    assert len({c.code for c in mine}) == len(mine) == len(error_types_by_code())
    assert {c.exit_code for c in mine} == {2, 101}


def test_records_are_immutable_and_refuse_unknown_fields():
    with pytest.raises(AttributeError):
        Work().bytes_read = 1  # type: ignore[misc]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"bytes_reed": 1}, Work)


def test_work_adds_unit_by_unit():
    both = Work(flops={"vector/float32": 2}, bytes_read=8) + Work(
        flops={"vector/float32": 3, "matrix/float32": 1}, bytes_written=4
    )
    assert both == Work(flops={"vector/float32": 5, "matrix/float32": 1}, bytes_read=8, bytes_written=4)
    assert (both.total_flops, both.total_bytes) == (6, 12)


VERDICT = Verdict(accepted=True, reason=None, problem="p", candidate="c", device="cpu", input_sets=1, golden="")
MACHINE = Machine(name="m", device="cpu", provenance="datasheet", levels=(), matrix_tflop_s={})
COMPARISON = Comparison(variant="a", baseline="b", verdict="FASTER", speedup=2.0, low=1.5, high=3.0, pairs=5, method="")
REASON, TIMES = Reason(code="inaccurate", detail=""), {"time_us": 2.0, "low_us": 1.0, "high_us": 3.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Reason(code="bad luck", detail=""),
        lambda: msgspec.structs.replace(VERDICT, reason=REASON),
        lambda: msgspec.structs.replace(VERDICT, accepted=False),
        lambda: Comparison(
            variant="a", baseline="b", verdict="FASTER", speedup=2.0, low=2.5, high=3.0, pairs=5, method=""
        ),
        lambda: VariantTiming(name="a", floor_us=None, datasheet_bound_us=None, **TIMES | {"high_us": 1.5}),
        lambda: Bench(problem="p", machine=MACHINE, variants=(), comparisons=(COMPARISON,), predicted=True),
    ],
)
def test_impossible_records_are_refused(make):
    with pytest.raises(ValueError):
        make()


def test_a_rejected_candidate_may_be_named_as_a_variant():
    """A verdict holds the stem of a file: a baseline, or an accepted candidate of another folder, has it as well."""
    rejected = msgspec.structs.replace(VERDICT, candidate="eager", accepted=False, reason=REASON)
    variant = VariantTiming(name="eager", floor_us=None, datasheet_bound_us=None, **TIMES)
    found = Bench(problem="p", machine=MACHINE, variants=(variant,), comparisons=(), verdicts=(rejected,))
    assert [one.name for one in found.variants] == ["eager"]
