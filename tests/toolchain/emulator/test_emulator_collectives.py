"""Matrix instructions and mbarriers on the CPU, with fragments as `layouts.atoms` describes them."""

import pytest
import torch

from kernelwright.core.errors import CandidateError
from kernelwright.layouts import get_atom, size
from kernelwright.toolchain.emulator import EmulatedKernel

MMA = {
    "mma_m16n8k16_f16": ("mma.m16n8k16.f16", torch.float16),
    "mma_m16n8k16_bf16": ("mma.m16n8k16.bf16", torch.bfloat16),
    "mma_m16n8k8_tf32": ("mma.m16n8k8.tf32", torch.float32),
}
MMA_KERNEL = """#include "kw/ptx/mma.cuh"
extern "C" __global__ void product(const uint4* a, const uint2* b, float4* d) {{
    const uint4 x = a[threadIdx.x];
    const uint2 y = b[threadIdx.x];
    const unsigned frag_a[4] = {{x.x, x.y, x.z, x.w}}, frag_b[2] = {{y.x, y.y}};
    float acc[4] = {{}};
    kw::{name}(acc, frag_a, frag_b);
    d[threadIdx.x] = make_float4(acc[0], acc[1], acc[2], acc[3]);
}}
"""
COPY_KERNEL = """#include "kw/ptx/ldmatrix.cuh"
extern "C" __global__ void copy(const uint4* in, uint4* out) {{
    __shared__ uint4 rows[32], stored[32];
    rows[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    unsigned fragment[4];
    kw::ldmatrix_x4{load}(fragment, &rows[threadIdx.x]);
    kw::stmatrix_x4{store}(&stored[threadIdx.x], fragment);
    __syncthreads();
    out[threadIdx.x] = stored[threadIdx.x];
}}
"""
PIPELINE_KERNEL = """#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/mbarrier.cuh"
extern "C" __global__ void pipeline(const float* x, float* out, int rounds) {{
    __shared__ float held[2][32];
    __shared__ unsigned long long full[2], free[2];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; ++i) {{
            kw::mbarrier_init<32>(&full[i]);
            kw::mbarrier_init<{consumers}>(&free[i]);
        }}
    __syncthreads();
    for (int i = 0; i < rounds; ++i) {{
        if (threadIdx.x < 32) {{
            kw::mbarrier_wait_parity(&free[i % 2], i / 2 % 2 ^ 1);
            kw::cp_async_ca_4(&held[i % 2][lane], x + i * 32 + lane);
            kw::cp_async_mbarrier_arrive_noinc(&full[i % 2]);
        }} else {{
            kw::mbarrier_wait_parity(&full[i % 2], i / 2 % 2);
            out[i * 32 + lane] = 2 * held[i % 2][31 - lane];
            kw::mbarrier_arrive(&free[i % 2]);
        }}
    }}
}}
"""


def fragments(matrix, layout):
    """What each lane holds of a matrix, by value."""
    columns = matrix.T.flatten()
    return torch.stack([columns[[layout(lane, i) for i in range(size(layout[1]))]] for lane in range(32)])


@pytest.mark.parametrize("name", MMA)
def test_mma(name):
    atom, dtype = get_atom(MMA[name][0]), MMA[name][1]
    (layout_a, shape_a), (layout_b, shape_b), (layout_c, _) = (atom.operand(which) for which in "ABC")
    a, b = (torch.randint(-8, 8, shape).to(dtype) for shape in (shape_a, shape_b))
    d = torch.zeros(32, 4)
    operands = [fragments(a, layout_a).contiguous(), fragments(b, layout_b).contiguous()]
    EmulatedKernel(MMA_KERNEL.format(name=name), "product")(1, 32, [*operands, d])
    assert torch.equal(d, fragments(a.float() @ b.float().T, layout_c))


@pytest.mark.parametrize(("load", "store"), [("", ""), ("_trans", ""), ("", "_trans"), ("_trans", "_trans")])
def test_ldmatrix_and_stmatrix(load, store):
    matrices = torch.randn(4, 8, 8).half()
    out = torch.zeros_like(matrices)
    EmulatedKernel(COPY_KERNEL.format(load=load, store=store), "copy")(1, 32, [matrices, out])
    assert torch.equal(out, matrices if load == store else matrices.mT)


def test_ldmatrix_gives_each_lane_two_elements_of_each_matrix():
    text = COPY_KERNEL.format(load="", store="").replace("stored[threadIdx.x];", "*(const uint4*)fragment;")
    matrices, out = torch.randn(4, 8, 8).half(), torch.zeros(32, 4, 2).half()
    EmulatedKernel(text, "copy")(1, 32, [matrices, out])
    assert torch.equal(out, matrices.view(4, 32, 2).transpose(0, 1))


def test_a_ring_with_mbarriers():
    x, out = torch.randn(5, 32), torch.zeros(5, 32)
    EmulatedKernel(PIPELINE_KERNEL.format(consumers=32), "pipeline")(1, 64, [x, out, 5])
    assert torch.equal(out, 2 * x.flip(1))


def test_a_wait_that_nothing_ends_is_a_deadlock():
    text = PIPELINE_KERNEL.format(consumers=33)
    with pytest.raises(CandidateError, match=r"deadlock in block .* wait at an mbarrier in line 15"):
        EmulatedKernel(text, "pipeline", path="mine.cu")(1, 64, [torch.zeros(5, 32), torch.zeros(5, 32), 5])


def test_a_matrix_instruction_of_half_a_warp_computes_nan():
    d = torch.zeros(16, 4)
    operands = [torch.ones(32, 8).bfloat16(), torch.ones(32, 4).bfloat16(), d]
    EmulatedKernel(MMA_KERNEL.format(name="mma_m16n8k16_bf16"), "product")(1, 16, operands)
    assert d.isnan().any()


def test_lanes_in_different_matrix_instructions_are_a_deadlock():
    text = MMA_KERNEL.format(name="mma_m16n8k16_bf16").replace("\n", '\n#include "kw/ptx/ldmatrix.cuh"\n', 1)
    text = text.replace(
        "    kw::mma", "    unsigned rows[4];\n    if (threadIdx.x < 16) kw::ldmatrix_x4(rows, a);\n    else kw::mma"
    )
    operands = [torch.ones(32, 8).bfloat16(), torch.ones(32, 4).bfloat16(), torch.zeros(32, 4)]
    message = "16 of 32 threads wait at a matrix instruction in line 9 .*, 16 .* at a matrix instruction in line 10"
    with pytest.raises(CandidateError, match=f"deadlock in block .*: {message}"):
        EmulatedKernel(text, "product", path="mine.cu")(1, 32, operands)
