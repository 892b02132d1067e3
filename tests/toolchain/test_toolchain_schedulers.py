"""Orders of tiles, computed on the CPU: every part of the work is done once, evenly."""

import pytest
import torch

from kernelwright.toolchain.emulator import EmulatedKernel

LIST_TILES = """#include "kw/scheduler/stream_k.cuh"
extern "C" __global__ void list_tiles(int* done, int* steps, int tiles, int k_tiles, int splits) {
    const kw::StreamKSchedule schedule(tiles, k_tiles, gridDim.x, splits ? kw::last_waves(tiles, gridDim.x) : 0);
    for (int index = 0;; ++index) {
        const kw::StreamKTile work(index, blockIdx.x, schedule);
        if (work.k_end == 0) break;
        for (int k = work.k_begin; k < work.k_end; ++k) {
            const int at = work.tile * k_tiles + k;
            done[at] += work.tile >= schedule.split_tiles || schedule.block_of_k_tile(at) == blockIdx.x ? 1 : 1000;
        }
        steps[blockIdx.x] += work.k_end - work.k_begin;
    }
}
"""


@pytest.mark.parametrize("tiles", [1, 3, 5, 12, 13])
@pytest.mark.parametrize("k_tiles", [1, 2, 7])
@pytest.mark.parametrize("splits", [0, 1])
def test_stream_k_does_every_k_tile_once_and_evenly(tiles, k_tiles, splits):
    blocks = 5
    done, steps = torch.zeros(tiles, k_tiles, dtype=torch.int32), torch.zeros(blocks, dtype=torch.int32)
    EmulatedKernel(LIST_TILES, "list_tiles", path="stream_k.cu")(blocks, 1, [done, steps, tiles, k_tiles, splits])
    assert (done == 1).all()
    assert steps.max() - steps.min() <= (1 if splits and tiles % blocks else k_tiles)
