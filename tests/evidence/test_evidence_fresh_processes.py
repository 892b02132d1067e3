"""Which cores and GPUs the commands of rows run on; what they find and how they end is tested with their kinds."""

import os

import pytest

from kernelwright.evidence import fresh_processes


@pytest.mark.parametrize(
    ("visible", "count", "cores", "expected"),
    [
        (None, 2, range(8), [("0", {0, 1, 2, 3}), ("1", {4, 5, 6, 7})]),
        ("3,5", 8, range(5), [("3", {0, 1}), ("5", {2, 3})]),
        (None, 2, range(1), [("0", {0}), ("1", {0})]),
    ],
)
def test_the_gpus_share_the_cores(monkeypatch, visible, count, cores, expected):
    monkeypatch.setattr(fresh_processes, "require_device", lambda device: None)
    monkeypatch.setattr(fresh_processes.torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cores))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with monkeypatch.context() as patch:
        if visible:
            patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        shares = fresh_processes.device_shares("cuda")
    assert [(one.environment["CUDA_VISIBLE_DEVICES"], one.cores) for one in shares] == expected
