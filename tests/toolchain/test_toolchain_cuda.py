"""CUDA C++ to machine code, without a GPU; and its launch, where there is one."""

import ctypes
import multiprocessing

import numpy as np
import pytest

from kernelwright.core.errors import CompileError, DeviceError, MissingDependency, UsageError
from kernelwright.toolchain import cuda
from kernelwright.toolchain.cuda import compiler, driver, launcher

SOURCE = (
    'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1.0f; asm volatile("wgmma.fence.sync.aligned;"); }'
)
PLAIN = 'extern "C" __global__ void f(float* x) { x[0] = 1; }'


@pytest.fixture
def nvrtc(tmp_path, monkeypatch):
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    return tmp_path


def test_hopper_code_compiles_without_a_gpu(nvrtc):
    assert cuda.compile_cubin(SOURCE).code.startswith(b"\x7fELF")


def test_the_same_source_is_compiled_once(nvrtc, monkeypatch):
    first = cuda.compile_cubin(SOURCE)
    monkeypatch.setattr(compiler.import_cuda_core(), "Program", lambda *_: pytest.fail("compiled again"))
    assert cuda.compile_cubin(SOURCE) == first


@pytest.mark.parametrize(
    "changed",
    [{"arch": "sm_80"}, {"defines": {"VALUE": "2"}}, {"max_registers": 32}, {"name": "other.cu"}],
    ids=lambda one: next(iter(one)),
)
def test_whatever_it_is_made_from_makes_other_entries(nvrtc, changed):
    cuda.compile_cubin(PLAIN)
    cuda.compile_cubin(PLAIN, **changed)
    assert len(list(nvrtc.rglob("*.sha256"))) == 2


def test_a_define_is_a_macro(nvrtc):
    with pytest.raises(CompileError, match="VALUE"):
        cuda.compile_cubin(PLAIN.replace("= 1", "= VALUE"))
    assert cuda.compile_cubin(PLAIN.replace("= 1", "= VALUE"), defines={"VALUE": "2"}).code


def test_a_header_is_found_and_its_content_counts(nvrtc, tmp_path):
    folder = tmp_path / "mine"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.cuh").write_text('#include "deep/two.cuh"\n')
    (folder / "deep" / "two.cuh").write_text('#include "three.cuh"\n')
    (folder / "deep" / "three.cuh").write_text("#define VALUE 1\n")
    source = '#include "one.cuh"\n' + PLAIN.replace("= 1", "= VALUE")
    first = cuda.compile_cubin(source, include_dirs=[folder]).code
    (folder / "deep" / "three.cuh").write_text("#define VALUE 7\n")
    assert cuda.compile_cubin(source, include_dirs=[folder]).code != first


def test_a_file_that_was_cut_short_is_made_again(nvrtc):
    code = cuda.compile_cubin(PLAIN).code
    (path,) = nvrtc.rglob("*.cubin")
    path.write_bytes(code[:100])
    assert cuda.compile_cubin(PLAIN).code == code
    assert path.read_bytes() == code


def _compile(_):
    return len(cuda.compile_cubin(PLAIN).code)


def test_two_processes_may_compile_the_same_source(nvrtc):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert len(set(pool.map(_compile, range(4)))) == 1
    assert not list(nvrtc.rglob(".partial*"))


def test_what_the_compiler_refuses_is_said_with_the_line_that_it_means(nvrtc):
    source = 'extern "C" __global__ void f(float* x) {\n    x[0] = nothing;\n    y = 2;\n}\n'
    with pytest.raises(CompileError, match='identifier "nothing" is undefined') as caught:
        cuda.compile_cubin(source, name="my folder/kernel.cu")
    assert "x[0] = nothing;" in caught.value.message
    assert 'identifier "y" is undefined' in caught.value.message
    assert caught.value.where == "my folder/kernel.cu:2"
    assert not list(nvrtc.rglob("*.cubin"))


