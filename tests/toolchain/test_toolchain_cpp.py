"""C++ to a shared library: cached by content, safe for many processes, never loaded damaged."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.core.errors import CompileError, MissingDependency, SetupError
from kernelwright.toolchain import compile_shared
from kernelwright.toolchain import cpp as toolchain

QUICK = tuple("-O0" if flag == "-O3" else flag for flag in toolchain.FLAGS)
SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cpp"


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).answer()


def forbid_compiling(monkeypatch) -> None:
    def refuse(*_args):
        raise AssertionError("compiled again")

    monkeypatch.setattr(toolchain, "_compile", refuse)


def test_compiles_and_runs():
    assert answer(compile_shared(SOURCE, flags=QUICK)) == 42


def test_same_source_is_compiled_once(monkeypatch):
    first = compile_shared(SOURCE, flags=QUICK, name="a.cpp")
    forbid_compiling(monkeypatch)
    assert compile_shared(SOURCE, flags=QUICK, name="a.cpp") == first


@pytest.mark.parametrize("change", ["source", "flags", "compiler", "processor"])
def test_whatever_decides_the_code_is_in_the_key(monkeypatch, change):
    compile_shared(SOURCE, flags=QUICK)
    forbid_compiling(monkeypatch)
    source, flags = SOURCE, QUICK
    if change == "source":
        source = SOURCE + "// another\n"
    elif change == "flags":
        flags = (*QUICK, "-DX=1")
    elif change == "compiler":
        monkeypatch.setattr(toolchain, "compiler_version", lambda compiler: "another version")
    else:
        monkeypatch.setattr(toolchain, "cpu_fingerprint", lambda: "another processor")
    with pytest.raises(AssertionError, match="compiled again"):
        compile_shared(source, flags=flags)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "library gone", "index garbled", "index emptied"])
def test_damaged_entries_are_compiled_again(cache, damage):
    path = compile_shared(SOURCE, flags=QUICK)
    index, content = next(cache.glob("*.sha256")), path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "flipped":
            path.write_bytes(content[:600] + bytes([content[600] ^ 1]) + content[601:])
        case "emptied":
            path.write_bytes(b"")
        case "library gone":
            path.unlink()
        case "index garbled":
            index.write_text("\0nonsense")
        case "index emptied":
            index.write_text("")
    assert answer(compile_shared(SOURCE, flags=QUICK)) == 42


def test_many_processes_compile_the_same_at_once(cache):
    code = (
        "import ctypes; from kernelwright.toolchain.cpp import FLAGS, compile_shared\n"
        f"path = compile_shared({SOURCE!r}, flags=FLAGS)\n"
        "print(ctypes.CDLL(str(path)).answer(), path)"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    lines = {run.communicate(timeout=120)[0].strip() for run in runs}
    assert all(run.returncode == 0 for run in runs)
    assert {line.split()[0] for line in lines} == {"42"}
    assert not list(cache.glob(".partial-*"))


def test_an_error_names_the_persons_line():
    broken = SOURCE + "void f() {\n    undeclared = 1;\n}\n"
    with pytest.raises(CompileError, match="undeclared") as caught:
        compile_shared(broken, flags=QUICK, name='/work/my "own" kernel.cpp')
    assert caught.value.where == '/work/my "own" kernel.cpp:3'


def test_many_errors_are_counted_not_listed():
    broken = "\n".join(f"void f{i}() {{ missing{i}(); }}" for i in range(8))
    with pytest.raises(CompileError) as caught:
        compile_shared(broken, flags=QUICK)
    assert "missing0" in caught.value.message
    assert "missing7" not in caught.value.message
    assert caught.value.message.endswith("and 5 more")


@pytest.mark.skipif(sys.platform == "darwin", reason="the linker flag that finds it is GNU's")
def test_a_function_nobody_defines_is_found_by_the_linker():
    with pytest.raises(CompileError, match="nowhere"):
        compile_shared('extern "C" void nowhere(); extern "C" void f() { nowhere(); }', flags=QUICK)


def test_failed_compiles_leave_nothing(cache):
    with pytest.raises(CompileError):
        compile_shared("int x = ;", flags=QUICK)
    assert list(cache.iterdir()) == []


def test_files_beside_the_source_cannot_be_included(tmp_path, monkeypatch):
    (tmp_path / "beside.h").write_text("#define BESIDE 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError, match=r"beside\.h"):
        compile_shared('#include "beside.h"\n', flags=QUICK, name=str(tmp_path / "a.cpp"))


def test_a_cache_that_cannot_be_written_says_which_variable_moves_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="cannot write to the cache") as caught:
        compile_shared(SOURCE, flags=QUICK)
    assert "KERNELWRIGHT_CACHE" in caught.value.next


def test_no_compiler_says_how_to_install_one(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(MissingDependency, match="/nowhere/c\\+\\+") as caught:
        compile_shared(SOURCE)
    assert "install" in caught.value.next


def test_a_compiler_without_openmp_gives_one_thread(tmp_path, monkeypatch):
    fake = tmp_path / "c++"
    fake.write_text(
        '#!/bin/sh\nfor flag in "$@"; do\n'
        '  if [ "$flag" = -fopenmp ]; then echo "error: unsupported option \'-fopenmp\'" >&2; exit 1; fi\ndone\n'
        f'exec {toolchain.find_compiler()} "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    threads = 'extern "C" int answer() {\n#ifdef _OPENMP\nreturn 2;\n#else\nreturn 1;\n#endif\n}\n'
    assert answer(compile_shared(threads, flags=QUICK)) == 1


def test_an_endless_compile_is_stopped(monkeypatch):
    monkeypatch.setattr(toolchain, "COMPILE_LIMIT_S", 1)
    endless = """
        constexpr long f(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i; return s; }
        constexpr long x = f(1L << 62);
    """
    limits = ("-fconstexpr-ops-limit=9223372036854775807", "-fconstexpr-loop-limit=2147483647")
    with pytest.raises(CompileError):
        compile_shared(endless, flags=(*QUICK, *limits))


def test_the_environment_is_left_alone():
    before = dict(os.environ)
    compile_shared(SOURCE, flags=QUICK)
    assert dict(os.environ) == before
