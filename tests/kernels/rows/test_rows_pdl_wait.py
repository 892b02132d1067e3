"""A kernel that is launched beside the end of another one waits for it before it looks at memory."""

import ast
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiers import fast_where

pytest.importorskip("triton")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver

import kernelwright.kernels
from kernelwright.commands.machine_code import TRITON_TYPE, disassemble
from kernelwright.kernels import softmax
from kernelwright.kernels.catalog import KERNELS
from kernelwright.kernels.kernel_spec import OfflineSignature
from kernelwright.kernels.rows import launcher
from kernelwright.kernels.rows.tile import programmatic_launch

WAIT = "grid_dependency_wait()"
SOURCES = sorted(Path(kernelwright.kernels.__file__).parent.glob("*/*kernel.py"))
SAMPLES = [f"kernels/{name}:{variant}" for name, kernel in KERNELS.items() for variant in kernel.variants]
COMPILED = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="nothing is compiled where it is interpreted")


def kernels():
    for path in SOURCES:
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.FunctionDef) and one.decorator_list and not one.name.startswith("_"):
                yield pytest.param(one, id=f"{path.parent.name}.{one.name}")


@pytest.mark.parametrize("kernel", list(kernels()))
def test_waiting_comes_first_or_not_at_all(kernel):
    first, *others = [ast.unparse(one) for one in kernel.body if not ast.get_docstring(kernel) or one != kernel.body[0]]
    assert WAIT not in "\n".join(others)
    assert first == WAIT or "program_id" not in ast.unparse(kernel), "half a microsecond is left lying"


HOME = "kernelwright.kernels"
ROWS = {"dy_ptr": "*bf16", "x_ptr": "*bf16", "rstd_ptr": "*fp32", "mean_ptr": "*fp32", "M": "i32"}
PLACES = {name: 1 for x in ("dy", "x") for name in (f"{x}_inner_size", f"stride_{x}_outer", f"stride_{x}_inner")}
TILE = {"N": 512, "K": 512, "BLOCK": 128, "BLOCK_N": 128, "BLOCK_M": 32, "NUM_SPLITS": 1, "NUM_BLOCKS": 1, "PHASE": 0}
TARGETS = {
    "target_ptr": "*i64",
    "sorted_targets_ptr": "*i64",
    "sort_order_ptr": "*i64",
    "target_grad_ptr": "*fp32",
    "ignore_index": "i32",
}
SUMS = {"weight_ptr": "*bf16", "dweight_ptr": "*fp32", "dx_ptr": "*bf16", "partials_ptr": "*fp32", "sum_ptr": "*fp32"}
LOSS = {"loss_ptr": "*fp32", "total_ptr": "*fp32", "scale_ptr": "*fp32", "MEAN": True}
USUAL = ROWS | PLACES | TILE | TARGETS | SUMS | LOSS
USUAL |= {"BLOCK_PARTIALS": 64, "SUBTRACT_MEAN": True, "CAST_FIRST": False, "stride": 512, "num_partials": "i32"}
"""What those take that are no variant of any kernel: they come with another one."""
BESIDE = [
    *(f"{HOME}.norms.backward_kernel:{name}" for name in ("weight_grad_kernel", "sum_partials_kernel")),
    *(f"{HOME}.losses.total_kernel:{name}" for name in ("reduce_losses_kernel", "scale_in_place_kernel")),
    *(f"{HOME}.losses.linear_kernel:{name}" for name in ("add_target_grad_to_dx", "add_target_grad_to_dweight")),
]
LAUNCHED = {
    one.function: one.params
    for kernel in KERNELS.values()
    for one in kernel.variants.values()
    if isinstance(one, OfflineSignature)
}
LAUNCHED |= dict.fromkeys(BESIDE, USUAL)


def function_of(name):
    home, _, function = name.partition(":")
    return getattr(import_module(home), function)


