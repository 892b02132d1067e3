"""addmm with a matrix or factors is a product and its epilogue on a GPU, with torch's results."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import all_but, count, normal

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.regions.operators import op_name

NAME = "scaled_products"
X, Y = normal(6, 4), normal(4, 5)
CASES = {
    "matrix": (lambda c, a, b: torch.addmm(c, a, b), normal(6, 5)),
    "factors": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), normal(6, 5)),
    "factor of a vector": (lambda c, a, b: torch.addmm(c, a, b, alpha=2.0), normal(5)),
    "column": (lambda c, a, b: torch.addmm(c, a, b), normal(6, 1)),
    "no input": (lambda c, a, b: torch.addmm(c, a, b, beta=0), normal(6, 5) * float("nan")),
}


def captured_for(device, program, *args):
    with capturing_for(device):
        return capture(program, args, {}, all_but(NAME))


@pytest.mark.parametrize("name", CASES)
def test_a_scaled_sum_is_a_product_and_an_epilogue(name):
    program, added = CASES[name]
    captured = captured_for("cuda", program, added, X, Y)
    assert count(captured, NAME) == 1
    operators = {op_name(node.target) for node in captured.graph.nodes if node.op == "call_function"}
    assert "mm" in operators
    assert "addmm" not in operators
    (got,) = torch.fx.Interpreter(torch.fx.GraphModule(torch.nn.Module(), captured.graph)).run(added, X, Y)
    torch.testing.assert_close(got, program(added, X, Y))


def test_a_bias_stays_one_and_so_does_what_runs_on_a_cpu():
    assert not count(captured_for("cuda", CASES["matrix"][0], normal(5), X, Y), NAME)
    assert not count(captured_for("cpu", *CASES["factors"], X, Y), NAME)
    integers = [one.int() for one in (normal(6, 5), X, Y)]
    assert not count(captured_for("cuda", CASES["matrix"][0], *integers), NAME)
    halves = [one.half() for one in (normal(6, 5), X, Y)]
    assert not count(captured_for("cuda", CASES["factors"][0], *halves), NAME), "the product alone would be rounded"
    no_product = lambda c, a, b: torch.addmm(c, a, b, alpha=0)  # noqa: E731
    assert not count(captured_for("cuda", no_product, normal(6, 5), X, Y), NAME), "torch ignores NaN in the product"
