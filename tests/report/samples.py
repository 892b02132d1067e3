"""Made-up records in realistic sizes, one of each kind that a report has to draw."""

from __future__ import annotations

import random

import msgspec

from kernelwright.core.bench import Bench, Comparison, VariantTiming
from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.core.diagnosis import Diagnosis, Floors, MetricEvidence, OperatorSummary, Recommendation, WorkSummary
from kernelwright.core.emulation import Emulation, EmulationRecommendation, MemoryAccess, SanitizerFinding
from kernelwright.core.fast_p import compute_fast_p_curve
from kernelwright.core.ladder import LadderRun, RungOutcome, SizeTiming
from kernelwright.core.machine import Machine, MemoryLevel, Spec
from kernelwright.core.machine_code import CodeChange, CodeDifference, Instruction, Loop, MachineCode, Occupancy, Spills
from kernelwright.core.optimization import (
    Attempt,
    BudgetUse,
    FallbackOperator,
    ModuleOutcome,
    Optimization,
    RegionOutcome,
    StageTime,
)
from kernelwright.core.suite_run import CaseOutcome, SuiteRun
from kernelwright.core.throughput import Throughput
from kernelwright.core.timing import Conditions, Timing
from kernelwright.core.verdict import Accuracy, Reason, Verdict
from kernelwright.layouts.queries import explain

LAPTOP = Machine(
    name="AMD EPYC 9R14",
    device="cpu",
    provenance="measured",
    levels=(
        MemoryLevel(name="L1", capacity_bytes=32 << 10, read_gb_s=402, write_gb_s=205, copy_gb_s=310, triad_gb_s=341),
        MemoryLevel(name="L2", capacity_bytes=1 << 20, read_gb_s=181, write_gb_s=96, copy_gb_s=128, triad_gb_s=140),
        MemoryLevel(name="L3", capacity_bytes=32 << 20, read_gb_s=92, write_gb_s=52, copy_gb_s=66, triad_gb_s=71),
        MemoryLevel(name="DRAM", capacity_bytes=1 << 34, read_gb_s=29.1, write_gb_s=14.8, copy_gb_s=22, triad_gb_s=25),
    ),
    matrix_tflop_s={"float32": 0.196, "float64": 0.097, "bfloat16": 0.351, "int8": 0.702},
    vector_tflop_s={"float32": 0.094, "float64": 0.047},
    threads=2,
    dispatch_us=1.1,
    page_fault_us_per_mib=61.0,
    software={"torch": "2.13.0", "python": "3.11.9"},
    notes=("transparent huge pages are off: fresh memory costs a fault every 4 KiB",),
)  # fmt: skip

H200_SPEC = Spec(
    name="h200",
    title="NVIDIA H200 SXM",
    device="cuda",
    dram_gb_s=4800,
    dram_bytes=141_000_000_000,
    cache_bytes=50 << 20,
    multiprocessors=132,
    matrix_tflop_s={"bfloat16": 989, "float16": 989, "tf32": 494, "float8_e4m3fn": 1979},
    vector_tflop_s={"float32": 67, "float64": 34},
    source="NVIDIA H200 datasheet, dense figures",
)

H200 = Machine(
    name="NVIDIA H200",
    device="cuda",
    provenance="measured",
    levels=(
        MemoryLevel(name="L2", capacity_bytes=50 << 20, read_gb_s=7900, write_gb_s=4100, copy_gb_s=5600),
        MemoryLevel(name="DRAM", capacity_bytes=141_000_000_000, read_gb_s=4390, write_gb_s=4010, copy_gb_s=4120),
    ),
    matrix_tflop_s={"bfloat16": 771, "float16": 765, "tf32": 402, "float8_e4m3fn": 1390, "float32": 51.2},
    vector_tflop_s={"float32": 55.3},
    multiprocessors=132,
    dispatch_us=4.6,
    launch_us=2.3,
    graph_launch_us=1.1,
    spec=H200_SPEC,
    software={"torch": "2.11.0+cu130", "triton": "3.6.0", "driver": "580.65"},
)

