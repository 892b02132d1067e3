"""Orders of tiles: every tile once, and consecutive ones close to each other."""

import ctypes
from itertools import pairwise

import pytest

from kernelwright.toolchain.cpp import compile_shared
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR

HOST = """
#include <algorithm>
#include <cstdlib>
#define __device__
#define __forceinline__ inline
using std::abs;
using std::min;
{header}
extern "C" void order(int is_hilbert, int tiles_m, int tiles_n, int* out) {{
    for (int i = 0; i < tiles_m * tiles_n; ++i) {{
        const kw::TileIndex at = is_hilbert ? kw::hilbert_rectangle(i, tiles_m, tiles_n)
                                            : kw::grouped_raster(i, tiles_m, tiles_n, 8);
        out[2 * i] = at.m;
        out[2 * i + 1] = at.n;
    }}
}}
"""


@pytest.fixture(scope="module")
def order():
    header = (INCLUDE_DIR / "kw" / "scheduler" / "tile_scheduler.cuh").read_text().replace("#pragma once", "")
    library = ctypes.CDLL(str(compile_shared(HOST.format(header=header))))

    def order(is_hilbert, m, n):
        out = (ctypes.c_int * (2 * m * n))()
        library.order(is_hilbert, m, n, out)
        return list(zip(out[::2], out[1::2], strict=True))

    return order


@pytest.mark.parametrize("is_hilbert", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 9), (9, 1), (8, 8), (32, 32), (13, 50), (50, 13), (21, 21), (6, 35)])
def test_an_order_has_every_tile_once(order, is_hilbert, m, n):
    assert sorted(order(is_hilbert, m, n)) == [(i, j) for i in range(m) for j in range(n)]


@pytest.mark.parametrize(("m", "n"), [(32, 32), (13, 50), (50, 13), (21, 21), (6, 35)])
def test_a_hilbert_curve_steps_to_an_adjacent_tile(order, m, n):
    tiles = order(1, m, n)
    steps = [abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise(tiles)]
    assert max(steps) <= 2
    assert steps.count(2) <= 1


def test_a_wave_of_a_compact_order_has_few_rows_and_columns(order):
    for is_hilbert in (0, 1):
        wave = order(is_hilbert, 32, 32)[:64]
        assert len({m for m, _ in wave}) + len({n for _, n in wave}) == 16
