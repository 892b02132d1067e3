"""Every wrapper of PTX becomes the instruction that it is named for."""

import functools
import re

import pytest

from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR
from kernelwright.toolchain.sass.disassembly import disassemble

WGMMA = (
    "kw::wgmma_fence(); kw::wgmma_mma_async<kw::bf16, kw::bf16, 8>::issue(d, n, n, false); "
    "kw::wgmma_commit_group(); kw::wgmma_wait_group<0>();"
)
WRAPPERS = {
    "cp_async_cg_16": ("cp_async", "kw::cp_async_cg_16(&held[0], x, n > 1);", r"LDGSTS\.E\.BYPASS\.128"),
    "cp_async_ca_4": ("cp_async", "kw::cp_async_ca_4(&held[0], x, n > 1);", r"LDGSTS\.E(?!\S*128)"),
    "cp_async_mbarrier_arrive_noinc": (
        "cp_async",
        "kw::cp_async_ca_4(&held[0], x); kw::cp_async_mbarrier_arrive_noinc(&barrier);",
        r"ARRIVES\.LDGSTSBAR",
    ),
    "cp_async_commit_group": (
        "cp_async",
        "kw::cp_async_cg_16(&held[0], x); kw::cp_async_commit_group();",
        r"LDGDEPBAR",
    ),
    "cp_async_wait_group": (
        "cp_async",
        "kw::cp_async_cg_16(&held[0], x); kw::cp_async_commit_group(); kw::cp_async_wait_group<0>();",
        r"DEPBAR\.LE",
    ),
    "mapa": ("cluster", "out[1] = kw::mapa(&held[0], n);", r"U?PRMT"),
    "mbarrier_init": ("mbarrier", "kw::mbarrier_init(&barrier);", r"SYNCS\.EXCH\.64"),
    "mbarrier_arrive_expect_tx": (
        "mbarrier",
        "kw::mbarrier_arrive_expect_tx(&barrier, 16);",
        r"SYNCS\.ARRIVE\.TRANS64",
    ),
    "barrier_cluster_arrive_init": (
        "cluster",
        "kw::barrier_cluster_arrive_init(); kw::barrier_cluster_wait();",
        r"UCGABAR_ARV",
    ),
    "griddepcontrol_wait": ("griddepcontrol", "kw::griddepcontrol_wait();", r"ACQBULK"),
    "barrier_cluster_wait": (
        "cluster",
        "kw::barrier_cluster_arrive_init(); kw::barrier_cluster_wait();",
        r"UCGABAR_WAIT",
    ),
    "st_async": (
        "cluster",
        "kw::st_async(kw::mapa(&held[0], n), float4{1, 2, 3, 4}, kw::mapa(&barrier, n));",
        r"STAS\.128",
    ),
    "mbarrier_wait_parity": (
        "mbarrier",
        "kw::mbarrier_wait_parity(&barrier, 1);",
        r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT",
    ),
    "ld_global_nc_v4": (
        "ld_global",
        "float4 v = {1, 2, 3, 4}; kw::ld_global_nc_v4(v, x, n > 1); out[1] = v.x + v.y + v.z + v.w;",
        r"LDG\.E\.128\.CONSTANT",
    ),
    "ldmatrix_x4": ("ldmatrix", "kw::ldmatrix_x4(four, &held[0]); out[3] = four[0] + four[3];", r"LDSM\.16\.M88\.4"),
    "ldmatrix_x4_trans": (
        "ldmatrix",
        "kw::ldmatrix_x4_trans(four, &held[0]); out[3] = four[0] + four[3];",
        r"LDSM\.16\.MT88\.4",
    ),
    "stmatrix_x4": (
        "ldmatrix",
        "kw::stmatrix_x4(&held[0], four); __syncthreads(); out[3] = held[n];",
        r"STSM\.16\.M88\.4",
    ),
    "mma_m16n8k16_f16": ("mma", "kw::mma_m16n8k16_f16(d, four, two); out[4] = d[0];", r"HMMA\.16816\.F32(?!\.BF16)"),
    "mma_m16n8k16_bf16": ("mma", "kw::mma_m16n8k16_bf16(d, four, two); out[4] = d[0];", r"HMMA\.16816\.F32\.BF16"),
    "mma_m16n8k8_tf32": ("mma", "kw::mma_m16n8k8_tf32(d, four, two); out[4] = d[0];", r"HMMA\.1688\.F32\.TF32"),
    "stmatrix_x4_trans": (
        "ldmatrix",
        "kw::stmatrix_x4_trans(&held[0], four); __syncthreads(); out[3] = held[n];",
        r"STSM\.16\.MT88\.4",
    ),
    "elect_one_sync": ("shared", "if (kw::elect_one_sync()) out[1] = 1;", r"ELECT"),
    "fence_proxy_async": ("shared", "kw::fence_proxy_async();", r"FENCE\.VIEW\.ASYNC\.S"),
    "bar_sync": ("shared", "kw::bar_sync(3, 64);", r"BAR\.SYNC"),
    "bar_arrive": ("shared", "kw::bar_arrive(3, 64);", r"BAR\.ARV"),
    "fence_mbarrier_init": ("mbarrier", "kw::mbarrier_init(&barrier); kw::fence_mbarrier_init();", r"SYNCS\.EXCH\.64"),
    "mbarrier_arrive": ("mbarrier", "kw::mbarrier_arrive(&barrier);", r"SYNCS\.ARRIVE\.TRANS64\.A1T0"),
    "mbarrier_arrive_cluster": (
        "mbarrier",
        "kw::mbarrier_arrive_cluster(&barrier, n);",
        r"SYNCS\.ARRIVE\.TRANS64\.RED\.A1T0",
    ),
    "mbarrier_try_wait_parity": (
        "mbarrier",
        "out[1] = kw::mbarrier_try_wait_parity(&barrier, 1);",
        r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT",
    ),
    "cluster_ctarank": ("cluster", "out[1] = kw::cluster_ctarank();", r"S2U?R"),
    "barrier_cluster_arrive": ("cluster", "kw::barrier_cluster_arrive(); kw::barrier_cluster_wait();", r"UCGABAR_ARV"),
    "ld_shared_cluster_v4": (
        "cluster",
        "const float4 v = kw::ld_shared_cluster_v4(kw::mapa(&held[0], n)); out[1] = v.x + v.y + v.z + v.w;",
        r"LD\.E\.128",
    ),
    "griddepcontrol_launch_dependents": ("griddepcontrol", "kw::griddepcontrol_launch_dependents();", r"PREEXIT"),
    "setmaxnreg_inc": ("setmaxnreg", "kw::setmaxnreg_inc<232>();", r"USETMAXREG\.TRY_ALLOC"),
    "setmaxnreg_dec": ("setmaxnreg", "kw::setmaxnreg_dec<40>();", r"USETMAXREG\.DEALLOC"),
    "prefetch_tensormap": ("cp_async_bulk_tensor", "kw::prefetch_tensormap(&map);", r"UTMACCTL\.PF"),
    "cp_async_bulk": ("cp_async_bulk", "kw::cp_async_bulk(&held[0], x, 16, &barrier);", r"UBLKCP"),
    "cp_async_bulk_tensor_2d": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_tensor_2d(&held[0], &map, &barrier, n, 0);",
        r"UTMALDG\.2D$",
    ),
    "cp_async_bulk_tensor_2d_multicast": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_tensor_2d_multicast(&held[0], &map, &barrier, 3, n, 0);",
        r"UTMALDG\.2D\.MULTICAST",
    ),
    "cp_async_bulk_tensor_2d_store": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_tensor_2d_store(&map, &held[0], n, 0);",
        r"UTMASTG\.2D",
    ),
    "cp_async_bulk_tensor_3d": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_tensor_3d(&held[0], &map, &barrier, n, 0, 0);",
        r"UTMALDG\.3D$",
    ),
    "cp_async_bulk_tensor_3d_multicast": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_tensor_3d_multicast(&held[0], &map, &barrier, 3, n, 0, 0);",
        r"UTMALDG\.3D\.MULTICAST",
    ),
    "cp_async_bulk_tensor_3d_store": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_tensor_3d_store(&map, &held[0], n, 0, 0);",
        r"UTMASTG\.3D",
    ),
    "cp_async_bulk_commit_group": ("cp_async_bulk_tensor", "kw::cp_async_bulk_commit_group();", r"UTMACMDFLUSH"),
    "cp_async_bulk_wait_group_read": (
        "cp_async_bulk_tensor",
        "kw::cp_async_bulk_commit_group(); kw::cp_async_bulk_wait_group_read<0>();",
        r"DEPBAR",
    ),
    "wgmma_fence": ("wgmma", WGMMA, r"WARPGROUP\.ARRIVE"),
    "wgmma_commit_group": ("wgmma", WGMMA, r"HGMMA\.64x8x16\.F32"),
    "wgmma_wait_group": ("wgmma", WGMMA, r"WARPGROUP\.DEPBAR"),
    "to_float": ("cvt", "out[1] = kw::to_float(kw::f16{static_cast<unsigned short>(n)});", r"HADD2\.F32"),
    "from_float": ("cvt", "out[1] = kw::from_float<kw::bf16>(x[0]).bits;", r"F2FP?\.BF16"),
    "pack": ("cvt", "out[1] = kw::pack<kw::f16>(x[0], x[1]);", r"F2FP?\.F16"),
    "unpack": ("cvt", "out[1] = kw::unpack<kw::f16>(n).y;", r"HADD2\.F32"),
    "ex2_approx": ("approx", "out[1] = kw::ex2_approx(x[0]);", r"MUFU\.EX2"),
    "rcp_approx": ("approx", "out[1] = kw::rcp_approx(x[0]);", r"MUFU\.RCP"),
    "fast_exp": ("approx", "out[1] = kw::fast_exp(x[0]);", r"MUFU\.EX2"),
}
KERNEL = """
extern "C" __global__ void __launch_bounds__(256, 1) {name}({parameter}const float* x, float* out, int n) {{
    __shared__ __align__(16) float held[256];
    __shared__ unsigned long long barrier;
    unsigned four[4] = {{threadIdx.x, 2, 3, 4}}, two[2] = {{threadIdx.x, 6}};
    float d[4] = {{}};
    held[threadIdx.x] = n;
    __syncthreads();
    {body}
    out[0] = held[n] + d[0] + four[0] + two[0];
}}
"""
REDUCTIONS = {
    "warp": ("warp", "out[1] = kw::warp_reduce(x[threadIdx.x]);", {"SHFL.BFLY": 5}),
    "warp maximum": ("warp", "out[1] = kw::warp_reduce_max(x[threadIdx.x]);", {"SHFL.BFLY": 5, "FMNMX": 5}),
    "warp softmax": (
        "max_sum",
        "const kw::MaxSum sum = kw::warp_reduce(kw::MaxSum{x[threadIdx.x], 1.0f}); out[1] = sum.x + sum.y;",
        {"SHFL.BFLY": 10, "MUFU.EX2": 1},
    ),
    "warp moments": (
        "moments",
        "const kw::Moments sum = kw::warp_reduce(kw::Moments{x[threadIdx.x], x[n], held[n], 0.0f}); out[1] = sum.z;",
        {"SHFL.BFLY": 13, "MUFU.RCP": 5},
    ),
    "block": (
        "block",
        "__shared__ kw::BlockReduceSmem<float, 8> sums; out[1] = kw::block_reduce(sums, x[threadIdx.x]);",
        {"SHFL.BFLY": 10, "BAR.SYNC": 2},
    ),
    "cluster": (
        "cluster",
        "__shared__ kw::ClusterReduceSmem<float, 2, 8> sums; kw::cluster_reduce_init(sums);"
        "out[1] = kw::cluster_reduce(sums, 0, x[threadIdx.x]);",
        {"SHFL.BFLY": 10, "STAS": 1, "UCGABAR_ARV": 1, "UCGABAR_WAIT": 1, "SYNCS.ARRIVE": 1, "SYNCS.PHASECHK": 1},
    ),
}
"""Header, call, and the least number of each instruction."""