PREDICTED = Machine(
    name="NVIDIA H200 SXM",
    device="cuda",
    provenance="datasheet",
    levels=(MemoryLevel(name="DRAM", capacity_bytes=141_000_000_000, read_gb_s=4800, write_gb_s=4800, copy_gb_s=4800),),
    matrix_tflop_s={"bfloat16": 989, "tf32": 494},
    vector_tflop_s={"float32": 67},
    multiprocessors=132,
    spec=H200_SPEC,
)


def _reading(name: str, time_us: float, total_us: float, floor_us: float, **rest) -> OperatorSummary:
    fields = {"module": "", "calls": 1, "regime": "memory-bound", "kind": "pointwise", "gain_us": time_us - floor_us}
    return OperatorSummary(name=name, time_us=time_us, share=time_us / total_us, floor_us=floor_us, **(fields | rest))


MEMORY = Diagnosis(
    problem="add_scale_bias_relu",
    program="relu((x + y) * scale + bias)",
    regime="memory-bound",
    summary="memory-bound: it moves 2.7 GB where 1.1 GB would do, at 91 % of this machine's 29.1 GB/s",
    coverage=1.0,
    time_us=101_300.0,
    floors=Floors(as_written_us=92_200.0, fused_us=36_900.0, limiter="DRAM"),
    work=WorkSummary(flops=268_435_456, bytes_as_written=2_684_354_560, bytes_fused=1_073_741_824),
    operators=(
        _reading("add", 30_200, 101_300, 27_900, bytes=805_306_368, flops=67_108_864, gain_us=20_000),
        _reading("mul", 19_900, 101_300, 18_400, bytes=536_870_912, flops=67_108_864, gain_us=18_000),
        _reading("add", 30_100, 101_300, 27_900, bytes=805_306_368, flops=67_108_864, gain_us=15_000),
        _reading("relu", 21_100, 101_300, 18_500, bytes=536_870_912, flops=67_108_864, gain_us=9_000),
    ),
    recommendations=(
        Recommendation(
            kind="fuse",
            action="fuse all four into one pass",
            predicted_us=39_200.0,
            reason="three intermediate results of 268 MB are written and read again",
            command="kw optimize examples/add_scale_bias_relu.py",
        ),
        Recommendation(
            kind="stop", action="nothing else: after that it is at the memory's speed", predicted_us=39_200.0
        ),
    ),
    evidence=(
        MetricEvidence(
            metric="DRAM bandwidth reached", value="26.5 GB/s, 91 %", threshold="80 % or more", source="bytes over time"
        ),
        MetricEvidence(
            metric="arithmetic reached", value="2.65 GFLOP/s, 2.8 %", threshold="80 % or more", source="FLOPs over time"
        ),
        MetricEvidence(
            metric="dispatch", value="4.40 us, 0.004 %", threshold="under 10 %", source="4 operators at 1.10 us each"
        ),
        MetricEvidence(metric="page faults", value="309 per call", threshold="under 1,000", source="getrusage"),
    ),
    machine=LAPTOP,
    page_fault_us=6_200.0,
)

