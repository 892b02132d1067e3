"""Tensor maps of CUDA C++ candidates: what a header declares, what TMA cannot address, and copies."""

from pathlib import Path

import pytest
import torch

from kernelwright.core.errors import DeviceError, SignatureError
from kernelwright.problems import Problem, cuda, load_candidate
from kernelwright.problems.gpu_requirement import find_gpu_requirement
from kernelwright.problems.header import parse_header
from kernelwright.problems.map_limits import find_map_fault
from kernelwright.toolchain.cuda import driver

PAGE = Path(__file__).parents[2] / "docs" / "candidates.md"
COPY = """// kw: entry  copy
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: map    x_map: x[32, 32]
// kw: map    out_map: out[32, 32] swizzle none
// kw: grid   cdiv(N, 32), cdiv(M, 32)
// kw: block  32
// kw: args   x_map, out_map, N
#include "kw/ptx/cp_async_bulk_tensor.cuh"
#include "kw/ptx/mbarrier.cuh"

extern "C" __global__ void copy(const __grid_constant__ kw::TensorMap x_map,
                                const __grid_constant__ kw::TensorMap out_map, int N) {
    __shared__ __align__(1024) float swizzled[32][32], plain[32][32];
    __shared__ unsigned long long full;
    const int x = blockIdx.x * 32, y = blockIdx.y * 32, row = threadIdx.x;
    if (row == 0) {
        kw::mbarrier_init(&full);
        kw::fence_mbarrier_init();
        kw::mbarrier_arrive_expect_tx(&full, sizeof swizzled);
        kw::cp_async_bulk_tensor_2d(swizzled, &x_map, &full, x, y);
    }
    __syncthreads();
    kw::mbarrier_wait_parity(&full, 0);
    for (int i = 0; i < 32; ++i) plain[row][i] = swizzled[row][(i / 4 ^ row % 8) * 4 + i % 4];
    kw::fence_proxy_async();
    __syncthreads();
    if (row == 0) {
        kw::cp_async_bulk_tensor_2d_store(&out_map, plain, x, y);
        kw::cp_async_bulk_commit_group();
        kw::cp_async_bulk_wait_group_read<0>();
    }
}
"""

IN_PLACE = """// kw: entry  negate
// kw: dims   x: float32[M, N]
// kw: out    x
// kw: map    x_map: x[32, 32]
// kw: grid   cdiv(N, 32), cdiv(M, 32)
// kw: block  32
// kw: args   x_map
#include "kw/ptx/cp_async_bulk_tensor.cuh"
#include "kw/ptx/mbarrier.cuh"

extern "C" __global__ void negate(const __grid_constant__ kw::TensorMap x_map) {
    __shared__ __align__(1024) float tile[32][32];
    __shared__ unsigned long long full;
    const int x = blockIdx.x * 32, y = blockIdx.y * 32;
    if (threadIdx.x == 0) {
        kw::mbarrier_init(&full);
        kw::fence_mbarrier_init();
        kw::mbarrier_arrive_expect_tx(&full, sizeof tile);
        kw::cp_async_bulk_tensor_2d(tile, &x_map, &full, x, y);
    }
    __syncthreads();
    kw::mbarrier_wait_parity(&full, 0);
    for (int i = 0; i < 32; ++i) tile[i][threadIdx.x] = -tile[i][threadIdx.x];
    kw::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        kw::cp_async_bulk_tensor_2d_store(&x_map, tile, x, y);
        kw::cp_async_bulk_commit_group();
        kw::cp_async_bulk_wait_group_read<0>();
    }
}
"""
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def load(tmp_path):
    def load(source, device="cpu", x=None):
        path = tmp_path / "copy.cu"
        path.write_text(source)
        problem = Problem.from_callable(lambda x: x.clone(), torch.randn(70, 68) if x is None else x)
        return load_candidate(str(path), problem, device).program

    return load


def test_a_map_names_a_tensor_a_box_and_a_swizzle():
    header = parse_header(COPY, "copy.cu")
    x_map, out_map = header.maps.values()
    assert (x_map.name, x_map.tensor, x_map.swizzle, len(x_map.box)) == ("x_map", "x", 128, 2)
    assert (out_map.swizzle, out_map.line) == (0, 5)
    assert {"x", "out"} <= header.passed_names


def test_a_gpu_without_tma_is_refused(monkeypatch, load):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (8, 9))
    monkeypatch.setattr(cuda, "_sm_count", lambda device: 1)
    monkeypatch.setattr(cuda.CudaProgram, "to", lambda program, device: program)
    with pytest.raises(DeviceError, match=r"copy.cu needs TMA: run it on a GPU of compute capability 9\.0 or later"):
        load(COPY, "cuda")


