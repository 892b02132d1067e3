"""The Triton generators by kind of region: a further kind is a record, its planner, and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kernelwright.compiler.capture.recurrences import RECURRENCES
from kernelwright.compiler.library.attention import generate_attention_configs
from kernelwright.compiler.library.recurrences import generate_recurrence_configs
from kernelwright.compiler.regions.call import ATTENTION, CallRegion
from kernelwright.compiler.regions.contraction import AnyRegion, ContractionRegion
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.triton.configs import generate_configs as generate_row_configs
from kernelwright.compiler.triton.contraction_configs import generate_contraction_configs
from kernelwright.compiler.triton.contractions import print_contraction
from kernelwright.compiler.triton.printer import print_triton
from kernelwright.compiler.triton.triton_source import TritonSource


class Generator(NamedTuple):
    """A kernel generator.

    Attributes:
        generate_configs: returns the configs that can run a region, most promising first.
        print: returns the source for a region and a config; raises `Unsupported`.
    """

    generate_configs: Callable[[Any], Sequence[Any]]
    print: Callable[[Any, Any], TritonSource]


GENERATORS: dict[type, Generator] = {
    Region: Generator(generate_row_configs, print_triton),
    ContractionRegion: Generator(generate_contraction_configs, print_contraction),
}
CALL_CONFIGS: dict[str, Callable[[CallRegion], Sequence[Any]]] = {
    ATTENTION: generate_attention_configs,
    **dict.fromkeys(RECURRENCES, generate_recurrence_configs),
}
"""The implementations of a call by its operator."""


def generate_configs(region: AnyRegion) -> Sequence[Any]:
    """Return the configs that can run a region, most promising first; for a call, its implementations."""
    if isinstance(region, CallRegion):
        return CALL_CONFIGS[region.operator](region)
    return GENERATORS[type(region)].generate_configs(region)


def print_region(region: AnyRegion, config: Any) -> TritonSource:
    """Generate the kernels of a region and the function that launches them.

    Raises:
        Unsupported: the generator does not support a step, or not with the config.
    """
    return GENERATORS[type(region)].print(region, config)