def ptx_of(function, given):
    """Of a kernel, as Triton compiles it for Hopper."""
    given = {name: given.get(name) for name in function.arg_names}
    kinds = {name: isinstance(one, str) and TRITON_TYPE.fullmatch(one) for name, one in given.items()}
    constants = {(at,): one for at, (name, one) in enumerate(given.items()) if not kinds[name]}
    types = {name: one if kinds[name] else "constexpr" for name, one in given.items()}
    target, before = GPUTarget("cuda", 90, 32), driver._active
    driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    try:
        return triton.compile(ASTSource(function, types, constants), target=target).asm["ptx"]
    finally:
        driver._active = before


def declared():
    """Every kernel of the library that is a programmatic launch, by module and name."""
    for path in SOURCES:
        module = f"{HOME}.{path.parent.name}.{path.stem}"
        for name, one in vars(import_module(module)).items():
            if getattr(one, "programmatic_launch", False):
                yield f"{module}:{name}"


def test_every_declared_kernel_is_compiled_here():
    assert set(declared()) <= set(LAUNCHED)


@COMPILED
@pytest.mark.parametrize("name", LAUNCHED)
def test_a_programmatic_launch_is_what_waits_in_ptx(name):
    kernel = function_of(name)
    waits = "griddepcontrol.wait" in ptx_of(kernel, LAUNCHED[name])
    assert getattr(kernel, "programmatic_launch", False) == waits


MENTIONED = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr):
    '''It calls grid_dependency_wait() not.'''
    # grid_dependency_wait()
    tl.static_assert(True, "grid_dependency_wait()")
    tl.store(x_ptr, 0.0)
"""


@pytest.fixture
def mentioned(tmp_path, monkeypatch):
    (tmp_path / "mentioned_kernel.py").write_text(MENTIONED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("mentioned_kernel").kernel
    del sys.modules["mentioned_kernel"]


@COMPILED
def test_a_comment_or_a_string_is_no_declaration(mentioned, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    launcher.uses_pdl.cache_clear()
    assert WAIT in mentioned.src
    assert not launcher.uses_pdl(mentioned, torch.device("cuda", 0))
    assert "griddepcontrol" not in ptx_of(mentioned, {"x_ptr": "*fp32"})
    launcher.uses_pdl.cache_clear()
    assert launcher.uses_pdl(programmatic_launch(mentioned), torch.device("cuda", 0))
    launcher.uses_pdl.cache_clear()


@COMPILED
@pytest.mark.parametrize("target", fast_where(range(0, 99, 4), SAMPLES))
def test_nothing_is_read_or_written_before(target):
    opcodes = [one.opcode for one in disassemble(target).instructions]
    touching = [
        at for at, one in enumerate(opcodes) if one.startswith(("LDG", "STG", "ATOM", "RED", "UTMALDG", "UTMASTG"))
    ]
    assert opcodes.index("ACQBULK") < min(touching)


@COMPILED
def test_an_older_machine_has_no_such_instruction():
    assert "ACQBULK" not in [one.opcode for one in disassemble("kernels/softmax", arch="sm_80").instructions]


@pytest.mark.gpu
@pytest.mark.parametrize("N", [1000, 2**16], ids=["triton", "clusters"])
def test_it_waits_for_kernels_copies_and_other_streams_in_graphs_too(N):
    x, more = torch.zeros(64, N, device="cuda"), torch.randn(64, N, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def work():
        x.zero_()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10**6)
            x[32:].add_(more[32:])
        x[:32].copy_(more[:32])
        torch.cuda.current_stream().wait_stream(side)
        y = softmax(x)
        torch.cuda._sleep(10**5)
        return softmax(y.mul_(3))

    for _ in range(2):
        eager = work()
    with torch.cuda.graph(graph):
        captured = work()
    graph.replay()
    want = torch.softmax(3 * torch.softmax(more.double(), -1), -1)
    for got in (eager, captured):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-9)
