"""What kernels ask of memory: requests, sectors, wavefronts and FLOPs, as a GPU's counters would say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.toolchain.emulator import count_accesses

PATH = Path(__file__).with_name("kernels.cu")
SOURCE = PATH.read_text()


def counted(name, grid, block, arguments, shared_bytes=0):
    return count_accesses(SOURCE, name, grid, block, arguments, shared_bytes, path=str(PATH))


def sgemm(name, m=64, n=64, k=64):
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), float("nan"))
    counts = counted(name, (m // 32, n // 32), (32, 32), [a, b, c, m, n, k])
    torch.testing.assert_close(c, a @ b, rtol=1e-5, atol=1e-4)
    return counts


def test_neighbouring_threads_on_neighbouring_rows():
    counts = sgemm("sgemm_naive")
    (a,), (b,), (c,) = (
        counts.select("global load", "A"),
        counts.select("global load", "B"),
        counts.select("global store", "C"),
    )
    assert (a.sectors_per_request, b.sectors_per_request, c.sectors_per_request) == (32, 1, 32)
    assert a.requests == b.requests == 64 * 64 * 64 // 32 and c.requests == 64 * 64 // 32
    assert a.line == b.line < c.line and len(counts.instructions) == 3


def test_coalesced():
    counts = sgemm("sgemm_coalesced")
    sectors = [one.sectors_per_request for name in "ABC" for one in counts.select("global", name)]
    assert sectors == [1, 4, 4]


@pytest.mark.parametrize("name", ["sgemm_naive", "sgemm_coalesced", "sgemm_tiled"])
def test_a_multiply_add_is_two_flops(name):
    assert sgemm(name).flops == 2 * 64**3


def test_a_tile_is_read_from_global_memory_once_for_all_its_rows():
    counts = sgemm("sgemm_tiled")
    (a,), (b,) = counts.select("global load", "A"), counts.select("global load", "B")
    assert a.bytes == b.bytes == 64 * 64 * (64 // 32) * 4
    assert (a.sectors_per_request, b.sectors_per_request) == (4, 4)
    assert [one.kind for one in counts.select("shared")] == [
        "shared store",
        "shared store",
        "shared load",
        "shared load",
    ]
    assert counts.wavefronts == counts.ideal_wavefronts
    assert counts.flops_per_byte == 2 * 64**3 / (a.bytes + b.bytes + 64 * 64 * 4)


def test_tiles_in_registers_are_no_memory():
    a, b, c = torch.randn(64, 32), torch.randn(32, 64), torch.zeros(64, 64)
    counts = counted("sgemm_vectorized<64, 64, 8, 8, 8>", 1, 64, [64, 64, 32, 1.0, a, b, 0.0, c])
    assert counts.flops == 2 * 64 * 64 * 32 + 3 * 64 * 64
    assert [one.access_bytes for one in counts.select("global")] == [16, 16, 16, 16]
    assert [one.sectors_per_request for one in counts.select("global")] == [16, 16, 32, 32]
    columns, rows = counts.select("shared load")
    assert (columns.wavefronts_per_request, rows.wavefronts_per_request) == (1, 2)
    transposed = [one.wavefronts_per_request for one in counts.select("shared store")]
    assert transposed == [2, 2, 2, 2, 4]


@pytest.mark.parametrize("kind, wavefronts", [("conflicting", 32), ("padded", 1), ("swizzled", 1)])
def test_banks(kind, wavefronts):
    x, out = torch.randn(64, 64), torch.empty(64, 64)
    counts = counted(f"transpose_{kind}", (2, 2), (32, 32), [x, out, 64])
    (store,), (load,) = counts.select("shared store"), counts.select("shared load")
    assert store.wavefronts_per_request == 1 and load.wavefronts_per_request == wavefronts
    assert load.ideal_wavefronts == load.requests == 128
    assert torch.equal(out, x.T)


def test_sixteen_bytes_a_lane():
    x, out = torch.randn(4 * 77), torch.empty(4 * 77)
    counts = counted("copy_float4", 3, 32, [x, out, 77])
    load, store = counts.instructions
    assert (load.access_bytes, load.requests, load.lanes) == (16, 3, 77)
    assert load.sectors == store.sectors == 16 + 16 + 7 and load.bytes == 77 * 16


def test_atomic_operations_and_dynamic_shared_memory():
    x, out = torch.ones(1000), torch.zeros(1)
    counts = counted("block_sum", 4, 128, [x, out, 1000])
    (atomic,) = counts.select("global atomic")
    assert (atomic.requests, atomic.lanes, atomic.operand) == (4, 4, "out") and out.item() == 1000
    x, out = torch.randn(96), torch.empty(96)
    counts = counted("reverse_dynamic", 1, 96, [x, out], 96 * 4)
    assert [one.requests for one in counts.instructions] == [3, 3, 3, 3]


def test_lanes_that_leave_a_loop_early_wait_behind_it():
    """Two rounds of 32 requests, the k-th with the lanes that are still there; counting alone would mix the rounds."""
    x, out = torch.ones(32), torch.empty(32)
    load, store = counted("triangular", 1, 32, [x, out]).instructions
    assert (load.requests, load.lanes, load.sectors) == (64, 2 * 32 * 33 // 2, 64)
    assert (store.requests, store.lanes) == (1, 32)


def test_lanes_that_call_a_function_come_back_before_the_others_go_on():
    x, out = torch.ones(64), torch.empty(32)
    load, first, store = counted("divergent_calls", 1, 32, [x, out]).instructions
    assert (load.requests, load.lanes) == (2, 16 + 8)
    assert (first.requests, first.lanes, store.requests, store.lanes) == (1, 32, 1, 32)
    assert out.tolist() == [3.0] * 8 + [2.0] * 8 + [1.0] * 16


def test_a_storage_begins_where_a_gpu_aligns_it():
    whole, out = torch.randn(33), torch.empty(32)
    aligned = counted("vector_add", 1, 32, [whole[:32], whole[1:], out, 32])
    assert [one.sectors_per_request for one in aligned.select("global load")] == [4, 5]