OVERHEAD = Diagnosis(
    problem="tiny_chain",
    program="tiny_chain",
    regime="overhead-bound",
    summary="the device waits for the host for 88 % of the time: 68 operators of 0.7 us each, launched one by one",
    coverage=0.97,
    time_us=412.0,
    floors=Floors(as_written_us=47.0, fused_us=0.9, limiter="DRAM"),
    work=WorkSummary(flops=262_144, bytes_as_written=2_097_152, bytes_fused=32_768),
    operators=tuple(
        _reading(
            ("add", "mul", "tanh", "sigmoid", "layer_norm", "linear")[i % 6],
            5.2 + (i * 7 % 13) / 5,
            412.0,
            0.73,
            module=f"decoder.layers.{i // 6}.feed_forward.block" if i % 3 else "",
            regime="overhead-bound",
            bytes=32_768,
            flops=4_096 * (1 + i % 3) if i % 5 else 0,
            gain_us=5.2 + (i * 7 % 13) / 5 - 0.73,
            calls=2 if i < 4 else 1,
        )
        for i in range(64)
    ),
    recommendations=(
        Recommendation(
            kind="graph",
            action="capture the 68 launches in one CUDA graph",
            predicted_us=96.0,
            reason="a launch in a graph costs 1.10 us instead of 4.60 us",
            command="kw optimize examples/tiny_chain.py --graph",
        ),
        Recommendation(kind="fuse", action="fuse the pointwise operators between the products", predicted_us=61.0),
        Recommendation(
            kind="batch",
            action="batch 8 inputs into one call",
            predicted_us=58.0,
            reason="the same launches do more work",
        ),
    ),
    evidence=(
        MetricEvidence(
            metric="wall time over device time", value="8.4x", threshold="under 1.2x", source="host clock and events"
        ),
        MetricEvidence(
            metric="device idle between launches", value="88 %", threshold="under 10 %", source="CUDA events"
        ),
    ),
    machine=H200,
    overhead_us=363.0,
    notes=("2 operators have no FLOP formula: my_ops::gate, my_ops::mix",),
)

COMPUTE = Diagnosis(
    problem="matmul_bf16",
    program="a @ b",
    regime="compute-bound",
    summary="the tensor cores run at 97 % of the 771 TFLOP/s that a product of this dtype reaches here",
    coverage=1.0,
    time_us=1_466.0,
    floors=Floors(as_written_us=1_426.0, fused_us=1_426.0, limiter="matrix/bfloat16"),
    work=WorkSummary(flops=1_099_511_627_776, bytes_as_written=402_653_184, bytes_fused=402_653_184),
    operators=(
        _reading(
            "mm",
            1_466,
            1_466,
            1_426,
            bytes=402_653_184,
            flops=1_099_511_627_776,
            gain_us=40.0,
            regime="compute-bound",
            kind="matrix",
        ),
    ),
    recommendations=(),
    evidence=(
        MetricEvidence(metric="matrix rate reached", value="750 TFLOP/s, 97 %", threshold="80 % or more",
                       source="FLOP/s"),
        MetricEvidence(metric="DRAM bandwidth reached", value="275 GB/s, 6.3 %", threshold="80 % or more",
                       source="bytes/s"),
    ),
    machine=H200,
)  # fmt: skip

UNDETERMINED = Diagnosis(
    problem="custom",
    program="my_ops.mix(x)",
    regime="undetermined",
    summary="the FLOPs of 71 % of the bytes are unknown",
    coverage=0.29,
    time_us=8_100.0,
    floors=Floors(as_written_us=2_100.0, fused_us=2_100.0, limiter="DRAM"),
    work=WorkSummary(flops=0, bytes_as_written=61_000_000, bytes_fused=61_000_000),
    operators=(),
    recommendations=(),
    evidence=(),
    machine=LAPTOP,
)

FORESEEN = Diagnosis(
    problem="add_scale_bias_relu",
    program="relu((x + y) * scale + bias)",
    regime="memory-bound",
    summary="memory-bound: it would move 2.7 GB where 1.1 GB would do",
    coverage=1.0,
    time_us=None,
    floors=Floors(as_written_us=559.0, fused_us=224.0, limiter="DRAM"),
    work=MEMORY.work,
    operators=tuple(
        _reading(o.name, o.floor_us / 165, 559.0, o.floor_us / 165, bytes=o.bytes, flops=o.flops, gain_us=0.0)
        for o in MEMORY.operators
    ),
    recommendations=(Recommendation(kind="fuse", action="fuse all four into one pass", predicted_us=224.0),),
    evidence=(),
    machine=PREDICTED,
    predicted=True,
)

ACCEPTED = Verdict(
    accepted=True,
    reason=None,
    problem="add_scale_bias_relu",
    candidate="examples/add_scale_bias_relu.cpp",
    device="cpu",
    input_sets=12,
    golden="FP64",
    accuracy=Accuracy(
        policy="budget",
        error=6.1e-8,
        reference_error=6.1e-8,
        limit=4.9e-7,
        error_over_reference=1.0,
        error_over_limit=0.124,
        metric="largest error over the local scale",
        distribution="normal",
        output="",
        index=(),
        got="",
        expected="",
    ),
    sandbox=("own process", "no network", "8 GB of memory", "60 s"),
    notes=("inputs intact", "deterministic"),
    time_s=3.4,
)