@pytest.mark.parametrize(
    ("capability", "tma", "wgmma"),
    [(None, False, False), ((8, 9), False, False), ((9, 0), True, True), ((10, 0), True, False)],
)
def test_wgmma_needs_hopper_and_tma_a_later_gpu_too(monkeypatch, tmp_path, capability, tma, wgmma):
    monkeypatch.setattr("torch.cuda.is_available", lambda: capability is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    copy, product = tmp_path / "copy.cu", tmp_path / "product.cu"
    copy.write_text(COPY)
    (tmp_path / "tile.cuh").write_text('#include "kw/ptx/wgmma.cuh"\n')
    product.write_text('#include "tile.cuh"\n')
    assert find_gpu_requirement([copy]).is_met() == tma
    assert find_gpu_requirement([copy, product]).is_met() == wgmma


WRONG = [
    (("x_map: x[32, 32]", "x_map: y[32, 32]"), "y is not a tensor of the program; its tensors are x", 4),
    (("x_map: x[32, 32]", "x_map: x"), "must be like `x_map: x[128, 64]`", 4),
    (("x_map: x[32, 32]", "x_map: x[32, 32] swizzle 48"), "swizzle '48' is not one of none, 32, 64, 128", 4),
    (("x_map: x[32, 32]", "x_map: x[32, 64]"), "a row of the box is 256 bytes, more than the swizzle of 128", 4),
    (("x_map: x[32, 32]", "x_map: x[512, 32]"), "a box is 1 to 256 elements along a dimension, not 512", 4),
    (("x_map: x[32, 32]", "x_map: x[32, 3]"), "a row of the box is 12 bytes, not a multiple of 16", 4),
    (("x_map: x[32, 32]", "x_map: x[2, 32, 32]"), "a box of 3 dimensions does not fit a tensor of 2", 4),
    (("x_map: x[32, 32]", "x_map: x[R, 32]"), "cannot evaluate R", 4),
    (("map    x_map: x[32, 32]", "map    x: x[32, 32]"), "map x has the name of a tensor or number", 4),
    (("out_map", "out"), "map out has the name of a tensor or number", 5),
    (("map    x_map: x[32, 32]", "map    N: x[32, 32]"), "map N has the name of a tensor or number", 4),
    (("// kw: grid", "// kw: let x_map = 1\n// kw: grid"), "map x_map has the name of a tensor or number", 4),
    (("// kw: grid", "// kw: temp x_map: uint8[1]\n// kw: grid"), "map x_map has the name of a tensor or number", 4),
    (("map    out_map: out", "map    x_map: out"), "map x_map is declared twice", 5),
    (("x_map, out_map, N", "N, out_map, x_map"), "is passed as a number, but the parameter is `const", 12),
    (("x_map, out_map, N", "x_map, out_map, x_map"), "x_map is a tensor map, but the parameter is `int N`", 12),
    (("x_map, out_map, N", "x_map, out, N"), "out is a float32 tensor, but the parameter is `const", 12),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message", "line"), WRONG, ids=[f"{change[1]}: {message}" for change, message, _ in WRONG]
)
def test_an_invalid_map_is_named_with_its_line(load, change, message, line):
    with pytest.raises(SignatureError) as caught:
        load(COPY.replace(*change))
    assert message in caught.value.message
    assert caught.value.where.endswith(f"copy.cu:{line}")


def test_a_pitch_that_tma_cannot_address_is_named(load):
    with pytest.raises(SignatureError, match="dimension 0 has a pitch of 276 bytes, not a multiple of 16") as caught:
        load(COPY, x=torch.randn(70, 69))
    assert caught.value.where.endswith("copy.cu:4")


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("tensor", "box", "fault"),
    [
        (torch.empty(4, 8, 64, dtype=torch.bfloat16), (1, 8, 64), ""),
        (torch.empty(1, 7, dtype=torch.bfloat16), (1, 64), ""),
        (torch.empty(0, 7, dtype=torch.bfloat16), (1, 64), ""),
        (torch.empty(8, 7, dtype=torch.float64), (1, 64), "its dtype is not one of uint8, float16, bfloat16, float32"),
        (torch.empty(8, 64).T, (8, 4), "its last dimension has stride 64, not 1"),
        (torch.empty(1, 64).expand(8, 64), (8, 32), "dimension 0 has a pitch of 0 bytes, not a multiple of 16"),
        (meta(2**32, dtype=torch.uint8), (128,), ""),
        (meta(2**32 + 16, dtype=torch.uint8), (128,), "dimension 0 has 4294967312 elements, more than 4294967296"),
        (meta(2, 64).as_strided((2, 64), (2**38 - 4, 1)), (8, 32), ""),
        (
            meta(2, 64).as_strided((2, 64), (2**38, 1)),
            (8, 32),
            "dimension 0 has a pitch of 1099511627776 bytes, not below 1099511627776",
        ),
        (meta(1, 64).as_strided((1, 64), (2**38, 1)), (8, 32), ""),
    ],
)
def test_limits_of_tma(tensor, box, fault):
    assert find_map_fault(tensor, box, 128) == fault


