"""TMA, clusters, named barriers and wgmma on the CPU."""

import pytest
import torch

from kernelwright.core.errors import CandidateError, UsageError
from kernelwright.toolchain.emulator import EmulatedKernel
from kernelwright.toolchain.emulator.tensor_map import pack_tensor_map

COPY = """#include "kw/ptx/cp_async_bulk_tensor.cuh"
#include "kw/ptx/mbarrier.cuh"
extern "C" __global__ void copy(const __grid_constant__ kw::TensorMap in, const __grid_constant__ kw::TensorMap out,
                                float* shared, int x, int y) {
    __shared__ __align__(1024) float tile[16 * 32];
    __shared__ unsigned long long full;
    if (threadIdx.x == 0) kw::mbarrier_init(&full);
    __syncthreads();
    if (threadIdx.x == 0) {
        kw::mbarrier_arrive_expect_tx(&full, sizeof tile);
        kw::cp_async_bulk_tensor_2d(tile, &in, &full, x, y);
    }
    kw::mbarrier_wait_parity(&full, 0);
    for (int i = threadIdx.x; i < 16 * 32; i += 32) shared[i] = tile[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        kw::cp_async_bulk_tensor_2d_store(&out, tile, x, y);
        kw::cp_async_bulk_commit_group();
        kw::cp_async_bulk_wait_group_read<0>();
    }
}
"""
CLUSTER = """#include "kw/ptx/cluster.cuh"
extern "C" __global__ void rotate(const float4* in, float4* out) {
    __shared__ float4 held[32];
    const unsigned rank = kw::cluster_ctarank(), next = (rank + 1) % 4;
    held[threadIdx.x] = in[blockIdx.x * 32 + threadIdx.x];
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
    out[blockIdx.x * 32 + threadIdx.x] = kw::ld_shared_cluster_v4(kw::mapa(&held[threadIdx.x], next));
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
}
"""
MULTICAST = """#include "kw/ptx/cluster.cuh"
#include "kw/ptx/cp_async_bulk_tensor.cuh"
extern "C" __global__ void spread(const __grid_constant__ kw::TensorMap in, float* out) {
    __shared__ __align__(128) float tile[2 * 32];
    __shared__ unsigned long long full;
    const unsigned rank = kw::cluster_ctarank();
    if (threadIdx.x == 0) kw::mbarrier_init(&full);
    kw::barrier_cluster_arrive_init();
    kw::barrier_cluster_wait();
    if (threadIdx.x == 0) {
        kw::mbarrier_arrive_expect_tx(&full, sizeof tile);
        kw::cp_async_bulk_tensor_2d_multicast(tile + 32 * rank, &in, &full, 3, 0, blockIdx.x);
    }
    kw::mbarrier_wait_parity(&full, 0);
    for (int i = threadIdx.x; i < 64; i += 32) out[blockIdx.x * 64 + i] = tile[i];
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
}
"""
PRODUCT = """#include "kw/mma/shared_matrix.cuh"
#include "kw/ptx/cp_async_bulk_tensor.cuh"
#include "kw/ptx/mbarrier.cuh"
#include "kw/ptx/wgmma.cuh"
constexpr int kN = 32;
using A = kw::SharedMatrix<{bytes}, {transpose_a}>;
using B = kw::SharedMatrix<{bytes}, {transpose_b}>;
// (64, 128 bytes) by (kN, 128 bytes), and with `twice` by zeros, loaded while the wgmmas before may run.
extern "C" __global__ void product(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                                   float* out, int twice) {{
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ unsigned long long full;
    if (threadIdx.x == 0) kw::mbarrier_init(&full);
    __syncthreads();
    float d[kN / 2];
    for (int i = 0; i <= twice; ++i) {{
        if (threadIdx.x == 0) {{
            kw::mbarrier_arrive_expect_tx(&full, (64 + {rows_b}) * 128);
            kw::cp_async_bulk_tensor_2d(shared, &a, &full, 4096 * i, 0);
            kw::cp_async_bulk_tensor_2d(shared + 64 * 128, &b, &full, 4096 * i, 0);
        }}
        kw::mbarrier_wait_parity(&full, i);
        kw::wgmma_fence();
        for (int step = 0; step < 4; ++step)
            kw::wgmma_mma_async<kw::{kind_a}, kw::{kind_b}, kN, {transpose_a}, {transpose_b}>::issue(
                d, kw::advance(A::descriptor(shared), A::k_offset(step)),
                kw::advance(B::descriptor(shared + 64 * 128), B::k_offset(step)), i > 0 || step > 0);
        kw::wgmma_commit_group();
        if ({waits} || i == twice) kw::wgmma_wait_group<0>();
        __syncthreads();
    }}
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    out += blockIdx.x * 64 * kN;
    for (int i = 0; i < kN / 2; ++i) out[(row + i / 2 % 2 * 8) * kN + i / 4 * 8 + column + i % 2] = d[i];
}}
"""
KINDS = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