REJECTED = Verdict(
    accepted=False,
    reason=Reason(code="inaccurate", detail="4,100 times the reference's own error against FP64, 38 times the limit"),
    problem="softmax",
    candidate="examples/wrong/softmax_fp16.py",
    device="cpu",
    input_sets=3,
    golden="FP64",
    accuracy=Accuracy(
        policy="budget",
        error=7.05e-4,
        reference_error=1.72e-7,
        limit=1.85e-5,
        error_over_reference=4_100.0,
        error_over_limit=38.1,
        metric="largest error over the local scale",
        distribution="wide: normal times 2^uniform(-12, 12)",
        output="",
        index=(17, 903),
        got="0.0009765625",
        expected="0.0009770393",
    ),
    sandbox=("own process", "no network", "8 GB of memory", "60 s"),
    notes=("looks like half-precision arithmetic",),
    time_s=1.9,
)


def _timing(name: str, time_us: float, spread: float, seed: int, disturbed: int = 0) -> Timing:
    draw = random.Random(seed)
    return Timing(
        name=name,
        time_us=time_us,
        low_us=time_us * (1 - spread / 4),
        high_us=time_us * (1 + spread / 3),
        samples_us=tuple(round(time_us * (1 + draw.gauss(0, spread)), 1) for _ in range(60)),
        repetitions=5,
        conditions=Conditions(device="cpu", clock="host", cache="cold", allocation="huge pages", threads=2),
        disturbed=disturbed,
        page_faults_per_call=309.0,
    )


def _variant(name: str, time_us: float, spread: float, seed: int, **rest) -> VariantTiming:
    timing = _timing(name, time_us, spread, seed)
    fields = {"floor_us": 36_900.0, "datasheet_bound_us": 23_300.0, "suspicious": None}
    return VariantTiming(
        name=name, time_us=time_us, low_us=timing.low_us, high_us=timing.high_us, timing=timing, **(fields | rest)
    )


BENCH = Bench(
    problem="add_scale_bias_relu",
    machine=LAPTOP,
    variants=(
        _variant("candidate", 39_600.0, 0.010, 1),
        _variant("eager", 101_300.0, 0.022, 2),
        _variant("torch.compile", 41_000.0, 0.012, 3),
    ),
    comparisons=tuple(
        Comparison(
            variant="candidate", baseline=b, verdict=v, speedup=r, low=low, high=high, pairs=60, method="interleaved"
        )
        for b, v, r, low, high in (
            ("eager", "FASTER", 2.56, 2.53, 2.59),
            ("torch.compile", "FASTER", 1.04, 1.02, 1.06),
        )
    ),
)

SUSPICIOUS = Bench(
    problem="add_scale_bias_relu",
    machine=LAPTOP,
    variants=(
        _variant("candidate", 1_200.0, 0.3, 4, suspicious="19 times faster than the datasheet's memory allows"),
        _variant("eager", 101_300.0, 0.022, 2, floor_us=None, datasheet_bound_us=None),
    ),
    comparisons=(
        Comparison(
            variant="candidate",
            baseline="eager",
            verdict="UNCLEAR",
            speedup=84.4,
            low=0.9,
            high=120.0,
            pairs=5,
            method="process pairs",
        ),
    ),
)

REFUSED = msgspec.structs.replace(BENCH, verdicts=(REJECTED, ACCEPTED))
ALL_REFUSED = Bench(problem="softmax", machine=LAPTOP, variants=(), comparisons=(), verdicts=(REJECTED,))