@functools.cache
def disassemble_calls(folder, calls):
    """The instructions of a kernel for each (name, header, call), compiled together."""
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    source = "".join(f'#include "kw/{folder}/{header}.cuh"\n' for header in sorted({header for _, header, _ in calls}))
    for name, _, body in calls:
        parameter = "const __grid_constant__ kw::TensorMap map, " if "&map" in body else ""
        source += KERNEL.format(name=name, body=body, parameter=parameter)
    return disassemble(compile_cubin(source).code)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_becomes_its_instruction(name):
    calls = tuple((f"call_{one}", header, body) for one, (header, body, _) in WRAPPERS.items())
    opcodes = [line.opcode for line in disassemble_calls("ptx", calls)[f"call_{name}"]]
    assert any(re.match(WRAPPERS[name][2], opcode) for opcode in opcodes), opcodes


@pytest.mark.parametrize("n", [8, 16, 32, 64, 128])
def test_wgmma_takes_a_from_registers(n):
    body = (
        f"float acc[{n // 2}]; const unsigned a[4] = {{1, 2, 3, unsigned(n)}}; kw::wgmma_fence(); "
        f"kw::wgmma_mma_async_registers<{n}>::issue(acc, a, n, false); "
        f"kw::wgmma_commit_group(); kw::wgmma_wait_group<0>(); out[1] = acc[{n // 2 - 1}];"
    )
    (lines,) = disassemble_calls("ptx", (("multiply", "wgmma", body),)).values()
    operands = [line.operands for line in lines if line.opcode == f"HGMMA.64x{n}x16.F32"]
    assert len(operands) == 1 and re.match(r"R\d+,R\d+,gdesc", operands[0].replace(" ", "")), operands


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_exchanges_partials_without_local_memory(name):
    calls = tuple((f"call_{i}", header, body) for i, (header, body, _) in enumerate(REDUCTIONS.values()))
    lines = disassemble_calls("reduce", calls)[f"call_{list(REDUCTIONS).index(name)}"]
    instructions = REDUCTIONS[name][2]
    opcodes = [line.opcode for line in lines]
    for start, count in instructions.items():
        assert sum(opcode.startswith(start) for opcode in opcodes) >= count, (start, opcodes)
    assert not {"LDL", "STL"} & {line.base_opcode for line in lines}


def test_every_wrapper_is_tested():
    text = "".join(path.read_text() for path in (INCLUDE_DIR / "kw" / "ptx").glob("*.cuh"))
    declared = set(re.findall(r"__forceinline__ \w+ (\w+)\(", text)) - {
        "smem_u32",
        "hide_from_optimizer",
        "issue",  # of wgmma_mma_async, in WGMMA
    }  # neither is one instruction
    assert declared == set(WRAPPERS)