def tensor_map(matrix, box, swizzle=128):
    rows, columns = matrix.shape
    pitch = matrix.stride(0) * matrix.element_size()
    return pack_tensor_map(matrix.data_ptr(), matrix.element_size(), (columns, rows), (pitch,), box, swizzle)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (16, 8), (-4, 60)])
def test_tma_swizzles_fills_with_zeros_and_clips(x, y):
    matrix, out, shared = torch.randn(70, 40), torch.zeros(70, 40), torch.zeros(16, 8, 4)
    EmulatedKernel(COPY, "copy")(1, 32, [tensor_map(matrix, (32, 16)), tensor_map(out, (32, 16)), shared, x, y])
    padded = torch.zeros(100, 100)
    padded[4:74, 4:44] = matrix
    tile = padded[4 + y : 20 + y, 4 + x : 36 + x]
    order = torch.arange(8) ^ torch.arange(16)[:, None] % 8
    assert torch.equal(shared.gather(1, order[..., None].expand(16, 8, 4)).view(16, 32), tile)
    inside = torch.zeros(70, 40)
    inside[max(y, 0) : y + 16, max(x, 0) : x + 32] = 1
    assert torch.equal(out, matrix * inside)


def test_the_first_column_of_a_swizzled_tile_is_aligned_to_16_bytes():
    arguments = [tensor_map(torch.randn(70, 40), (32, 16)), tensor_map(torch.randn(70, 40), (32, 16)), torch.zeros(512)]
    with pytest.raises(CandidateError, match="not aligned to 16 bytes"):
        EmulatedKernel(COPY, "copy")(1, 32, [*arguments, 6, 0])


def test_a_tile_is_nan_until_its_barrier_completes():
    text = COPY.replace("kw::mbarrier_wait_parity(&full, 0);", "").replace("__syncthreads();\n    if", "if", 1)
    matrix, shared = torch.randn(16, 32), torch.zeros(512)
    arguments = [tensor_map(matrix, (32, 16)), tensor_map(matrix, (32, 16)), shared, 0, 0]
    EmulatedKernel(text, "copy")(1, 32, arguments)
    assert shared[0].isnan()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 8}, "address"),
        ({"strides": (40,)}, "strides"),
        ({"box": (2, 16)}, "rows of a tile are multiples"),
        ({"box": (64, 16)}, "more than its swizzle"),
        ({"box": (32, 257)}, "1 to 256"),
        ({"sizes": (0, 4)}, "at least 1"),
    ],
)
def test_a_tensor_map_that_tma_refuses(change, message):
    arguments = {"address": 4096, "element_bytes": 4, "sizes": (64, 64), "strides": (256,), "box": (32, 16)} | change
    with pytest.raises(UsageError, match=message):
        pack_tensor_map(**arguments)


def test_blocks_of_a_cluster_read_each_others_shared_memory():
    x, out = torch.randn(3, 4, 32, 4), torch.zeros(3, 4, 32, 4)
    EmulatedKernel(CLUSTER, "rotate")(12, 32, [x, out], cluster=4)
    assert torch.equal(out, x.roll(-1, 1))


def test_shared_memory_of_a_block_that_has_exited():
    last_barrier = "kw::barrier_cluster_arrive();\n    kw::barrier_cluster_wait();\n}"
    text = CLUSTER.replace("    " + last_barrier, "}").replace("next = (rank + 1) % 4", "next = (rank + 3) % 4")
    with pytest.raises(CandidateError, match="shared memory of block 3 of the cluster, which has exited"):
        EmulatedKernel(text, "rotate")(4, 32, [torch.randn(4, 32, 4), torch.zeros(4, 32, 4)], cluster=4)


def test_a_cluster_barrier_that_a_block_leaves_out_is_a_deadlock():
    text = CLUSTER.replace("kw::barrier_cluster_arrive();", "if (rank > 0) kw::barrier_cluster_arrive();", 1)
    with pytest.raises(CandidateError, match="128 of 128 threads wait at a barrier of the cluster in line 7"):
        EmulatedKernel(text, "rotate")(4, 32, [torch.randn(4, 32, 4), torch.zeros(4, 32, 4)], cluster=4)


