"""Which outputs have to stay, and which the next call may overwrite."""

import torch

from kernelwright.verification.transport.kept_outputs import KeptOutputs


class Memory:
    """Memory of which every extent reads as these bytes."""

    def __init__(self):
        self.value = torch.zeros(8, dtype=torch.uint8)

    def read(self, extent):
        return self.value


def add_two(*, is_series: bool) -> KeptOutputs:
    memory = Memory()
    kept = KeptOutputs(memory)
    kept.add(1, {(64, 8): memory.value.clone()}, is_series=is_series)
    memory.value = torch.ones(8, dtype=torch.uint8)
    kept.add(2, {(64, 8): memory.value.clone()}, is_series=is_series)
    return kept


def test_the_next_call_may_overwrite_an_output():
    kept = add_two(is_series=False)
    assert kept.are_reused and kept.overwritten is None


def test_the_next_series_may_not():
    kept = add_two(is_series=True)
    assert not kept.are_reused and kept.overwritten == 1
