"""The corpus: what ships is complete, says what it is, and is judged without being told."""

from collections import Counter

import pytest

from kernelwright.core.errors import DeviceError, NotFoundError, UsageError
from kernelwright.judge.corpus import SAMPLES, check_corpus, samples

ALL = samples()


def test_there_are_enough_of_both_kinds():
    kinds = Counter(one.kind for one in ALL)
    assert kinds["dishonest"] >= 70
    assert kinds["honest"] >= 40


def test_every_sample_names_a_problem_that_is_there_and_a_device():
    for one in ALL:
        assert (SAMPLES / "problems" / f"{one.problem}.py").is_file(), one.name
        assert one.device in ("cpu", "cuda", "both"), one.name
        assert one.what.endswith("."), one.name


def test_no_two_samples_share_a_name():
    assert max(Counter(one.path.stem for one in ALL).values()) == 1


@pytest.mark.parametrize("sample", ALL, ids=lambda one: one.name)
def test_the_judge_meets_a_sample_without_what_it_says_of_itself(sample):
    assert "Code:" not in sample.bare
    assert "Problem:" not in sample.bare
    assert sample.what not in sample.bare


def test_samples_are_judged(kw, tmp_path):
    page = tmp_path / "page.html"
    answer = kw("judge-check", "tanh_gelu", "plain_softmax", "--workers", "2", "--json", "--html", page)
    assert answer.code == 0
    names = {one["name"]: (one["got"], one["expected"]) for one in answer.document["outcomes"]}
    assert names == {"plain_softmax.py": ("", []), "tanh_gelu.py": ("inaccurate", ["inaccurate"])}
    assert "1 of 1 dishonest rejected by the right code, 1 of 1 honest accepted" in page.read_text()


def test_nothing_is_judged_that_is_not_there():
    with pytest.raises(NotFoundError, match="no sample is called like nonsense"):
        check_corpus(only=["nonsense"])
    with pytest.raises(UsageError, match="0 rounds"):
        check_corpus(rounds=0)


def test_a_device_that_is_not_there_judges_nothing(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="no CUDA device here") as caught:
        check_corpus(device="cuda")
    assert caught.value.next == "--device cpu"
