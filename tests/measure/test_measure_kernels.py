"""Kernels read out of made-up profiler events: what counts as one, what it is called, what it took."""

from types import SimpleNamespace

import pytest
import torch

from kernelwright.measure.kernels import KernelTime, time_kernels


def event(name, parent=None, start=0, host_us=0.0, device_us=()):
    """A profiler event under `parent`; `device_us` lists how long each kernel took that it launched itself."""
    kernels = [SimpleNamespace(name=f"device kernel {i}", duration=time_us) for i, time_us in enumerate(device_us)]
    made = SimpleNamespace(
        name=name,
        cpu_parent=parent,
        cpu_children=[],
        cpu_time_total=host_us,
        kernels=kernels,
        time_range=SimpleNamespace(start=start),
    )
    if parent is not None:
        parent.cpu_children.append(made)
    return made


REGION = event("Torch-Compiled Region: 0/0")


def inside(name, start=0, host_us=1.0, device_us=()):
    """An event that compiled code made itself."""
    return event(name, event("## Call CompiledFxGraph None ##", REGION), start, host_us, device_us)


@pytest.fixture
def read(monkeypatch):
    """`kernel_times` on a profiler that tells the given runs, one after the other."""

    def kernels(*runs, device="cpu"):
        told = iter(runs)

        class Profiler:
            def __init__(self, activities, acc_events):
                asked = torch.profiler.ProfilerActivity.CUDA in activities
                assert asked == (device == "cuda"), "the device is profiled where the program runs on one"

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.told = next(told)

            def events(self):
                return self.told

        monkeypatch.setattr(torch.profiler, "profile", Profiler)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        return time_kernels(lambda: None, device, passes=len(runs))

    return kernels


def test_a_cpu_kernel_that_inductor_wrote_takes_its_host_time(read):
    fused = inside("graph_3_cpp_fused_add_relu_0", host_us=12.0)
    assert read([fused]) == [KernelTime("fused_add_relu_0", 12.0, is_extern=False)]


def test_a_triton_kernel_takes_its_device_time(read):
    # The host needs 30 us to launch what the device does in 7 us; the device's own event is told a second time.
    launched = inside("triton_poi_fused_relu_0", host_us=30.0, device_us=[7.0])
    on_device = event("triton_poi_fused_relu_0", host_us=0.0)
    assert read([launched, on_device], device="cuda") == [KernelTime("triton_poi_fused_relu_0", 7.0, is_extern=False)]


def test_an_operator_of_the_library_counts_once_with_all_that_it_launches(read):
    # A split product: 20 us in its own kernel, 3 us in that of an operator that it calls.
    product = inside("aten::addmm", device_us=[20.0])
    event("aten::sum", product, device_us=[3.0])
    found = read([product, *product.cpu_children], device="cuda")
    assert found == [KernelTime("addmm", 23.0, is_extern=True)]


@pytest.mark.parametrize("parent", [None, REGION, event("aten::sort", REGION)], ids=lambda e: e.name if e else "none")
@pytest.mark.parametrize("name", ["aten::is_nonzero", "graph_0_cpp_fused_relu_0", "triton_poi_fused_relu_0"])
def test_what_runs_outside_the_compiled_call_is_no_kernel(read, name, parent):
    assert read([event(name, parent, host_us=5.0, device_us=[5.0])], device="cuda") == []


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemsetAsync", "Lazy Function Loading"])
def test_what_the_host_does_to_launch_is_no_kernel(read, name):
    assert read([inside(name, host_us=5.0)], device="cuda") == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mylib::scale", "mylib::scale"),
        ("mylib::my_cpp_scale", "mylib::my_cpp_scale"),
        ("mylib::fused_adam", "mylib::fused_adam"),
        ("aten::_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu"),
    ],
)
def test_every_operator_that_compiled_code_calls_is_called_whatever_its_name(read, name, says):
    assert read([inside(name, host_us=4.0)]) == [KernelTime(says, 4.0, is_extern=True)]


@pytest.mark.parametrize("name", ["scale_kernel_0", "my_fused_kernel_0"])
def test_a_triton_kernel_of_the_persons_own_is_called(read, name):
    assert read([inside(name, device_us=[6.0])], device="cuda") == [KernelTime(name, 6.0, is_extern=True)]


def test_kernels_stand_in_the_order_of_their_launches(read):
    late, early = inside("graph_0_cpp_fused_relu_1", start=20), inside("aten::mm", start=10)
    assert [kernel.name for kernel in read([late, early])] == ["mm", "fused_relu_1"]


def test_each_kernel_takes_the_median_of_its_runs(read):
    runs = [[inside("aten::mm", 0, t), inside("graph_0_cpp_fused_relu_0", 1, 10 * t)] for t in (3.0, 1.0, 2.0)]
    assert [kernel.time_us for kernel in read(*runs)] == [2.0, 20.0]


@pytest.mark.parametrize("odd", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize("others", [[], ["aten::mm"], ["aten::mm", "aten::sort", "aten::copy_"]], ids=len)
def test_a_run_with_other_kernels_than_most_is_left_out(read, others, odd):
    usual = [[inside("aten::mm", 0, t), inside("graph_0_cpp_fused_relu_0", 1, t)] for t in (4.0, 6.0)]
    usual.insert(odd, [inside(name, i, 900.0) for i, name in enumerate(others)])
    assert read(*usual) == [KernelTime("mm", 5.0, is_extern=True), KernelTime("fused_relu_0", 5.0, is_extern=False)]


@pytest.mark.parametrize("run", [[], None, [event("aten::view")]], ids=["empty", "nothing told", "only outside"])
def test_a_program_without_kernels_has_none(read, run):
    assert read(run, run) == []


@pytest.mark.gpu
def test_a_compiled_program_is_told_kernel_by_kernel_on_the_device():
    x, w = (torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    compiled = torch.compile(lambda x, w: (x @ w).relu() + 1, dynamic=False)
    compiled(x, w)
    product, fused = time_kernels(lambda: compiled(x, w), "cuda")
    assert (product.name, product.is_extern, fused.is_extern) == ("mm", True, False)
    assert product.time_us > 0
    assert fused.time_us > 0
