import threading

import pytest

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.errors import SetupError


def test_parts_of_a_digest_cannot_run_together():
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert digest("a", b"b") == digest("a", "b")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    target = tmp_path / "entry"
    write_atomic(target, b"old")
    with pytest.raises(TypeError):
        write_atomic(target, "not bytes")  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["entry"]


def test_many_writers_leave_one_whole_entry(tmp_path):
    target = tmp_path / "entry"
    contents = [bytes([i]) * 200_000 for i in range(8)]
    writers = [threading.Thread(target=write_atomic, args=(target, c)) for c in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert target.read_bytes() in contents


def test_the_cache_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "here"))
    assert cache_dir("machine") == tmp_path / "here" / "machine"
    assert cache_dir("machine").is_dir()


def test_a_cache_that_cannot_be_made_says_where_and_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match=str(tmp_path / "file" / "cache")) as caught:
        cache_dir("machine")
    assert "KERNELWRIGHT_CACHE=DIR kw" in caught.value.next


def test_a_cache_that_cannot_be_written_is_told_before_it_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the super-user of a test run may write everywhere
    with pytest.raises(SetupError, match="Permission denied"):
        cache_dir("machine")
