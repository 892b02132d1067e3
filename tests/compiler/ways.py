"""Times ways to run a program's region on this GPU beside a copy: those that are offered, and others.

    python tests/compiler/ways.py OUT.json softmaxes:softmax_columns problem.py --also 'BLOCK_N=8192 num_warps=16
    register_tiles=4'

A program is one of examples/suite, or a problem file. `--also` takes fields of `CudaChoice`, and `size=65536`, which
cuts rows into parts of about so many elements that wait for each other. Prints the fastest of each program, over the
time of the copy, and writes all of them; what is wrong, or differs from call to call, is named and not timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

import msgspec
import torch

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.planning import plan_problem
from kernelwright.compiler.program_suite import load_programs
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.triton.printer import print_triton
from kernelwright.compiler.triton.tile import TritonConfig
from kernelwright.measure.buffers import RotatingBuffers
from kernelwright.measure.clock import measure_steady_us
from kernelwright.problems import load_problem
from kernelwright.verification.quick_check import find_mismatch

SUITE = Path(__file__).parents[2] / "examples" / "suite"
ROUNDS, BUDGET_S, CACHE_BYTES, SHOWN = 3, 0.03, 50 * 2**20, 8


def problem_of(name, device="cuda"):
    if name.endswith(".py"):
        return load_problem(name)
    return next(problem for problem in load_programs(str(SUITE), device) if problem.name == name)


def ways(region, also):
    """Choices by what they are called."""
    found = {f"offered {at}": choice for at, choice in enumerate(TRITON.generate_configs(region))}
    for asked in also:
        fields = {key: int(value) for key, value in (pair.split("=") for pair in asked.split())}
        if size := fields.pop("size", None):
            fields |= {"num_splits": round(region.row_size / size), "grid_sync": 1}
            if not 1 < fields["num_splits"] <= 32:
                continue
        fields |= {
            name: bool(fields[name])
            for name in ("grid_sync", "combine_kernel", "vector_accumulators", "evict_last")
            if name in fields
        }
        found[asked] = msgspec.convert({"BLOCK_M": 1, **fields}, TritonConfig)
    return found


def compile_one(job):
    """Leaves the machine code of one way in Triton's cache."""
    import triton

    region, choice = job
    try:
        module, printed = TRITON.load(TRITON.emit_module([RegionKernel(region, choice)])), print_triton(region, choice)
        places = (*region.loads, *region.stores)
        dtypes = {f"{place.buffer}_ptr": place.dtype for place in places}
        dtypes |= {f"{name}_ptr": dtype for name, dtype in printed.scratch.items()}
        for name in printed.kernel_names:
            kernel = getattr(module, name)
            given = [triton.MockTensor(getattr(torch, dtypes[argument])) for argument in kernel.arg_names]
            kernel.warmup(*given, grid=(1,), num_warps=choice.num_warps)
    except Exception:  # it fails again, and is said, where it is timed
        return


def fault_of(kernel, reference, inputs):
    try:
        if reason := find_mismatch(reference, kernel, inputs):
            return reason.detail
        first, second = kernel(*inputs), kernel(*inputs)
        pairs = zip(*(out if isinstance(out, tuple) else (out,) for out in (first, second)), strict=True)
        return "" if all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs) else "not the same"
    except Exception as fault:
        return f"{type(fault).__name__}: {str(fault)[:200]}"


def timed(region, reference, inputs, choices):
    """The median time of each way that is right, and of a copy of as many bytes; and what is wrong with the others."""
    calls, faults = {}, {}
    for name, choice in choices.items():
        try:
            kernel = getattr(TRITON.load(TRITON.emit_module([RegionKernel(region, choice)])), region.name)
        except Unsupported as reason:
            faults[name] = str(reason)
            continue
        if fault := fault_of(kernel, reference, inputs):
            faults[name] = fault
        else:
            calls[name] = RotatingBuffers((inputs, {}), CACHE_BYTES).bind(kernel)
    half = torch.ones(max(sum(region.bytes_moved) // 2, 1), dtype=torch.uint8, device="cuda")
    calls["copy"] = RotatingBuffers(([half], {}), CACHE_BYTES).bind(torch.clone)
    found = {name: [] for name in calls}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, call in calls.items():
                found[name].append(measure_steady_us(call, "cuda", budget_s=BUDGET_S))
    return {name: median(times) for name, times in found.items()}, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--also", action="append", default=[])
    asked = parser.parse_args()
    planned = {name: plan_problem(problem_of(name), "cuda") for name in asked.programs}
    jobs = [
        (part.region, choice)
        for plan in planned.values()
        for part in plan.regions
        for choice in ways(part.region, asked.also).values()
    ]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_one, jobs))
    found = {}
    for name, plan in planned.items():
        problem = problem_of(name)
        args, kwargs = problem.inputs("cuda", 0)
        values = bind_placeholders(plan.captured, problem.program_on("cuda"), args, kwargs)
        for part, inputs in zip(plan.regions, record_region_inputs(plan.captured, plan.regions, values), strict=True):
            choices = ways(part.region, asked.also)
            times, faults = timed(part.region, build_reference(plan.captured, part), inputs, choices)
            key = f"{name} {part.region.name}"
            found[key] = {way: {"us": us, "of a copy": us / times["copy"]} for way, us in times.items()} | faults
            print(f"{key}: a copy {times['copy']:.1f} us", flush=True)
            for way in sorted(times, key=times.__getitem__)[:SHOWN]:
                print(f"  {times[way] / times['copy']:.3f}  {way:12s} {choices.get(way, '')}", flush=True)
            for way, fault in faults.items():
                print(f"  {way}: {fault}", flush=True)
            Path(asked.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
