"""Whose code was at work at a moment, by where every thread of a stopped process stood."""

from types import SimpleNamespace

import pytest

from kernelwright.sandbox import process_memory
from kernelwright.verification.attacks.code_attribution import CodeAttribution

CALLED, CHILD = 100, 200
OWN, TORCH, PYTHON, C = range(0x1000, 0x5000, 0x1000)
CODE = [
    (OWN, OWN + 0x100, "/scratch/kernel.so"),
    (TORCH, TORCH + 0x100, "/site/torch/lib/libtorch_cpu.so"),
    (PYTHON, PYTHON + 0x100, "/usr/lib/libpython3.11.so.1.0"),
    (C, C + 0x100, "/usr/lib/libc.so.6"),
]


@pytest.fixture
def seen(monkeypatch):
    """What a moment counts for its own code and for libraries."""

    def of(called, *others, elsewhere=(), waits_for=None, listens=False, reads=False):
        threads = {CALLED + at: (place, 0) for at, place in enumerate((called, *others)) if place is not None}
        stacks = {} if waits_for is None else {CALLED: waits_for}
        monkeypatch.setattr(
            process_memory,
            "find_running_threads",
            lambda pid: threads if pid == CALLED else dict.fromkeys([CHILD], elsewhere),
        )
        monkeypatch.setattr(process_memory, "list_code_mappings", lambda pid: CODE)
        monkeypatch.setattr(process_memory, "read", lambda pid, at, size: waits_for.to_bytes(8, "little") * (size // 8)
                            if waits_for and size > 1000 else bytes(size))  # fmt: skip
        monkeypatch.setattr(process_memory, "find_futex_stack", stacks.get)
        monkeypatch.setattr(process_memory, "waits_for_message", lambda pid: listens)
        monkeypatch.setattr(process_memory, "waits_for_process_or_file", lambda pid: reads)
        stopped = [CALLED, CHILD] if elsewhere else [CALLED]
        child = SimpleNamespace(pid=CALLED, stopped_pids=stopped, stop=lambda: None, resume=lambda: None)
        line = SimpleNamespace(child=child, timer=SimpleNamespace(is_done=lambda: False))
        ownership = CodeAttribution(line, ("/scratch",), lambda at: ([], {}))  # pyright: ignore[reportArgumentType]
        told = ownership._take_sample()
        found = ownership._samples
        assert told == any(found.values())
        return found["own"], found["library"]

    return of


def test_threads_of_its_own_count_for_the_called_thread(seen):
    assert seen(OWN) == (1, 0)
    assert seen(None, OWN, OWN, waits_for=OWN) == (1, 0)
    assert seen(None, OWN) == (1, 0), "it may wait in any way"
    assert seen(C, OWN) == (1, 0)


def test_a_library_and_its_own_share_a_moment_however_many_threads_they_have(seen):
    assert seen(TORCH, *[OWN] * 24) == (0.5, 0.5)
    assert seen(None, *[OWN] * 24, waits_for=TORCH) == (0.5, 0.5)


def test_before_the_work_and_after_it_threads_of_its_own_prove_nothing(seen):
    assert seen(PYTHON, OWN) == (0, 0)
    assert seen(None, OWN, PYTHON) == (0, 0), "another thread is in the interpreter for it"
    assert seen(None, OWN, listens=True) == (0, 0), "it has yet to hear that it is called"
    assert seen(PYTHON, OWN, TORCH) == (0, 1)


def test_what_another_process_does_is_not_its_own(seen):
    assert seen(None, OWN, elsewhere=(TORCH, 0)) == (0, 1)
    assert seen(None, OWN, elsewhere=(OWN, 0)) == (0, 1)
    assert seen(None, OWN, elsewhere=(C, 0)) == (0, 0)
    assert seen(None, OWN, elsewhere=(C, 0), reads=True) == (0, 1), "it has no processor yet, and is waited for"
    assert seen(None, OWN, reads=True) == (1, 0), "there is no other process"
    assert seen(OWN, elsewhere=(C, 0)) == (1, 0)