def test_a_header_that_is_not_there_is_named(nvrtc):
    with pytest.raises(CompileError, match=r'"nowhere\.cuh"') as caught:
        cuda.compile_cubin('#include "nowhere.cuh"\n')
    assert caught.value.where == "kernel.cu:1"


def test_too_much_shared_memory_is_the_compilers_word(nvrtc):
    body = "__shared__ float s[70000]; s[threadIdx.x] = x[1]; __syncthreads(); x[0] = s[5];"
    with pytest.raises(CompileError, match="too much shared data"):
        cuda.compile_cubin(PLAIN.replace("x[0] = 1;", body))


def test_warnings_are_kept(nvrtc):
    source = PLAIN.replace("x[0]", "int unused; x[0]")
    assert "unused" in cuda.compile_cubin(source).warnings
    assert "unused" in cuda.compile_cubin(source).warnings


@pytest.mark.parametrize("arch", ["sm_9", "hopper", "sm_90a --evil", ""])
def test_an_architecture_that_cannot_be_is_refused(nvrtc, arch):
    with pytest.raises(UsageError, match="no architecture"):
        cuda.compile_cubin(PLAIN, arch)


def test_without_cuda_core_the_install_line_is_printed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cuda.core", None)
    with pytest.raises(MissingDependency, match="cuda-core") as caught:
        cuda.compile_cubin(SOURCE)
    assert "pip install" in caught.value.next


def test_without_a_device_nothing_hangs(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="no CUDA device"):
        launcher.CudaKernel(SOURCE, "fill")


@pytest.mark.gpu
@pytest.mark.arch(90)
def test_a_kernel_runs_on_torchs_stream():
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(128, device="cuda")  # a warpgroup, which the fence wants whole
        launcher.CudaKernel(SOURCE, "fill")(1, 128, [x])
        assert x.sum().item() == 128


MIXED = """extern "C" __global__ void mixed(float* out, int whole, float part, long long large, double fine, bool on) {
    extern __shared__ float held[];
    held[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = held[blockDim.x - 1] + whole + part + large + fine + on;
}
extern "C" __global__ void together(int* out) {
    unsigned rank, count;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    out[blockIdx.x] = rank * 100 + count;
}
"""


@pytest.mark.gpu
def test_numbers_pass_as_the_kernel_takes_them_and_shared_memory_may_be_large():
    import torch

    out = torch.zeros(64, device="cuda")
    kernel = launcher.CudaKernel(MIXED, "mixed")
    for shared_bytes in (128, 100_000):
        kernel((2, 1), (32,), [out, 1, 0.5, 2**20, 0.25, True], shared_bytes)
        assert out.tolist() == [31 + 1 + 0.5 + 2**20 + 0.25 + 1] * 64
    for wrong in ([out, 1], [out, 2**31, 1.0, 2, 0.25, True], [out.cpu(), 1, 0.5, 2, 0.25, True], [1.0] * 6, [out] * 6):
        with pytest.raises(UsageError):
            kernel(2, 32, wrong, 128)
    with pytest.raises(UsageError, match="shared memory"):
        kernel(2, 32, [out, 1, 0.5, 2, 0.25, True], 10**6)
    with pytest.raises(UsageError, match=r"launch of .* failed"):
        kernel(2, 2048, [out, 1, 0.5, 2, 0.25, True], 128)


@pytest.mark.gpu
@pytest.mark.arch(90)
def test_clusters_and_graphs():
    import torch

    out = torch.zeros(8, dtype=torch.int32, device="cuda")
    kernel = launcher.CudaKernel(MIXED, "together")
    kernel(8, 1, [out], cluster=4)
    assert out.tolist() == [0 + 4, 104, 204, 304] * 2
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(8, 1, [out], cluster=2)
    out.zero_()
    graph.replay()
    assert out.tolist() == [2, 102] * 4


