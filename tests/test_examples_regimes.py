"""What each example waits on: what was recorded, and (slow, or on a GPU) what is seen now."""

from pathlib import Path
from statistics import median

import pytest

from kernelwright.evidence.diagnoses import DiagnosisResult
from kernelwright.evidence.rows import read_rows

ROOT = Path(__file__).resolve().parents[1]
EXPECTED = {
    "add_scale_bias_relu": {"cpu": {"memory-bound"}, "cuda": {"memory-bound"}},
    "matmul": {"cpu": {"compute-bound"}, "cuda": {"compute-bound"}},
    "tiny_chain": {"cpu": {"overhead-bound"}, "cuda": {"overhead-bound"}},
    "decoder_block": {"cpu": {"compute-bound"}, "cuda": {"compute-bound"}},
    # On the CPU its time goes into torch's exp: 0.4 ns an element on two threads, three times what memory needs.
    "cross_entropy": {"cpu": {"compute-bound"}, "cuda": {"memory-bound"}},
    # On the CPU MKL walks the matrix with one thread: half of the memory's bandwidth is not in flight.
    "matvec": {"cpu": {"latency-bound"}, "cuda": {"memory-bound"}},
    "cumsum": {"cpu": {"latency-bound"}, "cuda": {"latency-bound"}},
    # On the CPU the exp is four tenths of it, the rest moves memory: a busy neighbour tips the scale.
    "softmax": {"cpu": {"memory-bound", "compute-bound"}, "cuda": {"memory-bound"}},
}
ROWS = [(row, row.decode_result(DiagnosisResult)) for row in read_rows(str(ROOT / "evidence"), "diagnosis")]


@pytest.mark.parametrize(("row", "result"), ROWS, ids=[f"{row.device}-{row.workload}" for row, _ in ROWS])
def test_the_recorded_regime_is_the_expected_one(row, result):
    assert result.diagnosis.regime in EXPECTED[row.workload][row.device], result.diagnosis.summary


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_example_has_a_row_on_both_devices(device):
    assert {row.workload for row, _ in ROWS if row.device == device} == EXPECTED.keys()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_predictions_came_true_within_a_fifth_in_the_median(device):
    errors = [
        move.prediction_error for row, result in ROWS if row.device == device for move in result.recommendation_outcomes
    ]
    assert len(errors) >= 6
    assert median(errors) <= 0.2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EXPECTED)
def test_why_names_the_expected_regime_on_this_cpu(kw, name):
    found = kw("why", f"examples/{name}.py", "--json").document
    assert found["regime"] in EXPECTED[name]["cpu"], found["summary"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXPECTED)
def test_why_names_the_expected_regime_on_this_gpu(kw, name):
    found = kw("why", f"examples/{name}.py", "--device", "cuda", "--json").document
    assert found["regime"] in EXPECTED[name]["cuda"], found["summary"]


@pytest.mark.exhaustive
def test_a_training_script_is_ranked_right(kw):
    found = kw("why", "--json", "--", "python", "examples/train.py", "--steps", "10").document
    assert found["modules"][0]["module"] == "norm"


@pytest.mark.gpu
def test_a_training_script_is_ranked_right_on_this_gpu(kw):
    words = ["python", "examples/train.py", "--device", "cuda", "--steps", "10"]
    found = kw("why", "--device", "cuda", "--json", "--", *words).document
    assert found["modules"][0]["module"] == "norm"
