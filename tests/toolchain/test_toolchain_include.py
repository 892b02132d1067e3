"""Every wrapper of PTX becomes the instruction that it is named for."""

import re

import pytest

from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.cuda.includes import INCLUDE_DIR
from kernelwright.toolchain.sass.disassembly import disassemble

WRAPPERS = {
    "copy_16": ("cp_async", "kw::copy_16(&held[0], x, n > 1);", r"LDGSTS\.E\.BYPASS\.128"),
    "copy_4": ("cp_async", "kw::copy_4(&held[0], x, n > 1);", r"LDGSTS\.E(?!\S*128)"),
    "copies_commit": ("cp_async", "kw::copy_16(&held[0], x); kw::copies_commit();", r"LDGDEPBAR"),
    "copies_wait": ("cp_async", "kw::copy_16(&held[0], x); kw::copies_commit(); kw::copies_wait<0>();", r"DEPBAR\.LE"),
    "in_block": ("cluster", "out[1] = kw::in_block(&held[0], n);", r"U?PRMT"),
    "barrier_init": ("cluster", "kw::barrier_init(&barrier);", r"SYNCS\.EXCH\.64"),
    "barrier_expect": ("cluster", "kw::barrier_expect(&barrier, 16);", r"SYNCS\.ARRIVE\.TRANS64"),
    "cluster_arrive": ("cluster", "kw::cluster_arrive(); kw::cluster_wait();", r"UCGABAR_ARV"),
    "wait_for_earlier": ("grid", "kw::wait_for_earlier();", r"ACQBULK"),
    "cluster_wait": ("cluster", "kw::cluster_arrive(); kw::cluster_wait();", r"UCGABAR_WAIT"),
    "store_async": (
        "cluster",
        "kw::store_async(kw::in_block(&held[0], n), float4{1, 2, 3, 4}, kw::in_block(&barrier, n));",
        r"STAS\.128",
    ),
    "barrier_wait": ("cluster", "kw::barrier_wait(&barrier, 1);", r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT"),
    "load_16": (
        "load",
        "float4 v = {1, 2, 3, 4}; kw::load_16(v, x, n > 1); out[1] = v.x + v.y + v.z + v.w;",
        r"LDG\.E\.128\.CONSTANT",
    ),
    "load_4": ("ldmatrix", "kw::load_4(four, &held[0]); out[3] = four[0] + four[3];", r"LDSM\.16\.M88\.4"),
    "load_4_transposed": (
        "ldmatrix",
        "kw::load_4_transposed(four, &held[0]); out[3] = four[0] + four[3];",
        r"LDSM\.16\.MT88\.4",
    ),
    "store_4": ("ldmatrix", "kw::store_4(&held[0], four); __syncthreads(); out[3] = held[n];", r"STSM\.16\.M88\.4"),
    "mma_f16": ("mma", "kw::mma_f16(d, four, two); out[4] = d[0];", r"HMMA\.16816\.F32(?!\.BF16)"),
    "mma_bf16": ("mma", "kw::mma_bf16(d, four, two); out[4] = d[0];", r"HMMA\.16816\.F32\.BF16"),
    "mma_tf32": ("mma", "kw::mma_tf32(d, four, two); out[4] = d[0];", r"HMMA\.1688\.F32\.TF32"),
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
        "shared_address",
        "forget",
    }  # an address, and nothing at all
    assert declared == set(WRAPPERS)
