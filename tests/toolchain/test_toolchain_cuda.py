import pytest

from kernelwright.core.errors import CompileError, DeviceError, MissingDependency
from kernelwright.toolchain import cuda

SOURCE = (
    'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1.0f; asm volatile("wgmma.fence.sync.aligned;"); }'
)


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    return tmp_path


def test_hopper_code_compiles_without_a_gpu(compiler):
    assert cuda.compile_cubin(SOURCE).startswith(b"\x7fELF")


def test_the_same_source_is_compiled_once(compiler, monkeypatch):
    first = cuda.compile_cubin(SOURCE)
    monkeypatch.setattr(cuda._cuda_core(), "Program", lambda *_: pytest.fail("compiled again"))
    assert cuda.compile_cubin(SOURCE) == first


def test_another_architecture_is_other_code(compiler):
    plain = 'extern "C" __global__ void f(float* x) { x[0] = 1; }'
    assert cuda.compile_cubin(plain, "sm_80") != cuda.compile_cubin(plain, "sm_90a")


def test_what_the_compiler_refuses_is_said_in_its_words(compiler):
    with pytest.raises(CompileError, match='identifier "nothing" is undefined'):
        cuda.compile_cubin('extern "C" __global__ void f(float* x) { x[0] = nothing; }')
    assert not list(compiler.rglob("*.cubin"))


def test_without_cuda_core_the_install_line_is_printed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cuda.core", None)
    with pytest.raises(MissingDependency, match="cuda-core") as caught:
        cuda.compile_cubin(SOURCE)
    assert "pip install" in caught.value.next


def test_without_a_device_nothing_hangs(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="no CUDA device"):
        cuda.CudaKernel(SOURCE, "fill")


@pytest.mark.gpu
@pytest.mark.arch(90)
def test_a_kernel_runs_on_torchs_stream():
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(128, device="cuda")  # a warpgroup, which the fence wants whole
        cuda.CudaKernel(SOURCE, "fill")(1, 128, [x])
        assert x.sum().item() == 128
