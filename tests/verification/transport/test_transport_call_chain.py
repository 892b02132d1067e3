"""The inputs of a call in a series follow from what the call before it returned or wrote."""

import struct

import pytest
import torch

from kernelwright.verification.transport.call_chain import (
    CallChain,
    ChainedLeaf,
    ChainFunctions,
    Change,
    ChangedBlock,
    change_tensors,
    compiled_library,
    make_chain,
)


def changed(value: torch.Tensor, change: Change, digest: int = 7) -> torch.Tensor:
    after = value.clone()
    change_tensors([after], [change], digest)
    return after


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_change_in_their_low_bits(dtype):
    value = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    after = changed(value, Change.LOW_BITS)
    assert (after != value).float().mean() > 0.7
    assert torch.allclose(after.double(), value.double(), rtol=0.5, atol=0)
    special = torch.tensor([0.0, 1.0, torch.inf, -torch.inf, 4.0], dtype=dtype)
    assert torch.equal(changed(special, Change.LOW_BITS), special), "a mask or a bound stays what it is"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_stay_in_their_range_and_permutations_stay_permutations(dtype):
    value = torch.randperm(101, generator=torch.Generator().manual_seed(0)).to(dtype)
    swapped, copied = changed(value, Change.SWAP), changed(value, Change.COPY)
    assert torch.equal(swapped.sort().values, value.sort().values)
    assert 20 < (swapped != value).sum() < 80
    assert set(copied.tolist()) < set(value.tolist()), "some are gone, none is new"
    assert not torch.equal(changed(value, Change.COPY, 8), copied)


def test_no_word_of_an_output_makes_the_digest_forget_those_before_it():
    absorb = ChainFunctions(compiled_library()).absorb
    constants = [0x9E3779B97F4A7C15, 0x9FB21C651E98DF25, 0, (1 << 64) - 1]
    for constant in constants:
        tail = [constant] * 8
        outputs = [struct.pack("=16Q", *[first] * 8, *tail) for first in (1, 2)]
        assert absorb(7, outputs[0], 128) != absorb(7, outputs[1], 128)
        assert absorb(7, outputs[0], 128) != absorb(8, outputs[0], 128)


def test_what_a_call_leaves_in_its_inputs_changes_those_of_the_next():
    blocks = [torch.arange(64, dtype=torch.int64).view(torch.uint8) for _ in range(4)]
    per_call = [[ChangedBlock(2 * call, torch.int64, Change.SWAP)] for call in range(2)]
    chain = CallChain(5, per_call, [[1], [3]])

    def second_inputs(left: int, returned: int) -> torch.Tensor:
        inputs, after = [one.clone() for one in blocks], [one.clone() for one in blocks]
        after[1][0] = left
        chain.repeat([[torch.tensor([returned], dtype=torch.uint8)], []], after, inputs)
        assert torch.equal(inputs[0], blocks[0]), "those of the first call are as they were written"
        return inputs[2]

    assert torch.equal(second_inputs(1, 1), second_inputs(1, 1))
    assert not torch.equal(second_inputs(1, 1), second_inputs(2, 1))
    assert not torch.equal(second_inputs(1, 1), second_inputs(1, 2))


def test_memory_that_calls_share_does_not_change():
    leaves = [{"block": 0, "dtype": "float32"}, {"block": 1, "dtype": "int64"}] * 2
    leaves[3] = {"block": 2, "dtype": "int64"}
    chain = make_chain(leaves, [ChainedLeaf(Change.LOW_BITS, True), ChainedLeaf(Change.COPY)], 2)
    assert chain
    assert chain.blocks == [[ChangedBlock(1, torch.int64, Change.COPY)], [ChangedBlock(2, torch.int64, Change.COPY)]]
    assert chain.written == [[], []]
    assert make_chain(leaves, [ChainedLeaf(Change.NONE)] * 2, 2) is None
