"""A file with a CUDA graph is valid Python everywhere; what cannot be captured is called as it is."""

import ast
import copy
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import module_of

from kernelwright.compiler.assembly.cuda_graph_layer import NUM_PLAIN_CALLS, CudaGraphLayer
from kernelwright.compiler.assembly.kernel_layer import KernelLayer
from kernelwright.compiler.assembly.output_file import assemble_file
from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.budget import time_limit
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.planning import plan_problem
from kernelwright.compiler.regions.contraction import ContractionRegion
from kernelwright.problems import load_problem

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, factor=2.0, *, bias=None):
        self.calls += 1
        result = self.linear(x) * factor
        return {"result": result if bias is None else result + bias, "factor": factor}


def get_inputs():
    return [torch.randn(9, 8)]


def get_init_inputs():
    return []
"""
FUNCTION = """import torch


def work(x, y):
    return torch.softmax(x * y + 1, -1) * 2


def get_inputs():
    return [torch.randn(9, 40), torch.randn(40)]
"""


def text_from(folder, text, name=""):
    path = folder / "problem.py"
    path.write_text(text)
    return assemble_file(load_problem(f"{path}:{name}" if name else str(path)), [CudaGraphLayer()], "A test.")


@pytest.fixture(autouse=True)
def built_with_cuda(monkeypatch):
    """As in a torch that knows CUDA, on a machine without a device."""
    if not torch.backends.cuda.is_built():
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.fixture
def with_cuda(monkeypatch):
    """As in a process that uses a CUDA device."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)


without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")


@pytest.fixture
def made(tmp_path):
    return module_of(text_from(tmp_path, MODEL))


@pytest.fixture
def of_function(tmp_path):
    return module_of(text_from(tmp_path, FUNCTION, "work"))


def test_the_text_is_python_that_imports_what_it_needs(tmp_path):
    text = text_from(tmp_path, MODEL)
    ast.parse(text)
    names = {}
    exec(compile(text, "owned.py", "exec"), names)
    assert names["ModelNew"].__mro__[1] is names["Model"]
    assert "kernelwright" not in text.lower()


@without_cuda
@pytest.mark.parametrize("grad", [False, True])
def test_on_a_machine_without_cuda_nothing_is_replayed(made, grad):
    new, x = made.ModelNew(), torch.randn(9, 8)
    with torch.set_grad_enabled(grad):
        assert not made.can_replay()
        for _ in range(4):
            new(x)
    assert new.calls.item() == 4
    assert "cuda_graph_replay" not in vars(new)


@pytest.mark.parametrize("grad", [False, True])
def test_on_a_cpu_every_call_is_plain(made, with_cuda, grad):
    old, new = made.Model(), made.ModelNew()
    new.load_state_dict(old.state_dict())
    x = torch.randn(9, 8)
    with torch.set_grad_enabled(grad):
        for _ in range(5):
            torch.testing.assert_close(new(x, bias=x[:, :4]), old(x, bias=x[:, :4]))
    assert new.calls.item() == 5
    if grad:
        assert "cuda_graph_replay" not in vars(new)
        return
    replay = new.cuda_graph_replay
    assert (replay.graph, replay.failed) == (None, True), "a capture was tried once"


def test_the_first_calls_are_plain_and_a_failed_capture_is_not_repeated(made, with_cuda, monkeypatch):
    tried = []
    capture = made.Replay.capture
    monkeypatch.setattr(made.Replay, "capture", lambda self, *args: (tried.append(1), capture(self, *args)))
    new, x = made.ModelNew(), torch.randn(9, 8)
    with torch.no_grad():
        for expected in [0] * made.NUM_PLAIN_CALLS + [1, 1, 1]:
            new(x)
            assert len(tried) == expected


def test_calls_with_gradients_do_not_count_as_first_calls(made, with_cuda):
    new, x = made.ModelNew(), torch.randn(9, 8)
    for _ in range(made.NUM_PLAIN_CALLS + 1):
        new(x)
    with torch.no_grad():
        new(x)
    assert (new.cuda_graph_replay.num_calls, new.cuda_graph_replay.failed) == (1, False)


def test_arguments_of_every_kind_are_passed_on(made):
    old, new = made.Model(), made.ModelNew()
    new.load_state_dict(old.state_dict())
    x = torch.randn(9, 8)
    for args, kwargs in [((x,), {}), ((x, 3.0), {}), ((), {"x": x, "factor": 0.5}), ((x,), {"bias": torch.ones(4)})]:
        torch.testing.assert_close(new(*args, **kwargs), old(*args, **kwargs))