@pytest.mark.parametrize(("grid", "threads"), [(6, 32), (4, 33)])
def test_clusters_that_do_not_divide_the_launch(grid, threads):
    with pytest.raises(UsageError, match="do not divide"):
        EmulatedKernel(CLUSTER, "rotate")(grid, threads, [torch.zeros(4), torch.zeros(4)], cluster=4)


def test_multicast_writes_to_every_block_and_its_barrier():
    x, out = torch.randn(4, 32), torch.zeros(4, 2, 32)
    EmulatedKernel(MULTICAST, "spread")(4, 32, [tensor_map(x, (32, 1), 0), out], cluster=2)
    assert torch.equal(out.view(2, 2, 2, 32), x.view(2, 1, 2, 32).expand(2, 2, 2, 32))


def test_named_barriers_and_votes_of_a_block():
    text = """#include "kw/ptx/shared.cuh"
extern "C" __global__ void handover(int* out) {
    __shared__ int value[1];
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) value[0] = 7;
        kw::bar_arrive(3, 64);
    } else if (threadIdx.x < 64) {
        kw::bar_sync(3, COUNT);
        out[threadIdx.x] = value[0];
    }
    const int any = __syncthreads_or(threadIdx.x == 95), none = __syncthreads_or(false);
    if (threadIdx.x < 32) out[threadIdx.x] = any + 2 * none;
}
"""
    out = torch.zeros(64, dtype=torch.int32)
    EmulatedKernel(text.replace("COUNT", "64"), "handover")(1, 96, [out])
    assert out.tolist() == [1] * 32 + [7] * 32
    with pytest.raises(CandidateError, match="barrier 3 of 96 and of 64 threads"):
        EmulatedKernel(text.replace("COUNT", "96"), "handover")(1, 96, [out])


def multiply(kind_a, kind_b, transpose_a, transpose_b, *, waits=True, twice=0, blocks=1):
    a, b = (
        torch.randn(rows, 128 // KINDS[kind].itemsize).to(KINDS[kind]) for rows, kind in ((64, kind_a), (32, kind_b))
    )
    size, rows_b = a.element_size(), 64 if transpose_b else 32
    text = PRODUCT.format(
        bytes=size, kind_a=kind_a, kind_b=kind_b, transpose_a=int(transpose_a), transpose_b=int(transpose_b),
        rows_b=rows_b, waits=int(waits),
    )  # fmt: skip
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]
    wide_b = torch.cat([b.view(bits), torch.zeros(rows_b - 32, b.shape[1], dtype=bits)])
    stored = [
        (one.mT if is_transposed else one).contiguous()
        for one, is_transposed in ((a.view(bits), transpose_a), (wide_b, transpose_b))
    ]
    maps = [tensor_map(one, (128 // size, one.shape[0])) for one in stored]
    out = torch.zeros(blocks, 64, 32)
    EmulatedKernel(text, "product")(blocks, 128, [*maps, out, twice], shared_bytes=128 * 128)
    if kind_a == "tf32":
        a, b = (((one.view(torch.int32) & ~0x1FFF).view(torch.float32)) for one in (a, b))
    return out, (a.double() @ b.double().mT).expand(blocks, 64, 32)


@pytest.mark.parametrize(
    ("kind_a", "kind_b", "transpose_a", "transpose_b"),
    [
        *(("bf16", "bf16", a, b) for a in (False, True) for b in (False, True)),
        ("f16", "f16", False, True),
        ("tf32", "tf32", False, False),
        ("e4m3", "e4m3", False, False),
        ("e5m2", "e4m3", False, False),
    ],
)
def test_wgmma(kind_a, kind_b, transpose_a, transpose_b):
    out, expected = multiply(kind_a, kind_b, transpose_a, transpose_b)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)


def test_a_buffer_that_is_loaded_again_while_wgmma_reads_it():
    """A buffer that wgmma may still read is not to be loaded again."""
    out, expected = multiply("bf16", "bf16", False, False, twice=1, blocks=8)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)
    out, expected = multiply("bf16", "bf16", False, False, twice=1, blocks=8, waits=False)
    wrong = (out.double() - expected).abs().amax((1, 2)) > 1
    assert wrong.any()
