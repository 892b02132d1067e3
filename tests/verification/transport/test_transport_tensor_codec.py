"""Tensors cross as they are: every bit, stride, shared storage and dtype."""

from collections import namedtuple

import msgspec
import pytest
import torch

from kernelwright.verification.transport import tensor_codec
from kernelwright.verification.transport.state import bitwise_equal
from kernelwright.verification.transport.tensor_codec import describe_structure, pack, unpack

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip
Pair = namedtuple("Pair", "one other")


def crossed(values):
    return unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(pack(values))), "cpu", [None] * len(values))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("piece_bytes", [1 << 30, 7])
def test_every_bit_arrives(dtype, piece_bytes, monkeypatch):
    monkeypatch.setattr(tensor_codec, "MAX_CHUNK_BYTES", piece_bytes)
    bits = torch.randint(0, 2, (6, 5 * 16), dtype=torch.uint8)
    value = bits.view(dtype) if dtype != torch.bool else bits.bool()
    (there,) = crossed([value])
    assert bitwise_equal(there, value)


def test_strides_offsets_and_shared_storage_are_kept():
    base = torch.arange(40.0).view(5, 8)
    views = [base[1:, ::2], base.t(), base[2, 3].expand(4), base[:0], torch.empty(0), torch.tensor(3.0)]
    there = crossed(views)
    assert all(map(torch.equal, there, views))
    assert [t.stride() for t in there] == [v.stride() for v in views]
    there[0][0, 0] = -1.0
    assert there[1][0, 1] == -1.0


def test_plain_values_and_gradients_are_kept():
    there = crossed([3, 2.5, True, None, "text", torch.ones(2, requires_grad=True), object()])
    assert there[:5] == [3, 2.5, True, None, "text"]
    assert there[5].requires_grad
    assert there[6] is None


def test_outline_tells_structures_apart():
    x = torch.ones(2)
    trees = [
        x,
        (x,),
        [x],
        {"a": x},
        {"b": x},
        (x, None),
        (x, 1),
        (x, 1.0),
        ("a",),
        ("b",),
        Pair(x, x),
        (x, x),
    ]
    outlines = [describe_structure(tree) for tree in trees]
    assert len(set(outlines)) == len(trees)
    assert describe_structure({"a": x, "b": 1}) == describe_structure({"b": 1, "a": x}) == "{'a': Tensor, 'b': int}"
    assert describe_structure([torch.return_types.max((x, x))]) == describe_structure([(x, x)]), (
        "a program takes both apart alike"
    )
    assert describe_structure(torch.nn.Parameter(x)) == describe_structure(x) == "Tensor"
