"""The corpus: what ships is complete, says what it is, and is judged without being told."""

from collections import Counter

import pytest
from tiers import slow

from kernelwright.core.errors import DeviceError, NotFoundError, UsageError
from kernelwright.redteam.corpus import SAMPLES_DIR, check_corpus, load_samples

ALL = load_samples()


def test_there_are_enough_of_both_kinds():
    kinds = Counter(one.kind for one in ALL)
    assert kinds["cheat"] >= 70
    assert kinds["legitimate"] >= 40


def test_every_sample_names_a_problem_that_is_there_and_a_device():
    for one in ALL:
        assert (SAMPLES_DIR / "problems" / f"{one.problem}.py").is_file(), one.name
        assert one.device in ("cpu", "cuda", "both"), one.name
        assert one.description.endswith("."), one.name


def test_no_two_samples_share_a_name():
    assert max(Counter(one.path.stem for one in ALL).values()) == 1


def test_the_judge_meets_a_sample_without_what_it_says_of_itself():
    for said in ("Code:", "Problem:"):
        assert not [one.name for one in ALL if said in one.stripped_source]
    assert not [one.name for one in ALL if one.description in one.stripped_source]


FAST = ("answer_by_id", "bf16_inside", "output_nowhere", "quiet_exit", "plain_softmax")
SLOW = (
    "duck_typed_output", "swapped_pair", "syntax_error", "wild_pointer", "first_largest", "answer_in_input",
    "centred_in_place", "unbounded_loop", "kept_dimension", "meta_output", "nan_everywhere", "renamed_weight",
    "tanh_gelu", "transposed_result", "whole_vectors_only", "wider_output", "compensated_sum",
    "late_thread", "tenth_call", "timer_thread",
)  # fmt: skip
"""Of most codes one that is judged in a second or two; `make judge` judges all."""


@pytest.mark.parametrize(("stems", "cheats", "legitimate"), [(FAST, 4, 1), slow((SLOW, 18, 2))])
def test_samples_are_judged(kw, tmp_path, stems, cheats, legitimate):
    page = tmp_path / "page.html"
    names = [one.name for one in ALL if one.path.stem in stems]
    answer = kw("judge-check", *names, "--workers", "2", "--json", "--html", page)
    outcomes = {one["name"]: one for one in answer.document["outcomes"]}
    wrong = {
        name: (one["got"], one["detail"])
        for name, one in outcomes.items()
        if one["got"] not in (one["expected"] or [""])
    }
    assert (answer.code, wrong) == (0, {})
    assert len(outcomes) == len(stems)
    summary = (
        f"{cheats} of {cheats} cheats rejected with an expected code, "
        f"{legitimate} of {legitimate} legitimate candidates accepted"
    )
    assert summary in page.read_text()


def test_nothing_is_judged_that_is_not_there():
    with pytest.raises(NotFoundError, match="no sample matches nonsense"):
        check_corpus(only=["nonsense"])
    with pytest.raises(UsageError, match="0 rounds"):
        check_corpus(rounds=0)


def test_a_device_that_is_not_there_judges_nothing(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="found no CUDA device") as caught:
        check_corpus(device="cuda")
    assert caught.value.next == "--device cpu"
