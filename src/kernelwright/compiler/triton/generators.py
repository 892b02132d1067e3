"""The Triton generators by kind of region: a further kind is a record, its planner, and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kernelwright.compiler.capture.recurrences import RECURRENCES
from kernelwright.compiler.library.attention import generate_attention_configs, print_attention
from kernelwright.compiler.library.products import ProductConfig, generate_product_configs, print_product
from kernelwright.compiler.library.recurrences import generate_recurrence_configs, print_recurrence
from kernelwright.compiler.regions.call import ATTENTION, CallRegion
from kernelwright.compiler.regions.contraction import AnyRegion, ContractionRegion
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.triton.configs import generate_configs as generate_row_configs
from kernelwright.compiler.triton.contraction_configs import ContractionConfig, generate_contraction_configs
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


def _generate_configs(region: ContractionRegion) -> list[ProductConfig | ContractionConfig]:
    return [*generate_product_configs(region), *generate_contraction_configs(region)]


def _print(region: ContractionRegion, config: ProductConfig | ContractionConfig) -> TritonSource:
    return print_product(region, config) if isinstance(config, ProductConfig) else print_contraction(region, config)


GENERATORS: dict[type, Generator] = {
    Region: Generator(generate_row_configs, print_triton),
    ContractionRegion: Generator(_generate_configs, _print),
}
CALL_GENERATORS = {
    ATTENTION: Generator(generate_attention_configs, print_attention),
    **dict.fromkeys(RECURRENCES, Generator(generate_recurrence_configs, print_recurrence)),
}
"""For calls, by the operator."""


def generate_configs(region: AnyRegion) -> Sequence[Any]:
    """Return the configs that can run a region, most promising first; for a call, its implementations."""
    return _generator_of(region).generate_configs(region)


def print_region(region: AnyRegion, config: Any) -> TritonSource:
    """Generate the kernels of a region and the function that launches them.

    Raises:
        Unsupported: the generator does not support a step, or not with the config.
    """
    return _generator_of(region).print(region, config)


def _generator_of(region: AnyRegion) -> Generator:
    return CALL_GENERATORS[region.operator] if isinstance(region, CallRegion) else GENERATORS[type(region)]
