"""What a cubin's kernels take, and what is said of one that cannot be read."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tiers import fast_first

from kernelwright.core.document import build_document, encode
from kernelwright.core.errors import KernelwrightError, MissingDependency, NotFoundError, UsageError
from kernelwright.core.machine_code import MachineCode
from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.sass import disassemblers, find_tool, read_cubin, read_cubin_file
from kernelwright.toolchain.sass.disassembly import disassemble
from kernelwright.toolchain.sass.elf import CubinFile
from kernelwright.toolchain.sass.resources import _likely_spills, find_spills, read_resources

EVERY = [
    (name, arch)
    for name in ("copy16", "sgemm", "spilling", "indexed", "several", "mma")
    for arch in ("sm_80", "sm_90a")
]
EVERY += [("wgmma", "sm_90a"), ("sgemm", "sm_90"), ("sgemm", "sm_86"), ("sgemm", "sm_100a")]


@pytest.fixture
def cuobjdump(tmp_path):
    """What it prints of a cubin."""
    try:
        tool = find_tool("cuobjdump")
    except MissingDependency as fault:
        pytest.skip(str(fault))

    def run(content, *words):
        path = tmp_path / "kernel.cubin"
        path.write_bytes(content)
        return subprocess.run([tool, *words, path], capture_output=True, text=True, check=True).stdout

    return run


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_the_resources_are_those_of_cuobjdump(name, arch, cubin, cuobjdump):
    content = cubin(name, arch)
    said = cuobjdump(content, "-res-usage")
    rows = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", said)
    read = CubinFile(content)
    assert len(rows) == len(read.kernels()) > 0
    for kernel in read.kernels():
        found = read_resources(read, kernel)
        _, registers, stack, shared = next(row for row in rows if row[0] == kernel.name)
        assert (found.registers, found.stack_bytes) == (int(registers), int(stack))
        kept = 1024 if read.compute >= 90 and int(shared) else 0
        assert found.shared_bytes == int(shared) - kept


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_the_architecture_is_the_one_it_was_built_for(arch, cubin):
    assert CubinFile(cubin("copy4", arch)).arch == arch


def test_static_shared_memory_is_without_the_reserved_bytes(code):
    assert code("sgemm", "sm_80").shared_bytes == code("sgemm", "sm_90a").shared_bytes == 8192


def test_launch_bounds_give_a_block_size_and_say_so(code):
    found = code("sgemm")
    assert found.occupancy.threads_per_block == 256
    assert "256 threads" in found.notes[0]
    assert code("sgemm", threads=64).occupancy.threads_per_block == 64
    assert not code("sgemm", threads=64).notes


def test_spills_are_the_bytes_that_ptxas_reports(code):
    found = code("spilling")
    assert found.registers == 32
    assert (found.spills.stored_bytes, found.spills.loaded_bytes) == (2912, 2672)  # ptxas -v of CUDA 13.0, and of 12.8
    assert found.spills.instructions == sum(one.is_spill for one in found.instructions) > 1000
    assert found.instruction_mix["local memory"] == found.spills.instructions
    assert not code("sgemm").spills.instructions


def test_the_compilers_record_of_spills_is_the_disassemblers(cubin, tmp_path, code):
    tool = find_tool("nvdisasm")
    path = tmp_path / "kernel.cubin"
    path.write_bytes(cubin("spilling", "sm_90a"))
    done = subprocess.run([tool, "-json", "-annotate", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this nvdisasm has no -annotate")
    assert code("spilling").spills.instructions == done.stdout.count("SpillRefill")


def test_an_indexed_array_is_stack_but_no_spill(code):
    for arch in ("sm_80", "sm_90a"):
        found = code("indexed", arch)
        assert found.stack_bytes == 256
        assert found.instruction_mix["local memory"] > 10
        assert not found.spills.instructions
        assert "No spills, but 256 bytes of stack" in found.summary


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_without_a_record_the_stack_tells_spills_from_arrays(arch, cubin, code):
    code("copy4")  # skips without a disassembler
    for name, kernel in (("spilling", "sgemm"), ("indexed", "indexed")):
        content = cubin(name, arch)
        lines = disassemble(content)[kernel]
        local = [line for line in lines if line.base_opcode in ("LDL", "STL")]
        read = CubinFile(content)
        recorded, certain = find_spills(read, read.kernels()[0], lines)
        assert certain
        assert _likely_spills(local) == recorded


def test_every_kernel_of_a_cubin_is_read(cubin, code):
    code("several")
    found = {kernel.kernel: kernel for kernel in read_cubin(cubin("several", "sm_90a"))}
    assert set(found) == {"empty", "calls", "predicated", "nested", "dynamic"}
    assert found["empty"].num_instructions == 2
    assert found["empty"].loops == ()
    assert "no loop" in found["empty"].summary
    assert any("not inlined" in note for note in found["calls"].notes)
    assert any("dynamic shared memory" in note for note in found["dynamic"].notes)


def test_a_function_that_is_called_belongs_to_the_kernel(code):
    found = code("several", kernel="calls")
    assert found.instruction_mix["special"] >= 1
    assert found.hot_loop.instruction_mix["special"] >= 1


def test_the_slow_path_of_a_division_is_left_out_and_said(code):
    code("copy4")
    (found,) = read_cubin(compile_cubin('extern "C" __global__ void f(float* x) { x[0] = x[1] / x[2]; }').code)
    assert any("slow paths (1) of divisions" in note for note in found.notes)
    assert found.num_instructions < 60
    assert not any("not inlined" in note for note in found.notes)


def test_a_kernel_that_is_not_there_is_said_with_those_that_are(cubin, code):
    code("copy4")
    with pytest.raises(NotFoundError, match="no kernel 'move' in this cubin; there are copy"):
        read_cubin(cubin("copy4", "sm_90a"), "move")


def test_a_kernel_of_cpp_is_found_by_its_name_in_the_source(code):
    code("copy4")
    content = compile_cubin("__global__ void a(float* x) { x[0] = 1; } __global__ void ab(float* x) { x[0] = 2; }").code
    assert [kernel.kernel for kernel in read_cubin(content, "ab")] == ["_Z2abPf"]
    assert len(read_cubin(content)) == 2


@pytest.mark.parametrize("content", [b"", b"hello, world", b"\x7fELF", b"\x50\xed\x55\xba" + bytes(60)])
def test_what_is_no_cubin_is_said_so(content):
    with pytest.raises(UsageError) as caught:
        read_cubin(content)
    assert "cubin" in caught.value.message
    assert caught.value.next


def test_a_program_of_the_processor_is_no_cubin():
    content = Path("/proc/self/exe").read_bytes()
    with pytest.raises(UsageError, match=r"for machine \d+, not for a GPU"):
        read_cubin(content)


@pytest.mark.parametrize("kept", [10, 64, 200, 0.3, 0.6, 0.9, 0.99])
def test_a_cubin_that_is_cut_short_is_said_so(kept, cubin):
    content = cubin("sgemm", "sm_90a")
    with pytest.raises(UsageError) as caught:
        read_cubin(content[: kept if kept > 1 else int(len(content) * kept)])
    assert re.search("truncated or damaged|not a cubin", caught.value.message)


@pytest.mark.slow
def test_damaged_bytes_never_raise_anything_else(cubin, code):
    code("copy4")
    whole = cubin("copy4", "sm_90a")
    for at in [*range(16, 64, 5), *range(64, len(whole), len(whole) // 10)]:
        broken = whole[:at] + b"\xff\xff\xff" + whole[at + 3 :]
        try:
            read_cubin(broken)
        except KernelwrightError as fault:
            assert fault.message and fault.next


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(NotFoundError, match="cannot read"):
        read_cubin_file(tmp_path / "none.cubin")


def test_the_record_survives_json(code):
    found = code("spilling")
    again = msgspec.json.decode(msgspec.json.encode(found), type=MachineCode)
    assert again == found
    fields = msgspec.json.decode(encode(build_document("sass", found)))
    assert {"registers", "shared_bytes", "spills", "occupancy", "instruction_mix", "loops", "summary"} <= fields.keys()


def test_a_tool_that_is_named_comes_first(monkeypatch, tmp_path):
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("NVDISASM", str(program))
    assert find_tool("nvdisasm") == program
    monkeypatch.setenv("NVDISASM", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="NVDISASM="):
        find_tool("nvdisasm")


def test_a_tool_that_fails_is_quoted(monkeypatch, tmp_path, cubin):
    program = tmp_path / "old"
    program.write_text("#!/bin/sh\necho 'nvdisasm fatal : unknown architecture' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("NVDISASM", str(program))
    with pytest.raises(UsageError, match="unknown architecture") as caught:
        read_cubin(cubin("copy4", "sm_90a"))
    assert "nvidia-cuda-nvdisasm" in caught.value.next


def test_without_a_tool_the_install_line_is_printed(monkeypatch, tmp_path):
    monkeypatch.delenv("NVDISASM", raising=False)
    monkeypatch.setattr(disassemblers, "_candidate_paths", lambda name, path: (tmp_path / name,))
    with pytest.raises(MissingDependency, match="nvdisasm not found") as caught:
        find_tool("nvdisasm")
    assert caught.value.next == "pip install nvidia-cuda-nvdisasm"


@pytest.mark.parametrize("name", fast_first(2, ["spilling", "sgemm", "several", "wgmma"]))
def test_every_disassembler_here_reads_the_same(name, cubin, code, monkeypatch):
    code("copy4")
    places = [place for place in disassemblers._candidate_paths("nvdisasm", "") if shutil.which(place)]
    content = cubin(name, "sm_90a")
    found = []
    for place in places:
        monkeypatch.setenv("NVDISASM", str(place))
        found.append([without_lines(code) for code in read_cubin(content)])
    assert all(one == found[0] for one in found)


def without_lines(code):
    """Older disassemblers do not say which line of the source an instruction is of."""
    loops = tuple(replace(loop, instructions=bare(loop.instructions)) for loop in code.loops)
    return replace(code, loops=loops, instructions=bare(code.instructions))


def bare(instructions):
    return tuple(replace(one, file="", line=None) for one in instructions)