@pytest.mark.gpu
def test_a_launch_is_made_again_of_addresses_and_typed_numbers():
    import torch

    out, other = torch.zeros(2, 64, device="cuda")
    kernel, given = launcher.CudaKernel(MIXED, "mixed"), [out, 1, 0.5, 2**20, 0.25, True]
    kernel(2, 32, given, 128)
    address, *numbers = kernel.convert_scalars(given)
    assert address is out
    kernel.make_launcher(2, 32, 128, 1)(torch.cuda.current_stream().cuda_stream, other.data_ptr(), *numbers)
    assert torch.equal(out, other) and out.all()


SLOW = """#include "kw/ptx/griddepcontrol.cuh"
extern "C" __global__ void slow(int* x, int value) {
    for (long long begin = clock64(); clock64() - begin < 200000;) {}
    x[blockIdx.x] = value;
}
extern "C" __global__ void copied(const int* x, int* y) {
    kw::griddepcontrol_wait();
    y[blockIdx.x] = x[blockIdx.x];
}
"""


@pytest.mark.gpu
@pytest.mark.arch(90)
def test_what_begins_early_finds_what_was_written_before():
    import torch

    slow, copied = (launcher.CudaKernel(SLOW, name) for name in ("slow", "copied"))
    x, y = torch.zeros(2, 4096, device="cuda", dtype=torch.int32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        slow(4096, 1, [x, 1])
        copied(4096, 1, [x, y], use_pdl=True)
    for value in (2, 3):
        slow(4096, 1, [x, value])
        copied.make_launcher(4096, 1, 0, 1, use_pdl=True)(
            torch.cuda.current_stream().cuda_stream, x.data_ptr(), y.data_ptr()
        )
        assert (y == value).all()
        graph.replay()
        assert (y == 1).all()


@pytest.mark.gpu
@pytest.mark.arch(90)
def test_as_many_clusters_run_at_once_as_find_room():
    import torch

    kernel = launcher.CudaKernel(MIXED, "together")
    some, fewer, alone = (kernel.max_active_clusters(1024, 100_000, cluster) for cluster in (2, 4, 1))
    assert alone == 2 * torch.cuda.get_device_properties().multi_processor_count
    assert alone // 2 >= some >= 2 * fewer > 0


@pytest.mark.gpu
def test_machine_code_that_does_not_run_here_is_said():
    with pytest.raises(DeviceError, match="sm_120a"):
        launcher.CudaKernel(cuda.compile_cubin(PLAIN, "sm_120a"), "f")
    with pytest.raises(UsageError, match="no kernel 'g'"):
        launcher.CudaKernel(PLAIN, "g")


def test_the_driver_reads_each_parameter_at_its_own_address(monkeypatch):
    made = {}

    class Launch:
        def __init__(self, function, parameters, **shape):
            made.update(function=function, parameters=parameters, shape=shape)

        def __call__(self, stream):
            sizes = (128, 8, 4, 8)
            made["read"] = [ctypes.string_at(at, size) for at, size in zip(made["parameters"], sizes, strict=True)]

    monkeypatch.setattr(launcher, "DriverLaunch", Launch)
    launch = launcher._MapLaunch(7, (128, 8, 4, 8), (2, 3), 64, 96, 2, False, True)
    first, second = driver.TensorMap(), driver.TensorMap()
    ctypes.memset(second.address, 5, 128)
    for one, filled in ((first, 0), (second, 5)):
        launch(1, (one, 2**40, np.float32(1.5), np.int64(-3)))
        a, b, c, d = made["read"]
        assert a == bytes([filled]) * 128
        assert (int.from_bytes(b, "little"), np.frombuffer(c, "f4")[0], np.frombuffer(d, "i8")[0]) == (2**40, 1.5, -3)
    assert made["function"] == 7
    assert made["shape"] == {
        "grid": (2, 3, 1),
        "block": (64, 1, 1),
        "shared_bytes": 96,
        "cluster": (2, 1, 1),
        "cooperative": False,
        "use_pdl": True,
    }
