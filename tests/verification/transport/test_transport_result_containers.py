"""Results are taken apart into containers that are known, named tuples and dataclasses, and nothing else."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.verification.transport.result_containers import ResultContainers
from kernelwright.verification.transport.tensor_codec import describe_structure

Pair = namedtuple("Pair", "first second")


@dataclass
class Output:
    loss: Any
    scale: float
    extra: Any = None


class Opaque:
    def __init__(self, value):
        self.value = value


def test_every_container_has_its_leaves_in_order_and_their_paths():
    one, two = torch.ones(2), torch.zeros(3)
    found = ResultContainers().leaves_by_path([Pair(one, 2), {"a": Output(two, 0.5)}])
    assert list(found) == ["[0].first", "[0].second", "[1]['a'].loss", "[1]['a'].scale"]
    assert found["[1]['a'].loss"] is two
    assert ResultContainers().leaves([Pair(one, 2), Output(two, 0.5)]) == [one, 2, two, 0.5]


def test_an_unknown_object_is_a_leaf_and_none_of_its_code_runs():
    class Raising:
        def __getattr__(self, name):
            raise RuntimeError(name)

    for value in (Opaque(torch.ones(1)), Raising()):
        assert ResultContainers().leaves([value]) == [value]
    assert describe_structure(Output(torch.ones(1), 0.5)) == "Output(Tensor, float)"
