"""The search space follows the GPU: its multiprocessors, caches and shared memory."""

from types import SimpleNamespace

import msgspec
import pytest
import torch

from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.triton import target as target_module
from kernelwright.compiler.triton.configs import generate_configs
from kernelwright.compiler.triton.contraction_configs import generate_contraction_configs
from kernelwright.compiler.triton.target import HOPPER, Target, current_target

SMALL = Target(
    name="small", capability=(8, 6), multiprocessors=30, registers=65536, shared_bytes=101_376, l2_bytes=4 << 20
)


def region_of(program, *shapes, dtype=torch.float32):
    args = [torch.empty(*shape, dtype=dtype, device="meta") for shape in shapes]
    with capturing_for("cuda"), torch.no_grad():
        (part,) = plan_program(program, args, {}).regions
    return part.region


def test_the_figures_of_hopper_are_those_that_the_tiles_were_measured_with():
    assert (HOPPER.min_programs, HOPPER.max_tile_elements) == (264, 32768)
    assert (HOPPER.max_synced_splits, HOPPER.max_grid_sync_elements) == (32, 2**21)
    h200 = msgspec.structs.replace(HOPPER, l2_bytes=60 << 20)
    assert h200.max_grid_sync_elements == 2**21


def test_without_a_gpu_kernels_are_generated_for_hopper(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert current_target() is HOPPER


def test_the_target_is_the_gpu_that_is_here(monkeypatch):
    properties = SimpleNamespace(
        name="small",
        major=8,
        minor=6,
        multi_processor_count=30,
        regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=101_376,
        L2_cache_size=4 << 20,
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    target_module._target_of.cache_clear()
    assert current_target() == SMALL
    target_module._target_of.cache_clear()


def test_few_rows_are_split_until_every_multiprocessor_has_a_program():
    region = region_of(lambda x: x.sum(-1), (40, 2**16))
    assert generate_configs(region, HOPPER)[0].num_splits > 1, "40 rows are too few programs for 132 multiprocessors"
    assert generate_configs(region, SMALL)[0].num_splits == 1


def test_splits_of_columns_are_so_many_for_each_multiprocessor():
    region = region_of(lambda x: x.sum(0), (100_000, 300))
    programs = [
        max(one.num_splits * -(-300 // one.BLOCK_M) for one in generate_configs(region, target) if one.BLOCK_N == 8)
        for target in (HOPPER, SMALL)
    ]
    assert programs == [1320, 300]


def test_grid_sync_needs_rows_that_the_l2_holds():
    region = region_of(lambda x: x.softmax(-1), (300, 2**20))
    splits = [one.num_splits for one in generate_configs(region, HOPPER) if one.grid_sync]
    assert splits and max(splits) == 32
    assert not any(one.grid_sync for one in generate_configs(region, SMALL))


@pytest.mark.parametrize(("target", "largest"), [(HOPPER, (128, 128, 64)), (SMALL, (64, 64, 64))])
def test_tiles_of_products_fit_the_shared_memory(target, largest):
    region = region_of(lambda a, b: torch.relu(a @ b), (512, 512), (512, 512))
    tile = generate_contraction_configs(region, target)[0]
    assert largest == (tile.BLOCK_M, tile.BLOCK_N, tile.BLOCK_K)


def test_the_largest_tiles_in_half_precision_need_less():
    region = region_of(lambda a, b: torch.relu(a @ b), (512, 512), (512, 512), dtype=torch.bfloat16)
    assert generate_contraction_configs(region, SMALL) == generate_contraction_configs(region, HOPPER)
