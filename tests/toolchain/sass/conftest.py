"""Small kernels, compiled here without a GPU, and read."""

from __future__ import annotations

from functools import cache

import pytest

from kernelwright.core.errors import MissingDependency
from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.sass import find_tool, read_cubin

COPY = """
extern "C" __global__ void copy(const {kind}* __restrict__ a, {kind}* b, int n) {{
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) b[i] = a[i];
}}
"""
SGEMM = """
extern "C" __global__ void __launch_bounds__(256{least}) sgemm(
    const float* A, const float* B, float* C, int N, int K) {{
  __shared__ float As[8][128], Bs[8][128];
  float acc[8][8] = {{}};
  const int t = threadIdx.x, tx = t % 16, ty = t / 16;
  A += blockIdx.y * 128 * K; B += blockIdx.x * 128;
  for (int k = 0; k < K; k += 8) {{
    const float4 a = *(const float4*)&A[(t / 2) * K + k + (t % 2) * 4];
    const float4 b = *(const float4*)&B[(k + t / 32) * N + (t % 32) * 4];
    As[(t % 2) * 4 + 0][t / 2] = a.x; As[(t % 2) * 4 + 1][t / 2] = a.y;
    As[(t % 2) * 4 + 2][t / 2] = a.z; As[(t % 2) * 4 + 3][t / 2] = a.w;
    *(float4*)&Bs[t / 32][(t % 32) * 4] = b;
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 8; kk++) {{
      float ra[8], rb[8];
      for (int i = 0; i < 8; i++) {{ ra[i] = As[kk][ty * 8 + i]; rb[i] = Bs[kk][tx * 8 + i]; }}
      for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) acc[i][j] += ra[i] * rb[j];
    }}
    __syncthreads();
  }}
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) C[(blockIdx.y * 128 + ty * 8 + i) * N + blockIdx.x * 128 + tx * 8 + j] = acc[i][j];
}}
"""
INDEXED = """
extern "C" __global__ void indexed(float* a, const int* at, int n) {
  float x[64], s = 0;
  for (int i = 0; i < 64; i++) x[i] = a[i * n];
  for (int i = 0; i < n; i++) { s += x[at[i] & 63]; x[at[i + 1] & 63] = s; }
  a[threadIdx.x] = s;
}
"""
SEVERAL = """
__device__ __noinline__ float slow(float x, int n) { for (int i = 0; i < n; i++) x = x * x + __expf(x); return x; }
extern "C" __global__ void empty() {}
extern "C" __global__ void calls(float* x, int n) {
  x[threadIdx.x] = slow(x[threadIdx.x], n) + slow(x[threadIdx.x + 1], n);
}
extern "C" __global__ void predicated(float* x, int n) {
  float s = 0;
  for (int i = 0; i < n; i++) if (x[i] > 0) s += x[i];
  x[0] = s;
}
extern "C" __global__ void nested(float* x, int n, int m) {
  for (int i = 0; i < n; i++) {
    float s = 0;
#pragma unroll 1
    for (int j = 0; j < m; j++) s = fmaf(s, x[j], 1.0f);
    x[i] = s;
  }
}
extern "C" __global__ void dynamic(float* x) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[threadIdx.x ^ 1];
}
"""
MMA = """
extern "C" __global__ void mma(const uint4* g, float* out, int n) {
  __shared__ __align__(16) unsigned sm[2048];
  float d[4] = {};
  const unsigned base = (unsigned)__cvta_generic_to_shared(sm);
#pragma unroll 1
  for (int k = 0; k < n; k++) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(base + threadIdx.x * 16), "l"(g + k * 32 + threadIdx.x));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;");
    __syncthreads();
    unsigned a[4], b[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(base + threadIdx.x * 16));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1]) : "r"(base + 512 + threadIdx.x % 16 * 16));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];
}
"""
WGMMA = """
extern "C" __global__ void __launch_bounds__(128) wgmma(const unsigned char* g, float* out, int n) {
  __shared__ __align__(1024) unsigned char tile[8192];
  __shared__ unsigned long long bar;
  const unsigned at = (unsigned)__cvta_generic_to_shared(tile), b = (unsigned)__cvta_generic_to_shared(&bar);
  float d[4] = {};
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
  __syncthreads();
  for (int k = 0; k < n; k++) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 8192;" :: "r"(b) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 8192, [%2];"
                   :: "r"(at), "l"(g + k * 8192), "r"(b) : "memory");
    }
    asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra WAIT; }"
                 :: "r"(b), "r"(k & 1) : "memory");
    const unsigned long long desc = 0x4000004000010000ull | (at & 0x3FFFF) >> 4;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc), "l"(desc + 256));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];
}
"""
SOURCES = {
    "copy16": COPY.format(kind="float4"),
    "copy4": COPY.format(kind="float"),
    "sgemm": SGEMM.format(least=""),
    "spilling": SGEMM.format(least=", 8"),
    "indexed": INDEXED,
    "several": SEVERAL,
    "mma": MMA,
    "wgmma": WGMMA,
}


@cache
def _cubin(name: str, arch: str) -> bytes:
    return compile_cubin(SOURCES[name], arch).code


@pytest.fixture(scope="session")
def cubin(private_cache):
    """The machine code of one of the sources here."""
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    return _cubin


@pytest.fixture(scope="session")
def code(cubin):
    """One of the sources here, read: its first kernel, or the one that is named."""
    try:
        find_tool("nvdisasm")
    except MissingDependency as fault:
        pytest.skip(str(fault))

    @cache
    def read(name, arch="sm_90a", kernel=None, **known):
        return read_cubin(cubin(name, arch), kernel, **known)[0]

    return read
