"""Rewrites are applied in order, counted, and disabled by name; files of rewritten programs are right."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, KernelsFirst, module_of, quick, text_of
from rewrite_checks import all_but, captured_with, count, normal

from kernelwright.compiler.capture.calls import map_calls_to_values
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.rewrites.registry import OFF_BY_DEFAULT, REWRITES, apply_rewrites, select_disabled
from kernelwright.core.errors import UsageError
from kernelwright.problems import Problem


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


def test_every_rewrite_has_a_name_and_a_description_of_one_line():
    names = [rewrite.name for rewrite in REWRITES]
    assert len(names) == len(set(names))
    assert all(rewrite.description and "\n" not in rewrite.description for rewrite in REWRITES)
    assert set(names) > OFF_BY_DEFAULT


def test_names_of_disabled_rewrites():
    assert select_disabled([]) == OFF_BY_DEFAULT
    assert select_disabled(["means", "row_sums"], rewrite_degenerate=True) == {"means", "row_sums"}
    with pytest.raises(UsageError, match="no such rewrite") as error:
        select_disabled(["mean"])
    assert all(rewrite.name in error.value.next for rewrite in REWRITES)


@pytest.mark.parametrize("disabled", [frozenset(), frozenset({"means"}), all_but()])
def test_a_disabled_rewrite_changes_nothing(disabled):
    captured = capture(lambda x: (x.sum(1) / 8).exp(), (normal(4, 8),), {}, disabled)
    assert count(captured, "means") == ("means" not in disabled)
    assert captured.is_rewritten == ("means" not in disabled)


def test_what_is_saved_is_counted():
    def program(x, w):
        return (x @ w).sum(1)

    captured = captured_with(program, [normal(32, 16), normal(16, 24)], "linear_reductions")
    (rewrite,) = captured.rewrites
    before, after = 2 * 32 * 16 * 24 + 32 * 24, 16 * 24 + 2 * 32 * 16
    assert rewrite.flops_saved == before - after
    assert rewrite.bytes_saved > 0
    assert apply_rewrites(captured.graph, captured.sources, all_but("linear_reductions")) == ()


NORM_FILE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.up = nn.ConvTranspose2d(6, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(8, 1))
        self.eval()

    def forward(self, x):
        x = {body}
        return x


def get_inputs():
    return [torch.rand(3, 4, 12, 12)]


def get_init_inputs():
    return []
"""
BODIES = {
    "folded": "self.norm(self.conv(x))",
    "summed": "self.up(self.conv(x)).mean(2)",
    "summed, then a kernel": "torch.softmax(self.up(self.conv(x)).mean(2) * self.scale, 1)",
    "folded, then a kernel": "torch.softmax(self.up(self.norm(self.conv(x)))[0], 1)",
    "two softmaxes, one repeated": "torch.softmax(x, 1) + torch.softmax(x, 1).exp()",
    "a part of two equal calls": "torch.softmax(x, 1) * torch.log_softmax(x, 1)",
    "chain of poolings": "nn.functional.max_pool2d(nn.functional.max_pool2d(self.conv(x), 2).relu(), 2)",
    "pooled": "torch.sigmoid(nn.functional.avg_pool2d(self.conv(x), 4)).sum([1, 2, 3])",
}


@pytest.mark.parametrize("which", BODIES)
@pytest.mark.parametrize("keep", [True, False], ids=["kernels", "torch"])
def test_the_file_of_a_rewritten_program(tmp_path, which, keep):
    """With kernels, and with torch operators alone; for parameters that it was not made with."""
    path = tmp_path / "problem.py"
    path.write_text(NORM_FILE.format(body=BODIES[which]))
    source = text_of(path, keep=keep)
    made = module_of(source)
    assert "def inputs_match" in source
    old, new = made.Model().eval(), made.ModelNew().eval()
    with torch.no_grad():
        for tensor in (*old.parameters(), *old.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)
        new.load_state_dict(old.state_dict())
        for x in (torch.rand(3, 4, 12, 12), torch.rand(2, 4, 12, 12)):
            torch.testing.assert_close(new(x), old(x), rtol=1e-4, atol=1e-4)
    if not keep:
        assert "KERNELS" not in source
        assert "import ctypes" not in source
    x = torch.rand(3, 4, 12, 12, requires_grad=True)
    one, other = (torch.autograd.grad(module(x).sum(), x)[0] for module in (new, old))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("which", BODIES)
def test_references_and_calls_have_the_values_of_the_rewritten_graph(which):
    namespace = {}
    exec(NORM_FILE.format(body=BODIES[which]), namespace)
    program, args = namespace["Model"]().eval(), namespace["get_inputs"]()
    found = plan_program(program, args, {})
    captured = found.captured
    values = bind_placeholders(captured, program, args, {})
    seen = torch.fx.Interpreter(torch.fx.GraphModule(nn.Module(), captured.graph))
    seen.garbage_collect_values = False
    with torch.no_grad():
        seen.run(*values, enable_io_processing=False)
        called = torch.fx.Interpreter(captured.exported)
        called.garbage_collect_values = False
        called.run(*values, enable_io_processing=False)
        for call, node in map_calls_to_values(captured).items():
            torch.testing.assert_close(called.env[call], seen.env[node], rtol=1e-4, atol=1e-4)
        by_name = {node.name: node for node in captured.graph.nodes}
        recorded = record_region_inputs(captured, found.regions, values)
        for part, inputs in zip(found.regions, recorded, strict=True):
            for got, name in zip(build_reference(captured, part)(*inputs), part.region.writes, strict=True):
                torch.testing.assert_close(got, seen.env[by_name[name]], rtol=1e-4, atol=1e-4)


def test_a_rewritten_program_without_kernels_is_accepted_and_counts_as_changed():
    program = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)).eval()
    with torch.no_grad():
        problem = Problem.from_callable(program, torch.rand(3, 4, 12, 12))
        made = optimize_problem(problem, FirstChoice(False), 1, KernelsFirst)
        record = made.optimization
        assert record.verdict.accepted, record.verdict.reason
        assert (record.whole_program_winner, record.is_unchanged) == ("", False)
        assert [rewrite.name for rewrite in record.rewrites] == ["affine_folding"]
        x = torch.rand(3, 4, 12, 12)
        torch.testing.assert_close(made(x), program(x), rtol=1e-4, atol=1e-4)


def test_constants_of_a_degenerate_program_are_those_of_its_shape():
    captured = capture(lambda x: torch.softmax(x, 1) + 1, (normal(4, 1),), {}, frozenset())
    assert {node.name for node in captured.sources if node.users} == {"x"}, "so that its shape is checked"
