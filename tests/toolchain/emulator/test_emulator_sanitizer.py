"""Overruns, races and divergent barriers are found with their line, and right kernels are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.toolchain.emulator import sanitize

PATH = Path(__file__).with_name("kernels.cu")
SOURCE = PATH.read_text()


def found(sanitizer, name, grid, block, arguments, shared_bytes=0):
    return sanitize(SOURCE, name, grid, block, arguments, shared_bytes, sanitizer=sanitizer, path=str(PATH))


def line_of(comment: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if f"// {comment}" in line)


def test_a_missing_barrier_is_a_race():
    x, out = torch.randn(64), torch.zeros(64)
    (one,) = found("thread", "missing_barrier", 2, 64, [x, out])
    assert one.kind == "race" and one.file == str(PATH)
    assert {one.line, one.other_line} == {line_of("race: write"), line_of("race: read")}
    assert one.block == (0, 0, 0) and "threads (" in one.message
    assert not out.any(), "the tensors of the caller are not changed"


def test_right_kernels_have_no_race():
    x, out = torch.randn(64, 64), torch.empty(64, 64)
    assert found("thread", "transpose_padded", (2, 2), (32, 32), [x, out, 64]) == ()
    assert found("thread", "block_sum", 3, 64, [x, torch.zeros(1), 999]) == ()
    a = torch.randn(64, 64)
    assert found("thread", "sgemm_tiled", (2, 2), (32, 32), [a, a, out, 64, 64, 64]) == ()


def test_right_kernels_have_no_overrun():
    x = torch.randn(77)
    assert found("address", "vector_add", 2, 64, [x, x, torch.empty(77), 77]) == ()
    assert found("address", "reverse_dynamic", 1, 64, [x, torch.empty(64)], 256) == ()


@pytest.mark.parametrize(
    "name, more, shared_bytes, comment, where, block, thread",
    [
        ("one_too_many", [64], 0, "overrun of out", r"out (256 bytes): 0 bytes past its end", (1, 0, 0), (0, 0, 0)),
        ("one_too_many_shared", [], 0, "overrun of shared", "shared memory", (0, 0, 0), (63, 0, 0)),
        ("one_too_many_dynamic", [], 256, "overrun of dynamic", "shared memory", (0, 0, 0), (63, 0, 0)),
    ],
)
def test_an_overrun_by_one_element(name, more, shared_bytes, comment, where, block, thread):
    arguments = [torch.randn(64), torch.empty(64), *more]
    (one,) = found("address", name, 2, 64, arguments, shared_bytes)
    assert (one.kind, one.line, one.block, one.thread) == ("out-of-bounds", line_of(comment), block, thread)
    assert one.message == f"a write of 4 bytes outside of {where}"


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_divergent_barrier(sanitizer):
    (one,) = found(sanitizer, "divergent_barrier", 1, 64, [torch.zeros(64)])
    assert (one.kind, one.line) == ("deadlock", line_of("divergent"))
