"""The judge's time of a call on a device, held against what CUPTI says of the kernel, for twenty kernels."""

from __future__ import annotations

from statistics import median

import pytest

from kernelwright.problems import load_problem
from kernelwright.sandbox import ForkServer, Limits
from kernelwright.verification.reference import Reference
from kernelwright.verification.timed_calls import TimedVerification
from kernelwright.verification.transport.runners import PRELOAD_MODULES, InspectedRunner

TRACED = 7
KERNELS = {
    "exp": ("torch.exp(x)", "8192, 2048"),
    "exp-large": ("torch.exp(x)", "16384, 16384"),
    "gelu": ("torch.nn.functional.gelu(x)", "4096, 4096"),
    "gelu-half": ("torch.nn.functional.gelu(x)", "8192, 8192, dtype=torch.float16"),
    "negative": ("-x", "8192, 8192"),
    "sigmoid": ("torch.sigmoid(x)", "3000, 3001"),
    "softmax": ("torch.softmax(x, -1)", "8192, 1024"),
    "softmax-long": ("torch.softmax(x, -1)", "1024, 32768"),
    "log-softmax": ("torch.log_softmax(x, -1)", "4096, 4096"),
    "layer-norm": ("torch.nn.functional.layer_norm(x, x.shape[-1:])", "8192, 4096"),
    "sum": ("x.sum(-1)", "8192, 8192"),
    "amax": ("x.amax(-1)", "16384, 4096"),
    "transpose": ("x.t().contiguous()", "4096, 4096"),
    "flip": ("x.flip(0)", "4096, 8192"),
    "square-product": ("x @ x", "2048, 2048"),
    "square-product-half": ("x @ x", "4096, 4096, dtype=torch.float16"),
    "square-product-bf16": ("x @ x", "8192, 8192, dtype=torch.bfloat16"),
    "gather": ("x[:, ::2].contiguous()", "8192, 8192"),
    "pool": ("torch.nn.functional.avg_pool2d(x, 2)", "64, 64, 112, 112"),
    "triangle": ("torch.tril(x)", "8192, 8192"),
}
"""Operators of a kernel or two, by their input."""


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_the_judges_time_is_that_of_the_kernel(name, fork_server, tmp_path):
    program, shape = KERNELS[name]
    source = f"import torch\ndef problem(x): return {program}\ndef get_inputs(): return [torch.randn({shape})]\n"
    path = tmp_path / "problem.py"
    path.write_text(source)
    reference = Reference(load_problem(str(path)), "cuda", seed=1, perturb_parameters=False)
    with InspectedRunner(str(path), str(path), "cuda", Limits(60.0), fork_server) as runner:
        runner.load(reference.make_inputs(0), reference.probe())
        for at in range(3):
            runner.client.call(reference.make_inputs(at), read_outputs=False)
        calls = TimedVerification(runner, reference, first_index=10)
        for _ in calls.run():
            pass
        traced = [
            runner.client.call(reference.make_inputs(30 + at), read_outputs=False, trace=True) for at in range(TRACED)
        ]
    cupti_us, judged = median(sum(one.time_us for one in call.kernels) for call in traced), calls.clock_comparison
    assert cupti_us > 15, traced[0].kernels
    print(
        f"{name:22s} CUPTI {cupti_us:9.2f}  judged {judged.time_us:9.2f}  claimed {judged.claimed_us:9.2f}"
        f"  window {judged.external_us:9.2f}  {judged.external_low_us:9.2f} to {judged.external_high_us:9.2f}"
    )
    allowed_us = 0.03 * cupti_us + (2.0 if cupti_us < 150 else 0.0)
    assert abs(judged.time_us - cupti_us) <= allowed_us


@pytest.fixture(scope="module")
def fork_server():
    with ForkServer(PRELOAD_MODULES) as warm:
        yield warm