def test_equal_maps_are_encoded_once_and_unused_strides_replaced(monkeypatch):
    encoded = []
    monkeypatch.setattr(driver, "encode_tensor_map", lambda destination, *map: encoded.append((destination % 64, map)))
    driver.tensor_map.cache_clear()
    first = driver.tensor_map(4096, "bfloat16", (3, 1, 72), (72, 5, 1), (1, 64, 64), 128)
    assert driver.tensor_map(4096, "bfloat16", (3, 1, 72), (72, 5, 1), (1, 64, 64), 128) is first
    assert encoded == [(0, (4096, "bfloat16", (72, 1, 3), [144, 144], (64, 64, 1), 128))]
    driver.tensor_map(4096, "bfloat16", (0, 72), (72, 1), (64, 64), 128)
    assert len(encoded) == 1
    driver.tensor_map.cache_clear()


def aligned_and_misaligned(rows, columns, device):
    """Views that begin at a multiple of 16 bytes and 4 bytes after one."""
    memory = torch.randn(rows * columns + 4, device=device)
    first = -memory.data_ptr() // 4 % 4
    for skipped in (first, first + 1):
        yield memory[skipped:][: rows * columns].view(rows, columns)


@pytest.mark.parametrize("device", DEVICES)
def test_a_misaligned_input_is_copied(load, device):
    program = load(COPY, device)
    for x in aligned_and_misaligned(70, 68, device):
        assert torch.equal(program(x), x)


@pytest.mark.parametrize("device", DEVICES)
def test_a_misaligned_output_in_place_is_copied_back(load, device):
    program = load(IN_PLACE, device)
    for x in aligned_and_misaligned(70, 68, device):
        expected = -x
        assert program(x) is x
        assert torch.equal(x, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_a_strided_input_must_begin_at_a_multiple_of_16_bytes(load, device):
    program = load(COPY.replace("// kw: grid", "// kw: strided x\n// kw: grid"), device)
    x = torch.randn(50, 200, device=device)
    assert torch.equal(program(x[:, 8:72]), x[:, 8:72])
    with pytest.raises(SignatureError, match=r"x begins at .*: TMA addresses multiples of 16 bytes") as caught:
        program(x[:, 1:65])
    assert caught.value.where.endswith("copy.cu:4")


def test_a_cpp_source_has_no_maps(tmp_path):
    path = tmp_path / "copy.cpp"
    path.write_text(COPY)
    with pytest.raises(SignatureError, match=r"`kw: map` is for CUDA C\+\+"):
        load_candidate(str(path), Problem.from_callable(lambda x: x.clone(), torch.randn(4, 4)))


@pytest.mark.parametrize("device", DEVICES)
def test_copies_through_maps_of_an_input_and_an_output(load, device):
    program = load(COPY, device)
    for shape in ((70, 68), (1, 4), (32, 32), (257, 132), (0, 4)):
        x = torch.randn(shape, device=device)
        assert torch.equal(program(x), x)
    x = torch.randn(40, 2 * 36, device=device)[:, ::2]  # made contiguous
    assert torch.equal(program(x), x)


def documented_source():
    return PAGE.read_text().split("```cuda\n")[2].split("```")[0]


@pytest.mark.parametrize("device", DEVICES)
def test_the_example_in_the_documentation_runs(load, device):
    program, x = load(documented_source(), device), torch.randn(70, 68, device=device)
    assert torch.equal(program(x), -x)


@pytest.mark.parametrize("source", [COPY, IN_PLACE, documented_source()], ids=["copy", "in_place", "documented"])
def test_sources_that_are_emulated_compile_for_a_gpu(source):
    from kernelwright.toolchain.cuda import compile_cubin

    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    assert compile_cubin(source).warnings == ""


@pytest.mark.gpu
def test_a_graph_repeats_a_launch_with_maps(load):
    program, x = load(COPY, "cuda"), torch.randn(70, 68, device="cuda")
    program(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = program(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(out, x)
