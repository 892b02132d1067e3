"""Every wrapper of PTX becomes the instruction that it is named for."""

import re

import pytest

from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR
from kernelwright.toolchain.sass.disassembly import disassemble

WRAPPERS = {
    "cp_async_cg_16": ("cp_async", "kw::cp_async_cg_16(&held[0], x, n > 1);", r"LDGSTS\.E\.BYPASS\.128"),
    "cp_async_ca_4": ("cp_async", "kw::cp_async_ca_4(&held[0], x, n > 1);", r"LDGSTS\.E(?!\S*128)"),
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
    "mbarrier_init": ("cluster", "kw::mbarrier_init(&barrier);", r"SYNCS\.EXCH\.64"),
    "mbarrier_arrive_expect_tx": ("cluster", "kw::mbarrier_arrive_expect_tx(&barrier, 16);", r"SYNCS\.ARRIVE\.TRANS64"),
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
    "mbarrier_wait_parity": ("cluster", "kw::mbarrier_wait_parity(&barrier, 1);", r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT"),
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
}
KERNEL = """#include "kw/{header}.cuh"
extern "C" __global__ void probe(const float* x, float* out, int n) {{
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


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_becomes_its_instruction(name):
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    header, body, instruction = WRAPPERS[name]
    code = compile_cubin(KERNEL.format(header=header, body=body)).code
    (lines,) = disassemble(code).values()
    opcodes = [line.opcode for line in lines]
    assert any(re.match(instruction, opcode) for opcode in opcodes), opcodes


def test_every_wrapper_is_tested():
    text = "".join(path.read_text() for path in INCLUDE_DIR.rglob("*.cuh"))
    declared = set(re.findall(r"__forceinline__ \w+ (\w+)\(", text)) - {
        "smem_u32",
        "hide_from_optimizer",
    }  # neither is one instruction
    assert declared == set(WRAPPERS)
