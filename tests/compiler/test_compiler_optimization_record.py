"""What a report says about the choice of a variant."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fake_timings import rounds_of

from kernelwright.compiler.optimization_record import explain_choice


def test_the_choice_is_explained_by_the_next():
    rounds = rounds_of({"kernels": 10.0, "torch": 13.0, "torch.compile": 20.0})
    assert explain_choice("kernels", rounds) == "1.30x faster than the next, torch"
    assert explain_choice("torch", rounds_of({"torch": 13.0})) == "no other was timed"
    rejected = rounds_of({"torch": 13.0, "kernels": 10.0})
    assert explain_choice("torch", rejected, {"kernels"}) == "no other variant passed its verification in time"
