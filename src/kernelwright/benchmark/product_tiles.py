"""Finds the fastest tiles of products by timing them: rows of `kernels/matmul/recorded.json`, or of a user's own table.

python -c "from kernelwright.benchmark.product_tiles import tune; tune([(128, 4096, 4096, 'nk')], 'tuned.json')"
export KERNELWRIGHT_MATMUL_TUNED=tuned.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields, replace
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelwright.benchmark.fastest import time_fastest
from kernelwright.core.errors import CompileError, UsageError
from kernelwright.core.progress import report_stage
from kernelwright.kernels.matmul.configs import GemmConfig, Variant
from kernelwright.kernels.matmul.epilogue import PLAIN
from kernelwright.kernels.matmul.launch import compile_product
from kernelwright.kernels.matmul.planning import BF16
from kernelwright.kernels.matmul.product import multiply
from kernelwright.kernels.matmul.recorded import LAYOUTS
from kernelwright.kernels.matmul.search_space import Shape, candidate_configs
from kernelwright.kernels.matmul.selection import choose_config
from kernelwright.toolchain.cuda.launcher import current_arch

BUDGET_S = 0.15
MIN_GAIN = 1.01
"""Over the choice without the table; below it, no row is needed."""
MAX_RELATIVE_ERROR = 2**-6
"""Of the largest element, against cuBLAS: a wrong tile is far above, rounding to BF16 below."""
LIBRARY = "torch.mm"
Product = tuple[int, int, int, str]
"""M, N, K and the layout of b: `nk` if it is contiguous along K, else `kn`."""


def tune(products: Sequence[Product], path: str) -> list[dict[str, Any]]:
    """Time all candidates of BF16 products and write the table of those that gain.

    Returns:
        A row for each product, also where nothing is gained: times of cuBLAS, of the present choice, and of the best.
    """
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    num_sms, spaces = device.multi_processor_count, {}
    for m, n, k, layout in products:
        variant = replace(BF16, transpose_b=layout == LAYOUTS[True])
        chosen = choose_config(m, n, k, 1, variant, num_sms, use_tables=False)
        spaces[m, n, k, layout] = variant, chosen, [chosen, *candidate_configs(Shape(m, n, k, num_sms), variant)]
    compile_ahead([(config, variant) for variant, _, configs in spaces.values() for config in configs])
    rows = []
    for product, (_, chosen, configs) in spaces.items():
        report_stage(f"{'x'.join(map(str, product[:3]))} {product[3]}")
        rows.append(_tune_one(product, chosen, dict.fromkeys(configs)))
        table = [row for row in rows if row["gain"] >= MIN_GAIN]
        Path(path).write_text(_format(device.name, table), "utf-8")
    return rows


def compile_ahead(kernels: Sequence[tuple[GemmConfig, Variant]]) -> None:
    """Compile configurations into the cache, with all cores; what does not compile is left out later."""
    jobs = list(dict.fromkeys((config, variant.oriented(config)) for config, variant in kernels))
    with ProcessPoolExecutor(min(len(jobs), cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(_compile, arch=current_arch()), jobs))


def _compile(job: tuple[GemmConfig, Variant], arch: str) -> None:
    try:
        compile_product(*job, arch)
    except CompileError:
        return


def _tune_one(product: Product, chosen: GemmConfig, configs: dict[GemmConfig, None]) -> dict[str, Any]:
    m, n, k, layout = product
    a = torch.empty(m, k, dtype=torch.bfloat16, device="cuda").normal_()
    b = torch.empty(*((k, n) if layout == LAYOUTS[True] else (n, k)), dtype=torch.bfloat16, device="cuda").normal_()
    b = b if layout == LAYOUTS[True] else b.T
    want = torch.mm(a, b)
    limit = MAX_RELATIVE_ERROR * want.abs().max()
    right = [config for config in configs if _is_right(config, a, b, want, limit)]
    programs = {str(config): partial(_multiply, config=config) for config in right}
    times = time_fastest(programs, (a, b), BUDGET_S)
    best = next(config for config in configs if str(config) == next(iter(times)))
    compared = time_fastest(
        {LIBRARY: torch.mm, "chosen": partial(_multiply, config=chosen), "best": partial(_multiply, config=best)},
        (a, b),
        BUDGET_S,
    )
    return {
        "m": m, "n": n, "k": k, "b": layout,
        "us": round(compared["best"], 2), "cublas_us": round(compared[LIBRARY], 2),
        "chosen_us": round(compared["chosen"], 2), "gain": round(compared["chosen"] / compared["best"], 3),
        "config": _to_record(best),
    }  # fmt: skip


def _multiply(a: Tensor, b: Tensor, *, config: GemmConfig) -> Tensor:
    out = a.new_empty(a.shape[0], b.shape[1])
    multiply(a, b, PLAIN, out, "default", config)
    return out


def _is_right(config: GemmConfig, a: Tensor, b: Tensor, want: Tensor, limit: Tensor) -> bool:
    """Whether a configuration compiles and computes the product into poisoned memory."""
    out = torch.full_like(want, torch.nan)
    try:
        multiply(a, b, PLAIN, out, "default", config)
    except (CompileError, UsageError):
        return False
    return bool(((out - want).abs() <= limit).all())


def _to_record(config: GemmConfig) -> dict[str, Any]:
    """The fields that are not the default, and the tile."""
    defaults = {one.name: one.default for one in fields(config)}
    tile = ("block_m", "block_n", "num_stages", "num_consumers")
    return {name: value for name, value in asdict(config).items() if name in tile or value != defaults[name]}


def _format(machine: str, rows: Sequence[dict[str, Any]]) -> str:
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    return f'{{\n "machine": {json.dumps(machine)},\n "rows": [\n{lines}\n ]\n}}\n'
