"""The folder of what torch.compile and Triton compile for one program."""

import os
from pathlib import Path

from kernelwright.compiler.program_cache import program_cache, using_program_cache


def test_a_program_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("1\n")
    other.write_text("2\n")
    assert program_cache(str(one)) == program_cache(f"{one}:Model") != program_cache(str(other))


def test_the_oldest_folders_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr("kernelwright.compiler.program_cache.MAX_PROGRAMS", 2)
    first, second = program_cache("first"), program_cache("second")
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    program_cache("first")
    assert {*first.parent.iterdir()} == {first, second}
    os.utime(first, (3, 3))
    third = program_cache("third")
    assert {*first.parent.iterdir()} == {first, third}


def test_compilers_use_it_within_the_block(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    cache = program_cache("package.module")
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    for before in ("/somewhere", None):
        for name in names:
            monkeypatch.setenv(name, before) if before else monkeypatch.delenv(name, raising=False)
        with using_program_cache(cache):
            assert {Path(os.environ[name]).parent for name in names} == {cache}
        assert {os.environ.get(name) for name in names} == {before}
