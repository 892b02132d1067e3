"""No time below what the bytes take at twice the best measured bandwidth is plausible, wherever the data are."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelwright.benchmark.bounds import LowerBounds
from kernelwright.core.machine import MemoryLevel

LEVELS = (
    MemoryLevel(name="L1", capacity_bytes=64_000, read_gb_s=100.0),
    MemoryLevel(name="L2", capacity_bytes=2_000_000, read_gb_s=40.0, copy_gb_s=200.0),
    MemoryLevel(name="DRAM", capacity_bytes=10**10, read_gb_s=10.0, write_gb_s=20.0),
)


def bounds(num_bytes: int) -> LowerBounds:
    machine = SimpleNamespace(spec=None, levels=LEVELS)
    return LowerBounds(cast(Any, machine), cast(Any, SimpleNamespace(fused=SimpleNamespace(total_bytes=num_bytes))))


@pytest.mark.parametrize(
    ("num_bytes", "least_us"),
    [(40_000, 0.1), (1_000_000, 2.5), (42_000_000, 1000.0), (0, 0.0)],
    ids=["in L1", "in L2", "beyond the caches", "nothing"],
)
def test_a_cpu_has_a_bound_at_every_size(num_bytes, least_us):
    assert bounds(num_bytes).datasheet_bound_us == pytest.approx(least_us)
    assert bounds(num_bytes).is_implausible(0.9 * least_us) == (num_bytes > 0)