FORETOLD = Bench(
    problem="add_scale_bias_relu",
    machine=H200,
    variants=tuple(
        VariantTiming(
            name=name, time_us=time_us, low_us=time_us, high_us=time_us, floor_us=25.2, datasheet_bound_us=14.7
        )
        for name, time_us in (("candidate", 26.0), ("eager", 75.5))
    ),
    comparisons=(),
    predicted=True,
    notes=("torch.compile is not predicted: what it would fuse is known only where it runs",),
)


def cpu_attempt(time_us: float | None, accepted: bool | None = True, reason: str = "", **choice) -> Attempt:
    """An attempt as the tuner records it: its name spells its choice."""
    choice = {"vector_axis": "i0", "parallel": True, "num_splits": 1, "nontemporal_stores": False} | choice
    name = ", ".join(f"{key} {value}" for key, value in choice.items())
    return Attempt(name=name, config=choice, time_us=time_us, accepted=accepted, reason=reason)


def cuda_attempt(time_us: float | None, accepted: bool | None = True, reason: str = "", **choice) -> Attempt:
    choice = {
        "BLOCK_M": 1,
        "BLOCK_N": 1024,
        "num_warps": 2,
        "num_stages": 1,
        "num_splits": 1,
        "evict_last": True,
    } | choice
    name = ", ".join(f"{key} {value}" for key, value in choice.items())
    return Attempt(name=name, config=choice, time_us=time_us, accepted=accepted, reason=reason)


def _region(at: int, summary: str, times: tuple[float, float, float, float], *attempts: Attempt, **rest):
    """A region whose fastest attempt that was not rejected won; times are floor, before, predicted, after."""
    floor_us, before_us, predicted_us, after_us = times
    right = sorted((a.time_us, a.name) for a in attempts if a.time_us is not None and a.accepted is not False)
    why = f"{right[1][0] / right[0][0]:.2f}x faster than the next, {right[1][1]}" if right else ""
    winner = right[0][1] if right else "torch"
    fields = {
        "name": f"region_{at}",
        "text": f"region_{at}: i0=1,024, rows of one element each\n  x_in = x[i0]  float32\n  out[i0] = x_in  float32",
        "bytes_moved": int(floor_us * 25_000),
        "limiter": "DRAM",
        "winner_reason": why,
    }
    return RegionOutcome(
        summary=summary,
        floor_us=floor_us,
        before_us=before_us,
        predicted_us=predicted_us,
        after_us=after_us,
        winner=winner,
        attempts=attempts,
        **(fields | rest),
    )


OPTIMIZED = Optimization(
    problem="add_scale_bias_relu",
    machine=LAPTOP,
    diagnosis=msgspec.structs.replace(MEMORY, input_summary="float32, 64 M elements"),
    regions=(
        _region(
            0,
            "add, mul, add, relu; 67,108,864 elements",
            (36_900.0, 101_300.0, 38_700.0, 39_600.0),
            cpu_attempt(51_200.0),
            cpu_attempt(39_600.0, nontemporal_stores=True),
            cpu_attempt(73_000.0, None, parallel=False),
            cpu_attempt(None, False, "CompileError: no such instruction: vexp512", vector_axis="r0"),
            Attempt(name="torch", time_us=101_300.0),
            Attempt(name="torch.compile", time_us=41_000.0),
        ),
    ),
    fallbacks=(),
    output_file="examples/add_scale_bias_relu_optimized.py",
    engine="kernels",
    num_kernels=1,
    source='"""Kernels."""\n\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    less = 1 < 2 and "a" != \'b\'\n',
    verdict=ACCEPTED,
    bench=BENCH,
)