def test_gradients_flow_through_a_plain_call(made):
    old, new = made.Model(), made.ModelNew()
    new.load_state_dict(old.state_dict())
    x = torch.randn(9, 8)
    for model in (old, new):
        model(x)["result"].square().sum().backward()
    torch.testing.assert_close(new.linear.weight.grad, old.linear.weight.grad)


def test_a_function_is_called_as_one(of_function, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "_call_impl", None)
    new, x, y = of_function.ModelNew(), torch.randn(9, 40), torch.randn(40)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(new(x, y), of_function.work(x, y))


def test_an_exception_of_the_program_is_its_own_and_the_next_call_works(of_function):
    new, x, y = of_function.ModelNew(), torch.randn(9, 40), torch.randn(40)
    with torch.no_grad():
        for _ in range(4):
            with pytest.raises(RuntimeError, match="must match"):
                new(x, y[:3])
            torch.testing.assert_close(new(x, y), of_function.work(x, y))


def test_a_model_and_its_copy_have_replays_of_their_own(made, with_cuda):
    new, x = made.ModelNew(), torch.randn(9, 8)
    with torch.no_grad():
        new(x)
        other = copy.deepcopy(new)
        torch.testing.assert_close(other(x), new(x))
    assert other.cuda_graph_replay is not new.cuda_graph_replay


class Following(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@contextmanager
def autocast():
    torch.set_autocast_enabled("cuda", True)  # torch.autocast itself needs a device
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


def followed(manager, ask):
    with manager:
        return ask()


FOLLOWING = {
    "gradients": lambda ask: followed(torch.enable_grad(), ask),
    "a transformation": lambda ask: torch.vmap(lambda x: x if ask() else x * 0)(torch.ones(3)).all().item(),
    "a dispatch mode": lambda ask: followed(Following(), ask),
    "autocast": lambda ask: followed(autocast(), ask),
}


@pytest.mark.parametrize("who", FOLLOWING)
def test_a_call_that_something_follows_is_not_replayed(made, with_cuda, who):
    with torch.no_grad():
        assert made.can_replay()
        assert not FOLLOWING[who](made.can_replay)
        assert made.can_replay()


def test_a_copy_has_the_layout_of_its_original(made):
    x = torch.randn(4, 6).t()[1:]
    got = made.static_copy(x)
    assert (got.stride(), got.data_ptr() == x.data_ptr()) == (x.stride(), False)
    assert torch.equal(got, x)
    assert made.copy_of(2.5) == 2.5
    assert torch.equal(made.copy_of(x), x)


@pytest.mark.parametrize(
    ("value", "captured", "like"),
    [(2, 2, True), (2, 3, False), (2, 2.0, False), (None, None, True), ("a", "b", False), (True, 1, False)],
)
def test_other_values_than_tensors_have_to_be_the_captured_ones(made, value, captured, like):
    assert made.is_like(value, captured) is like


def test_a_tensor_on_a_cpu_is_like_no_captured_one(made):
    assert not made.is_like(torch.ones(3), torch.ones(3))
    assert not made.is_like(2.0, torch.ones(3))


# ---- what a file may contain, and where it may run


@pytest.mark.parametrize("name", ["plain", "replay"])
def test_an_argument_may_have_any_name(tmp_path, name):
    made = module_of(
        text_from(tmp_path, FUNCTION.replace("(x, y)", f"(x, {name})").replace("* y", f"* {name}"), "work")
    )
    x, y = torch.randn(9, 40), torch.randn(40)
    torch.testing.assert_close(made.ModelNew()(x, y), made.work(x, y))


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_of_a_file_sees_the_program_as_it_was(of_function):
    x, y = torch.randn(9, 40), torch.randn(40)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(of_function.ModelNew(), backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, y), of_function.work(x, y))


CONSTANT = """import torch


def work(count):
    return torch.arange(8) * count


def get_inputs():
    return [3]
"""


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="needs a torch that does not know CUDA")
def test_a_file_runs_with_a_torch_that_does_not_know_cuda(of_function, monkeypatch):
    monkeypatch.undo()
    new, x, y = of_function.ModelNew(), torch.randn(9, 40), torch.randn(40)
    with torch.no_grad():
        torch.testing.assert_close(new(x, y), of_function.work(x, y))


@without_cuda
def test_a_program_without_tensors_runs_on_a_cpu(tmp_path):
    made = module_of(text_from(tmp_path, CONSTANT, "work"))
    new = made.ModelNew()
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(new(3), made.work(3))


RECURSIVE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, depth=2):
        return self(self.linear(x), depth - 1) if depth else x


