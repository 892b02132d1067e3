"""Emulation says what an access costs, and what a sanitizer saw, in the words and lines of the source."""

import pytest
from tiers import slow

from kernelwright.core.errors import UsageError
from kernelwright.hwcheck.emulation import diagnose_emulated
from kernelwright.ladders import find_rung, task_path

PROBLEM = """import torch

def turned(x):
    return x.T.contiguous()

def turned_inputs():
    return [torch.randn(64, 96)]
"""
KERNEL = """// kw: entry  turned
// kw: dims   x: float32[M, N]
// kw: out    out: float32[N, M]
// kw: grid   cdiv(N, 32), cdiv(M, 32)
// kw: block  32, 32
// kw: args   x, out, M, N

extern "C" __global__ void turned(const float* x, float* out, int M, int N) {
    __shared__ float tile[32][32];
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;
    tile[threadIdx.y][threadIdx.x] = x[(row + threadIdx.y) * N + column + threadIdx.x];
    __syncthreads();
    out[(column + threadIdx.y) * M + row + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


@pytest.fixture
def why(tmp_path):
    (tmp_path / "turned.py").write_text(PROBLEM)

    def asked(*changes):
        source = KERNEL
        for was, now in changes:
            assert was in source
            source = source.replace(was, now)
        (tmp_path / "turned.cu").write_text(source)
        return diagnose_emulated(str(tmp_path / "turned.py"), str(tmp_path / "turned.cu"))

    return asked


@pytest.mark.slow
def test_a_conflicting_tile_is_named_with_its_line_and_padding_mends_it(why):
    found = why()
    assert found.summary == "line 13: a request to shared memory takes 32 wavefronts, 1 would suffice"
    assert ["pad or swizzle" in move.action for move in found.recommendations] == [True]
    padded = why(("tile[32][32]", "tile[32][33]"))
    assert padded.summary == "every request needs about the minimum number of transactions"
    assert padded.recommendations == ()
    assert padded.global_bytes == 2 * 64 * 96 * 4


@pytest.mark.slow
def test_reading_down_a_column_costs_a_sector_for_each_lane(why):
    found = why(("[threadIdx.y][threadIdx.x] = x[(row + threadIdx.y) * N + column + threadIdx.x]",
                 "[threadIdx.x][threadIdx.y] = x[(row + threadIdx.x) * N + column + threadIdx.y]"),
                ("tile[32][32]", "tile[32][33]"))  # fmt: skip
    (load,) = [one for one in found.accesses if one.kind == "global load"]
    assert (load.transactions_per_request, load.ideal_transactions_per_request, load.line) == (32, 4, 11)
    assert "adjacent threads" in found.recommendations[0].action


@pytest.mark.parametrize(
    ("change", "kind", "line"),
    [
        (("    __syncthreads();\n", "\n"), "race", 11),
        slow((("out[(column", "out[M * N - row * 0 + (column"), "out-of-bounds", 13)),
        slow((("__syncthreads();", "if (threadIdx.x) __syncthreads();"), "deadlock", 12)),
    ],
    ids=["race", "out-of-bounds", "deadlock"],
)
def test_what_a_sanitizer_sees_comes_first(why, change, kind, line):
    found = why(change)
    assert kind in {fault.kind for fault in found.sanitizer_findings}
    assert line in {fault.line for fault in found.sanitizer_findings}
    assert found.recommendations[0].action.startswith("fix line")


@pytest.mark.slow
def test_the_two_wins_of_the_ladder_are_predicted():
    def cost(name, kind, operand=""):
        found = diagnose_emulated(str(task_path("gemm_fp32")), str(find_rung("gemm_fp32", name).path))
        return [
            one.transactions_per_request for one in found.accesses if one.kind == kind and operand in ("", one.operand)
        ]

    assert max(cost("naive", "global load", "a")) > 30 > 5 > max(cost("coalesced", "global load", "a"))
    assert max(cost("vectorised", "shared load")) == 2 * max(cost("conflict_free", "shared load"))


def test_only_cuda_is_emulated(tmp_path):
    (tmp_path / "turned.py").write_text(PROBLEM)
    (tmp_path / "other.cpp").write_text("")
    with pytest.raises(UsageError, match="not CUDA C"):
        diagnose_emulated(str(tmp_path / "turned.py"), str(tmp_path / "other.cpp"))


def test_accesses_of_tma_and_clusters_are_not_counted():
    problem, rung = str(task_path("gemm_hopper")), str(find_rung("gemm_hopper", "multicast").path)
    with pytest.raises(UsageError, match="has TMA, wgmma or clusters") as caught:
        diagnose_emulated(problem, rung)
    assert caught.value.next == f"kw verify {problem} {rung} --device cpu"