DECODER = Optimization(
    problem="decoder",
    machine=H200,
    diagnosis=OVERHEAD,
    regions=(
        _region(
            0,
            "pow, mean, add, rsqrt, mul, mul; 512 rows of 4,096",
            (2.1, 31.0, 2.6, 2.9),
            cuda_attempt(2.9, BLOCK_M=1, BLOCK_N=4096, num_warps=8),
            cuda_attempt(3.4, BLOCK_N=1024, num_splits=16, num_stages=3, evict_last=False),
            cuda_attempt(1.1, False, "4,100 times the reference's own error, 38 times the limit", BLOCK_N=512),
            Attempt(name="torch", time_us=31.0),
            num_occurrences=24,
        ),
        _region(
            1,
            "sigmoid, mul, mul; 2,097,152 elements",
            (5.7, 6.0, 5.9, 6.0),
            winner_reason="already at 1.05x its floor",
        ),
        _region(
            2,
            "max, sub, exp, sum, div; 16,384 rows of 512",
            (7.6, 22.0, 9.5, 8.9),
            Attempt(name="torch.compile", time_us=8.9),
            cuda_attempt(9.3, BLOCK_M=4, BLOCK_N=512),
            Attempt(name="torch", time_us=22.0),
        ),
        *(
            _region(
                at,
                "add; 524,288 elements",
                (1.5, 4.0 + at / 10, 1.8, 1.9),
                cuda_attempt(1.9, BLOCK_M=1024, BLOCK_N=1, num_warps=4),
                Attempt(name="torch", time_us=4.0 + at / 10),
            )
            for at in range(3, 12)
        ),
    ),
    fallbacks=(
        FallbackOperator(
            operator="aten.linear.default",
            reason="aten.linear.default is not pointwise, a reduction or a view",
            count=7,
        ),
        *(FallbackOperator(operator=f"aten.op_{at}.default", reason="a tensor without elements") for at in range(8)),
    ),
    output_file="decoder_optimized.py",
    engine="kernels",
    num_kernels=10,
    source="import torch\n",
    verdict=msgspec.structs.replace(ACCEPTED, problem="decoder", candidate="decoder_optimized.py", device="cuda"),
    bench=None,
    notes=("two regions were too large for one kernel",),
)

BROKEN = msgspec.structs.replace(OPTIMIZED, verdict=REJECTED, bench=None)
NOTHING = msgspec.structs.replace(
    OPTIMIZED,
    regions=(),
    fallbacks=(
        FallbackOperator(operator="aten.mm.default", reason="aten.mm.default is not pointwise, a reduction or a view"),
    ),
    diagnosis=None,
    bench=None,
    engine="torch",
    num_kernels=0,
)
PLAN = msgspec.structs.replace(
    OPTIMIZED, verdict=None, bench=None, diagnosis=None, output_file="", source="", engine="", num_kernels=0
)
_LINEAR = FallbackOperator(operator="aten.linear.default", reason="aten.linear.default is a matrix product", count=36)
WHOLE_MODEL = msgspec.structs.replace(
    DECODER,
    options=("channels-last",),
    bench=BENCH,
    modules=(
        ModuleOutcome(
            name="layers.0-11.mlp", num_modules=12, before_us=6260.0, after_us=4360.0, share=0.43, limiter="memory",
            regions=("region_0", "region_1"), num_regions=12, num_kernels=12, fallbacks=(_LINEAR,),
        ),
        ModuleOutcome(name="", before_us=300.0, after_us=None, share=0.02, regions=("region_0",)),
        *(
            ModuleOutcome(
                name=f"stages.{at}.blocks.0-3.attention.relative_position_bias", num_modules=4, regions=("region_2",),
                num_regions=4, fallbacks=(_LINEAR, *DECODER.fallbacks[1:]),
            )
            for at in range(60)
        ),
    ),
    budget=BudgetUse(
        total_s=60.0, spent_s=71.4, left_out=("kernels of 3 of 12 regions",),
        stages=(StageTime(name="tuning the regions", time_s=40.0), StageTime(name="checking", time_s=31.4)),
    ),
    notes=tuple(f"region_{at} stays with torch: there was not enough time" for at in range(40)),
)  # fmt: skip
UNUSED = msgspec.structs.replace(
    WHOLE_MODEL,
    engine="torch.compile",
    num_kernels=0,
    regions=tuple(
        msgspec.structs.replace(one, not_used="the whole program is faster with torch.compile")
        if one.has_kernel
        else one
        for one in DECODER.regions
    ),
)
UNCHANGED = msgspec.structs.replace(OPTIMIZED, engine="torch", num_kernels=0)