def get_inputs():
    return [torch.randn(9, 8)]


def get_init_inputs():
    return []
"""


def test_a_program_may_call_itself(tmp_path):
    made = module_of(text_from(tmp_path, RECURSIVE))
    old, new = made.Model(), made.ModelNew()
    new.load_state_dict(old.state_dict())
    x = torch.randn(9, 8)
    with time_limit(0.3):
        torch.testing.assert_close(new(x), old(x))


# ---- kernels in a graph, on a GPU

KERNELS = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 512)
        self.register_buffer("mean", torch.zeros(512))

    def forward(self, x):
        result = torch.relu(self.linear(x)) + 1
        self.mean.mul_(0.9).add_(result.mean(0), alpha=0.1)
        return result


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def replayed(tmp_path):
    """The original model, a replayed one whose kernels are generated, and the number of its replays."""
    path = tmp_path / "problem.py"
    path.write_text(KERNELS)
    problem = load_problem(str(path))
    found = plan_problem(problem, "cuda")
    regions = [part.region for part in found.regions if part.region.name not in found.same_as]
    assert any(isinstance(one, ContractionRegion) for one in regions)
    kernels = [RegionKernel(one, TRITON.generate_configs(one)[0]) for one in regions]
    layer = KernelLayer(found.captured, found.regions, kernels, "cuda", found.same_as)
    made = module_of(assemble_file(problem, [layer, CudaGraphLayer()], "A test."))
    old, new = made.Model().cuda().eval(), made.ModelNew().cuda().eval()
    new.load_state_dict(old.state_dict())
    return old, new


def count_replays(model, monkeypatch):
    """A list that grows by one with each replay."""
    replays, graph = [], model.cuda_graph_replay.graph

    class Counted:
        def replay(self):
            replays.append(1)
            graph.replay()

    monkeypatch.setattr(model.cuda_graph_replay, "graph", Counted())
    return replays


def check_call(old, new, x):
    """Both results and buffers are near each other; the products are FP32 in both."""
    got, right = new(x), old(x)
    torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(new.mean, old.mean, rtol=1e-4, atol=1e-4)
    return got


def captured(old, new):
    """After enough calls, the model has a graph."""
    for _ in range(NUM_PLAIN_CALLS + 1):
        check_call(old, new, torch.randn(512, 512, device="cuda"))
    assert new.cuda_graph_replay.graph is not None


@pytest.mark.gpu
@torch.no_grad()
def test_a_graph_computes_new_results_and_updates_buffers(replayed, monkeypatch):
    old, new = replayed
    captured(old, new)
    replays = count_replays(new, monkeypatch)
    first = check_call(old, new, x := torch.randn(512, 512, device="cuda"))
    kept = first.clone()
    for _ in range(10):
        check_call(old, new, torch.randn(512, 512, device="cuda"))
    assert len(replays) == 11
    assert torch.equal(first, kept), "results are copies"
    assert torch.equal(new(x), first), "the same in every call"


@pytest.mark.gpu
@torch.no_grad()
def test_other_shapes_layouts_and_streams_are_called_as_they_are(replayed, monkeypatch):
    old, new = replayed
    captured(old, new)
    replays = count_replays(new, monkeypatch)
    check_call(old, new, torch.randn(100, 512, device="cuda"))
    check_call(old, new, torch.randn(512, 512, device="cuda").t())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        check_call(old, new, torch.randn(512, 512, device="cuda"))
    torch.cuda.current_stream().wait_stream(stream)
    assert not replays
    check_call(old, new, torch.randn(512, 512, device="cuda"))
    assert len(replays) == 1


@pytest.mark.gpu
@torch.no_grad()
def test_changed_parameters_are_read_and_exchanged_ones_end_replays(replayed, monkeypatch):
    old, new = replayed
    captured(old, new)
    replays = count_replays(new, monkeypatch)
    for model in replayed:
        model.linear.weight.mul_(0.5)
    check_call(old, new, torch.randn(512, 512, device="cuda"))
    assert len(replays) == 1
    for model in replayed:
        model.linear.bias = torch.nn.Parameter(torch.ones(512, device="cuda"))
    check_call(old, new, torch.randn(512, 512, device="cuda"))
    assert len(replays) == 1


@pytest.mark.gpu
@torch.no_grad()
def test_infinities_are_computed_again_in_a_graph_too(replayed):
    old, new = replayed
    captured(old, new)
    x = torch.randn(512, 512, device="cuda")
    x[3, 4], x[5, 6] = float("inf"), float("nan")
    got, right = new(x), old(x)
    torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4, equal_nan=True)
