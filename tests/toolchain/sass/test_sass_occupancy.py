"""Occupancy against figures worked out by hand and by CUDA's own rules."""

import random
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernelwright.core.errors import UsageError
from kernelwright.toolchain.sass import compute_occupancy
from kernelwright.toolchain.sass.occupancy import LIMITS

CASES = [
    # compute, registers, shared, threads, dynamic -> blocks, share, limiter
    (90, 32, 0, 256, 0, 8, 1.0, "threads"),
    (90, 102, 8192, 256, 0, 2, 0.25, "registers"),  # 104 rounded up: 19.69 warps for 4 schedulers, 16 in whole blocks
    (90, 168, 0, 384, 0, 1, 12 / 64, "registers"),
    (90, 32, 0, 32, 0, 32, 0.5, "blocks"),
    (90, 64, 0, 256, 100 * 1024, 2, 0.25, "shared memory"),
    (90, 64, 0, 256, 227 * 1024, 1, 0.125, "shared memory"),
    (90, 64, 0, 256, 227 * 1024 + 1, 0, 0.0, "shared memory"),
    (90, 32, 0, 768, 0, 2, 0.75, "threads"),
    (80, 32, 0, 256, 163 * 1024, 1, 0.125, "shared memory"),
    (86, 32, 0, 256, 0, 6, 1.0, "threads"),
    (86, 32, 0, 64, 0, 16, 32 / 48, "blocks"),
    (89, 32, 0, 64, 0, 24, 1.0, "threads"),
    (100, 255, 0, 128, 0, 2, 0.125, "registers"),
    (90, 65, 0, 1024, 0, 0, 0.0, "registers"),  # 72 rounded up: 2,304 a warp, 73,728 a block
    (90, 64, 0, 1024, 0, 1, 0.5, "registers"),
]


@pytest.mark.parametrize(("compute", "registers", "shared", "threads", "dynamic", "blocks", "share", "limiter"), CASES)
def test_blocks_of_a_multiprocessor(compute, registers, shared, threads, dynamic, blocks, share, limiter):
    found = compute_occupancy(compute, registers, shared, threads, dynamic)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.fraction == pytest.approx(share)
    assert found.warps_per_sm == blocks * -(-threads // 32)


def test_without_a_block_size_only_the_registers_speak():
    found = compute_occupancy(90, 128, 8192, None)
    assert (found.blocks_per_sm, found.limiter, found.warps_per_sm, found.fraction) == (None, "", 16, 0.25)


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_a_block_that_cannot_be(threads):
    with pytest.raises(UsageError, match="a block cannot have"):
        compute_occupancy(90, 32, 0, threads)


CALCULATOR = r"""
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
  cudaOccDeviceProp gpu;
  gpu.maxThreadsPerBlock = 1024; gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536; gpu.warpSize = 32;
  gpu.sharedMemPerBlock = 49152; gpu.numSms = 1; gpu.reservedSharedMemPerBlock = 1024;
  int compute, warps, most, registers, shared, threads, dynamic;
  while (scanf("%d %d %d %d %d %d %d", &compute, &warps, &most, &registers, &shared, &threads, &dynamic) == 7) {
    gpu.computeMajor = compute / 10; gpu.computeMinor = compute % 10; gpu.maxThreadsPerMultiprocessor = 32 * warps;
    gpu.sharedMemPerMultiprocessor = most; gpu.sharedMemPerBlockOptin = most - 1024;
    cudaOccFuncAttributes kernel = {};
    kernel.maxThreadsPerBlock = INT_MAX; kernel.numRegs = registers; kernel.sharedSizeBytes = shared;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF; kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = dynamic; kernel.numBlockBarriers = 1;
    cudaOccDeviceState state; state.carveoutConfig = 100;
    cudaOccResult found;
    const auto fault = cudaOccMaxActiveBlocksPerMultiprocessor(&found, &gpu, &kernel, &state, threads, dynamic);
    printf("%d\n", fault ? -1 : found.activeBlocksPerMultiprocessor);
  }
}
"""


@pytest.mark.parametrize("compute", [80, 86, 89, 90, 100])
def test_blocks_are_those_of_cudas_own_calculator(compute, tmp_path):
    places = [Path("/usr/local/cuda/include"), Path("/usr/local/cuda-13.0/include")]
    if triton := find_spec("triton"):
        places += [Path(place, "backends", "nvidia", "include") for place in triton.submodule_search_locations or ()]
    header = next((place for place in places if (place / "cuda_occupancy.h").exists()), None)
    if header is None or not (compiler := shutil.which("g++")):
        pytest.skip("needs g++ and cuda_occupancy.h, of CUDA or of Triton")
    (tmp_path / "ask.cpp").write_text(CALCULATOR)
    subprocess.run([compiler, "-w", f"-I{header}", tmp_path / "ask.cpp", "-o", tmp_path / "ask"], check=True)
    limits, chance = LIMITS[compute], random.Random(compute)
    asked = [
        (chance.randint(4, 255), chance.choice([0, chance.randint(0, 49152)]), chance.randint(1, 1024), dynamic)
        for dynamic in [0] * 2000 + [chance.randint(0, limits.shared_bytes) for _ in range(2000)]
    ]
    lines = [f"{compute} {limits.warps} {limits.shared_bytes} {r} {s} {t} {d}" for r, s, t, d in asked]
    done = subprocess.run([tmp_path / "ask"], input="\n".join(lines), capture_output=True, text=True, check=True)
    told = list(map(int, done.stdout.split()))
    found = [compute_occupancy(compute, r, s, t, d).blocks_per_sm for r, s, t, d in asked]
    assert len(told) == len(found) > 0
    assert [row for row in zip(asked, found, told, strict=True) if row[1] != row[2]][:5] == []