HOSTILE = '<script>alert("x")</script>\x1b[31m\n& co'

LAYOUT = explain("logical_divide((64,64):(64,1), <8,16>)", element_bytes=2)
FRAGMENT = explain("mma.m16n8k16.bf16.A")

EMULATED = Emulation(
    problem="gemm_fp32",
    candidate="01_naive.cu",
    summary="line 21: each load touches 32 sectors where 4 would do",
    accesses=(
        MemoryAccess(
            kernel="gemm_naive", line=21, code="sum += a[row * k + i] * b[i * n + column];", kind="global load",
            operand="a", access_bytes=4, requests=1_048_576, transactions_per_request=32.0,
            ideal_transactions_per_request=4.0,
        ),
    ),
    sanitizer_findings=(SanitizerFinding(kernel="gemm_naive", kind="race", line=40,
                                        message="two threads reach tile[17], one writes"),),
    flops=2_097_152,
    global_bytes=1_073_741_824,
    recommendations=(EmulationRecommendation(action="line 21: let neighbouring threads read neighbouring addresses"),),
)  # fmt: skip


def _against_cublas(size: tuple[int, int, int], rate_gflop_s: float) -> SizeTiming:
    m, n, k = size
    flops, ratio = 2 * m * n * k, rate_gflop_s / 50e3
    return SizeTiming(
        size=size,
        flops=flops,
        bytes=4 * (m * n + n * k + k * m),
        time_us=flops / rate_gflop_s / 1e3,
        baseline_us=flops / 50e6,
        comparison=Comparison(
            variant="rung",
            baseline="cuBLAS",
            verdict="SLOWER",
            speedup=ratio,
            low=ratio,
            high=ratio,
            pairs=7,
            method="alternating",
        ),
    )


def _rung(number: int, name: str) -> RungOutcome:
    rate_gflop_s = 500.0 * 1.48**number
    sizes = ((1024, 1024, 1024), (4096, 4096, 4096), (5000, 3000, 7000))
    return RungOutcome(
        number=number,
        name=name,
        title="One more idea",
        question="What does it cost?",
        hypothesis="Half of the time.",
        next="Ask for less.",
        accepted=True,
        num_shapes=49,
        times=tuple(_against_cublas(size, rate_gflop_s) for size in sizes),
    )


CLIMB = LadderRun(
    ladder="gemm_fp32",
    machine=H200,
    baseline="cuBLAS",
    rungs=tuple(
        _rung(at, name)
        for at, name in enumerate(
            ("naive", "coalesced", "shared_tile", "tile_1d", "tile_2d", "vectorised", "conflict_free", "tuned",
             "warp_tile", "asynchronous", "issue_bound", "stream_k"), 1,
        )
    ),
    dtype="float32",
)  # fmt: skip

_FMAS = tuple(
    Instruction(
        address=16 * at,
        opcode="FFMA",
        operands=f"R{at},R{at + 1},R69.reuse,R{at}",
        group="float math",
        description="one FP32 multiply-add",
        line=186,
    )
    for at in range(12)
)
_HOT = Loop(
    first_address=0,
    last_address=176,
    depth=1,
    num_instructions=12,
    instruction_mix={"float math": 12},
    is_hot=True,
    instructions=_FMAS,
)
CODE = MachineCode(
    kernel="gemm_issue_bound",
    arch="sm_90a",
    registers=225,
    shared_bytes=65_536,
    spills=Spills(),
    stack_bytes=0,
    occupancy=Occupancy(blocks_per_sm=1, warps_per_sm=8, fraction=0.125, limiter="registers", threads_per_block=256),
    instruction_mix={"float math": 12},
    access_widths={},
    loops=(_HOT,),
    summary="FFMA is 100 % of the loop's instructions. No spills.",
    num_instructions=12,
    instructions=_FMAS,
    notes=("occupancy is that of the largest block that the kernel allows",),
)
CHANGED = CodeDifference(
    before=CODE,
    after=msgspec.structs.replace(CODE, kernel="gemm_stream_k"),
    changes=(CodeChange(metric="spill stores, bytes", before="4", after="0", is_better=True),),
)


