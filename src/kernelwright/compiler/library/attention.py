"""The backends of scaled_dot_product_attention: which one is fastest depends on shapes, mask and GPU."""

from __future__ import annotations

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.call import ATTENTION, CallRegion
from kernelwright.compiler.triton.attention import AttentionTiles, generate_attention_tiles, print_split_attention
from kernelwright.compiler.triton.source_lines import wrap_line
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.record import Record

BACKENDS = {
    "cudnn": (
        "torch.ops.aten._scaled_dot_product_cudnn_attention({query}, {key}, {value}, {attn_mask}, False, 0.0, "
        "{is_causal}, False, scale={scale})"
    ),
    "flash": (
        "torch.ops.aten._scaled_dot_product_flash_attention({query}, {key}, {value}, 0.0, {is_causal}, False, "
        "scale={scale})"
    ),
    "efficient": (
        "torch.ops.aten._scaled_dot_product_efficient_attention({query}, {key}, {value}, {attn_mask}, False, 0.0, "
        "{is_causal}, scale={scale})"
    ),
}
"""The operator that each backend of torch's runs; by default torch takes the first that supports a call."""


class AttentionConfig(Record, frozen=True, kw_only=True):
    """A backend of scaled_dot_product_attention."""

    backend: str


def generate_attention_configs(region: CallRegion) -> list[AttentionConfig | AttentionTiles]:
    """Return the backends that may support a call, and tiles of a kernel of our own for FP32: flash attention has no
    mask and no FP32, cuDNN no FP32."""
    half = region.output.dtype in ("float16", "bfloat16")
    masked = "attn_mask" in region.tensors
    names = ["cudnn"] * half + ["flash"] * (half and not masked) + ["efficient"]
    return [*generate_attention_tiles(region), *(AttentionConfig(backend=name) for name in names)]


def print_attention(region: CallRegion, config: AttentionConfig | AttentionTiles) -> TritonSource:
    """Generate the function of a call with one backend, or the kernels of one tile.

    Raises:
        Unsupported: the call has dropout, or groups of query heads.
    """
    arguments = {"attn_mask": "None", "is_causal": "False", "scale": "None", "dropout_p": "0.0", "enable_gqa": "False"}
    arguments |= region.literals
    if float(arguments.pop("dropout_p")) or arguments.pop("enable_gqa") == "True":
        raise Unsupported("attention with dropout or groups of query heads")
    if isinstance(config, AttentionTiles):
        return print_split_attention(region, arguments, config)
    arguments |= {parameter: name for parameter, (name, _) in region.tensors.items()}
    lines = []
    if "attn_mask" in region.tensors:
        lines = _float_mask(arguments["attn_mask"], region)
        arguments["attn_mask"] = "bias"
    expression = BACKENDS[config.backend].format(**arguments)
    doc = f'"""{ATTENTION} with the {config.backend} backend."""'
    lines = [doc, *lines, f"results = {expression}", "return results[0]"]
    body = [wrapped for line in lines for wrapped in wrap_line(line)]
    head = f"def {region.name}({', '.join(region.reads)}):"
    return TritonSource(launcher="\n".join([head, *(f"    {line}" for line in body)]) + "\n")


def _float_mask(mask: str, region: CallRegion) -> list[str]:
    """The mask as a bias of the scores' shape, as the backends' operators take it."""
    dtype, is_bool = region.output.dtype, region.tensors["attn_mask"][1] == "bool"
    query, key = region.shapes["query"], region.shapes["key"]
    shape = (*query[:-1], key[-2])
    lines = [f"bias = {mask}"]
    if is_bool:
        zeros = f"torch.zeros_like({mask}, dtype=torch.{dtype})"
        lines = [f'bias = {zeros}.masked_fill_({mask}.logical_not(), float("-inf"))']
    return [*lines, f"bias = bias.expand({shape})"]
