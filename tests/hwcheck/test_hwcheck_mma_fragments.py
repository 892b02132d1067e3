from pathlib import Path

import pytest
import torch

from kernelwright.hwcheck import access_counters, mma_fragments
from kernelwright.hwcheck.ptx_probes import copy_source, mma_source, wgmma_source
from kernelwright.layouts import COPY_ATOMS, Layout, MmaAtom, get_atom, size

ROOT = Path(__file__).resolve().parents[2]


def test_every_source_compiles_for_hopper(tmp_path, monkeypatch):
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    from kernelwright.toolchain.cuda import compile_cubin

    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    compile_cubin(mma_source(get_atom("mma.m16n8k16.bf16"), (4, 2, 4)))
    compile_cubin(mma_source(get_atom("mma.m8n8k4.f64"), (1, 1, 2)))
    compile_cubin(wgmma_source(get_atom("wgmma.m64n64k32.s8"), 32, (2048, 2048), (1 << 62, 1 << 62)))
    compile_cubin(wgmma_source(get_atom("wgmma.m64n64k16.bf16.rs"), 32, (0, 2048), (0, 0)))
    for name in ("ldmatrix.x4.trans", "stmatrix.x2"):
        compile_cubin(copy_source(COPY_ATOMS[name]))
    for memory, layout, element_bytes in (("shared", Layout((32, 4), (4, 1)), 4), ("global", Layout(32), 1)):
        compile_cubin(access_counters.pattern_source(memory, layout, element_bytes))


def test_registers_hold_what_the_layout_says():
    held = get_atom("mma.m16n8k8.bf16").a
    matrix = torch.arange(128.0).reshape(1, 16, 8)
    registers = mma_fragments.pack_registers(matrix, held, "bf16").reshape(32, 4)
    assert registers[5].tolist() == [matrix[0, row, column].item() for row, column in ((1, 2), (1, 3), (9, 2), (9, 3))]


@pytest.mark.parametrize("row_bytes", [0, 128, 64, 32])
def test_an_image_of_shared_memory_holds_every_element_once(row_bytes):
    layout, swizzle, step = mma_fragments.smem_operand_layout(64, 16, 16, row_bytes)
    places = [swizzle(offset) for offset in layout.offsets()]
    assert len(set(places)) == 64 * 16
    assert step * 16 == (8 * row_bytes or 256), "bytes from 8 rows to the next 8"


def wrong_atom(name):
    """The same instruction with two threads' places exchanged."""
    found = get_atom(name)
    turned = Layout(((2, 2, 8), found.c[1].shape), ((64, 32, 1), found.c[1].stride))
    return MmaAtom(found.name, found.shape, found.types, found.a, found.b, turned)


def test_a_layout_that_is_wrong_is_noticed():
    right, wrong = get_atom("mma.m16n8k16.bf16"), wrong_atom("mma.m16n8k16.bf16")
    a, b = torch.randint(-3, 4, (4, 16, 16)).double(), torch.randint(-3, 4, (4, 8, 16)).double()
    out = mma_fragments.pack_registers(a @ b.transpose(1, 2), right.c, "tf32").reshape(4, 32, 4)
    assert mma_fragments._count_mismatches(mma_fragments._mismatch_mask(out, a, b, right.c), "C") == 0
    assert mma_fragments._count_mismatches(mma_fragments._mismatch_mask(out, a, b, wrong.c), "C") > 32


@pytest.mark.gpu
@pytest.mark.arch(90)
@pytest.mark.parametrize("name", ["mma.m16n8k16.bf16", "mma.m16n8k8.tf32", "mma.m16n8k32.e4m3", "mma.m8n8k4.f64"])
def test_the_instruction_agrees(name):
    found = list(mma_fragments.check_mma(get_atom(name)))
    assert [one.mismatches for one in found] == [0, 0, 0]
    assert [one.elements for one in found] == [
        size(held) for held in (get_atom(name).a, get_atom(name).b, get_atom(name).c)
    ]


@pytest.mark.gpu
@pytest.mark.arch(90)
def test_the_instruction_contradicts_a_wrong_layout():
    assert [one.mismatches > 0 for one in mma_fragments.check_mma(wrong_atom("mma.m16n8k16.bf16"))] == [
        True,
        True,
        True,
    ]


@pytest.mark.gpu
@pytest.mark.arch(90)
@pytest.mark.parametrize("row_bytes", [0, 128, 64, 32])
def test_wgmma_agrees_under_every_swizzle(row_bytes):
    assert all(one.mismatches == 0 for one in mma_fragments.check_wgmma(get_atom("wgmma.m64n64k16.bf16"), row_bytes))


@pytest.mark.gpu
@pytest.mark.arch(90)
@pytest.mark.parametrize("name", ["ldmatrix.x4", "ldmatrix.x2.trans", "stmatrix.x4.trans"])
def test_matrix_copies_agree(name):
    assert mma_fragments.check_copy(COPY_ATOMS[name]).mismatches == 0