def _case(at: int, name: str) -> CaseOutcome:
    """A candidate that is rejected every fourth time, faster than eager the later it comes."""
    accepted = at % 4 != 3
    ratios = (("eager", 0.6 * 1.4**at), ("torch.compile", 0.5 * 1.2**at))
    return CaseOutcome(
        problem=name,
        candidate=f"{name}.py",
        verdict=msgspec.structs.replace(ACCEPTED if accepted else REJECTED, problem=name, candidate=f"{name}.py"),
        comparisons=tuple(
            Comparison(
                variant="candidate", baseline=b, verdict="FASTER" if r > 1.05 else "SLOWER", speedup=r,
                low=0.9 * r, high=r / 0.9,
                pairs=7, method="process pairs",
            )
            for b, r in ratios * accepted
        ),
    )  # fmt: skip


_CASES = tuple(
    _case(at, f"level1/{at}_{name}")
    for at, name in enumerate(
        ("softmax", "gelu", "conv_standard_2d_square_input_square_kernel", "hinge_loss", "cumsum", "rms_norm", "mean")
    )
)
SUITE = SuiteRun(
    suite="KernelBench/level1",
    device="cuda",
    machine=H200,
    baselines=("eager", "torch.compile"),
    outcomes=_CASES,
    curves=tuple(compute_fast_p_curve(_CASES, name) for name in ("eager", "torch.compile")),
    results_file="level1.results.jsonl",
    problems_without_candidate=("level1/9_sum",),
    reused_results=4,
    throughput=Throughput(verdicts=7, time_s=61.0),
)

JUDGED = CorpusReport(
    device="cpu",
    rounds=1,
    sandbox=("own process", "no network"),
    outcomes=tuple(
        SampleOutcome(
            name=name, kind=kind, problem="cross_entropy",
            description="Returns what eager left in the allocator's cache.",
            expected=expected, got=got, time_s=1.0, detail=detail,
        )
        for name, kind, expected, got, detail in (
            ("stale_memory_of_the_allocator.py", "cheat", ("stale",), "stale", ""),
            ("online_softmax_in_two_passes.py", "legitimate", (), "inaccurate",
             "4,100 times the reference's own error"),
        )
    ),
    throughput=Throughput(verdicts=2, time_s=12.0),
)  # fmt: skip

EVERY = {
    "emulated": EMULATED,
    "climb": CLIMB,
    "code": CODE,
    "changed": CHANGED,
    "suite": SUITE,
    "judged": JUDGED,
    "layout": LAYOUT,
    "fragment": FRAGMENT,
    "memory": MEMORY,
    "overhead": OVERHEAD,
    "compute": COMPUTE,
    "undetermined": UNDETERMINED,
    "foreseen": FORESEEN,
    "accepted": ACCEPTED,
    "rejected": REJECTED,
    "bench": BENCH,
    "suspicious": SUSPICIOUS,
    "refused": REFUSED,
    "all refused": ALL_REFUSED,
    "foretold": FORETOLD,
    "machine": LAPTOP,
    "predicted": PREDICTED,
    "h200": H200,
    "optimized": OPTIMIZED,
    "decoder": DECODER,
    "broken": BROKEN,
    "nothing": NOTHING,
    "plan": PLAN,
    "whole model": WHOLE_MODEL,
    "unused": UNUSED,
    "unchanged": UNCHANGED,
}

_CLOSED = {"regime", "kind", "device", "provenance", "verdict", "clock", "cache", "code"}


def poisoned(record, poison: str):
    """The same record with `poison` behind every string that is not one of a closed list."""
    if isinstance(record, msgspec.Struct):
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        return type(record)(**{n: v if n in _CLOSED else poisoned(v, poison) for n, v in fields.items()})
    if isinstance(record, tuple):
        return tuple(poisoned(item, poison) for item in record)
    if isinstance(record, dict):
        return {key + poison: poisoned(value, poison) for key, value in record.items()}
    return record + poison if isinstance(record, str) else record
