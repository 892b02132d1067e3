"""The places as the PTX ISA writes them, with its groupID and threadID_in_group."""

import pytest

from kernelwright.layouts import COPY_ATOMS, MMA_ATOMS, LayoutError, element_owners, get_atom, size, wgmma_atom

# (row, column) of value i in the thread with group g and place t within it
PTX = {
    ("mma.m16n8k8.bf16", "A"): lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2),
    ("mma.m16n8k8.bf16", "B"): lambda g, t, i: (g, 2 * t + i),
    ("mma.m16n8k16.bf16", "A"): lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i >= 4)),
    ("mma.m16n8k16.bf16", "B"): lambda g, t, i: (g, 2 * t + i % 2 + 8 * (i >= 2)),
    ("mma.m16n8k16.bf16", "C"): lambda g, t, i: (g + 8 * (i >= 2), 2 * t + i % 2),
    ("mma.m16n8k4.tf32", "A"): lambda g, t, i: (g + 8 * i, t),
    ("mma.m16n8k4.tf32", "B"): lambda g, t, i: (g, t),
    ("mma.m16n8k8.tf32", "A"): lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i >= 2)),
    ("mma.m16n8k8.tf32", "B"): lambda g, t, i: (g, t + 4 * i),
    ("mma.m16n8k16.s8", "A"): lambda g, t, i: (g + 8 * (i >= 4), 4 * t + i % 4),
    ("mma.m16n8k32.s8", "A"): lambda g, t, i: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i >= 8)),
    ("mma.m16n8k32.s8", "B"): lambda g, t, i: (g, 4 * t + i % 4 + 16 * (i >= 4)),
    ("mma.m8n8k4.f64", "A"): lambda g, t, i: (g, t),
    ("mma.m8n8k4.f64", "C"): lambda g, t, i: (g, 2 * t + i),
}


@pytest.mark.parametrize(("name", "which"), PTX, ids=" ".join)
def test_a_fragment_of_mma_is_where_the_isa_says(name, which):
    held, (rows, _) = get_atom(name).operand(which)
    for lane in range(32):
        for i in range(size(held[1])):
            row, column = PTX[name, which](lane // 4, lane % 4, i)
            assert held(lane, i) == row + rows * column


@pytest.mark.parametrize("n", [8, 64, 256])
def test_the_accumulators_of_wgmma_are_where_the_isa_says(n):
    held = wgmma_atom(n).c
    for thread in range(128):
        for i in range(n // 2):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + 2 * (thread % 4) + i % 2
            assert held(thread, i) == row + 64 * column


@pytest.mark.parametrize("name", [*MMA_ATOMS, "wgmma.m64n24k16.f16.rs", "wgmma.m64n256k32.e4m3"])
def test_every_element_is_held_once(name):
    found = get_atom(name)
    for which in "ABC":
        if which == "C" or getattr(found, which.lower()) is not None:
            element_owners(*found.operand(which))


@pytest.mark.parametrize("name", COPY_ATOMS)
def test_a_matrix_copy_gives_each_thread_two_elements_of_each_matrix(name):
    found = COPY_ATOMS[name]
    assert sorted(found.registers.offsets()) == sorted(found.memory.offsets()) == list(range(size(found.memory)))
    for lane in range(32):
        row, column = (2 * (lane % 4), lane // 4) if "trans" in name else (lane // 4, 2 * (lane % 4))
        one, other = found.registers(lane, 0), found.registers(lane, 1)
        assert one == 8 * row + column
        assert other - one == (8 if "trans" in name else 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mma.m16n8k7.bf16", "unknown instruction"),
        ("wgmma.m64n12k16.bf16", "multiple of 8"),
        ("wgmma.m64n512k16.bf16", "up to 256"),
        ("wgmma.m64n64k8.bf16", "K of bf16 is 16"),
        ("wgmma.m64n64k4.f64", "unsupported dtype 'f64'"),
        ("wgmma.m64n64.bf16", "unknown instruction"),
        ("wgmma.m64n64k16.bf16.sr", "unknown instruction"),
    ],
)
def test_an_instruction_that_is_none_is_refused(name, message):
    with pytest.raises(LayoutError, match=message):
        get_atom(name)


def test_an_operand_in_shared_memory_has_no_holder():
    with pytest.raises(LayoutError, match="shared memory"):
        wgmma_atom(64).operand("B")
    with pytest.raises(LayoutError, match="A, B or C"):
        wgmma_atom(64).operand("D")
