"""Each way of not being honest has the code that says so; what only looks like one is accepted."""

import pytest
from tiers import slow

import kernelwright as kw
from kernelwright.sandbox import ForkServer, can_inspect
from kernelwright.verification.attacks.code_attribution import MIN_OWN_SHARE
from kernelwright.verification.transport.runners import PRELOAD_MODULES

pytestmark = pytest.mark.skipif(not can_inspect(), reason="the memory of children cannot be reached here")

GELU = """
import torch
def f(x): return torch.nn.functional.gelu(x)
def get_inputs(): return [torch.randn(512, 1024)]
"""
LINEAR = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))
    def forward(self, x):
        self.calls += x.mean()
        return x + self.calls
def get_inputs(): return [torch.randn(3)]
"""
LATE = """
import threading
def f(x):
    out = torch.empty_like(x)
    def fill():
        import time; time.sleep(0.02)
        torch.nn.functional.gelu(x)[:].clone()
        out.copy_(torch.nn.functional.gelu(x))
    threading.Thread(target=fill).start()
    return out
"""
HALF_LATE = """
import threading
def f(x):
    out = torch.nn.functional.gelu(x)
    late = out[300:].clone()
    out[300:] = 0
    def fill():
        import time; time.sleep(0.005)
        out[300:] = late
    threading.Thread(target=fill).start()
    return out
"""
STALE = """
kept = {}
def f(x):
    if x.shape not in kept: kept[x.shape] = torch.nn.functional.gelu(x)
    return kept[x.shape]
"""
STOPPED_CLOCK = """
import kernelwright.verification.worker.self_timer as own
own.wall_s = lambda: 0.0
def f(x): return torch.nn.functional.gelu(x.double()).float()
"""
FORGED = """
import os, struct, msgspec
def f(x):
    report = {"structure": "Tensor", "leaves": {}, "state_descriptors": {}, "segments": [], "is_stream_ordered": True}
    data = msgspec.msgpack.encode({"answer": report})
    os.write(3, struct.pack("<Q", len(data)) + data)
    return torch.nn.functional.gelu(x)
"""
NOWHERE = """
class Nowhere(torch.Tensor):
    def data_ptr(self): return 4096
torch.Tensor.data_ptr = lambda self: 4096
def f(x): return torch.nn.functional.gelu(x)
"""
TORCH = "def f(x): return torch.nn.functional.gelu(x)"
OWN = """
// kw: entry gelu
// kw: dims x: float32[M, N]
// kw: out out: float32[M, N]
// kw: args x, out, M * N
#include <cmath>
#include <cstdint>
extern "C" void gelu(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5 * x[i] * std::erfc(-0.70710678118654752 * x[i]);
}
"""


@pytest.fixture(scope="module")
def fork_server():
    with ForkServer(PRELOAD_MODULES) as warm:
        yield warm


@pytest.fixture
def verdict(tmp_path, fork_server):
    def call(candidate, *, problem=GELU, suffix=".py", **options):
        (tmp_path / "f.py").write_text(problem)
        path = tmp_path / f"candidate{suffix}"
        path.write_text("import torch\n" * (suffix == ".py") + candidate)
        return kw.verify(str(tmp_path / "f.py"), str(path), **{"sets": 2, "fork_server": fork_server} | options)

    return call


@pytest.mark.parametrize(
    ("candidate", "code"),
    [
        (LATE, "late-work"),
        slow((HALF_LATE, "late-work")),
        (STALE, "stale-output"),
        (STOPPED_CLOCK, "false-time"),
        (FORGED, "forged-answer"),
        slow((NOWHERE, "forged-answer")),
    ],
)
def test_dishonest_work_is_called_by_its_name(verdict, candidate, code):
    seen = verdict(candidate)
    assert seen.reason, "accepted"
    assert seen.reason.code == code, seen.reason


OTHER_IN_SERIES = """
import sys, time
def f(x):
    frame = sys._getframe(1)
    while frame is not None and "given" not in frame.f_locals: frame = frame.f_back
    out = torch.nn.functional.gelu(x)
    if frame is not None and len(frame.f_locals["given"]) > 1: {in_series}
    else: {alone}
    return out
"""
SMALL_GELU = GELU.replace("512, 1024", "16, 24")


def test_calls_back_to_back_are_checked_too(verdict):
    seen = verdict(OTHER_IN_SERIES.format(in_series="out.zero_()", alone="pass"), problem=SMALL_GELU)
    assert seen.reason and seen.reason.code == "inaccurate", seen.reason
    assert "timed call" in seen.reason.detail


def test_single_calls_that_take_much_longer_than_those_of_a_series_are_a_false_time(verdict):
    slow_alone = OTHER_IN_SERIES.format(in_series="pass", alone="time.sleep(0.05)")
    seen = verdict(slow_alone, problem=SMALL_GELU)
    assert seen.reason and seen.reason.code == "false-time", seen.reason
    assert "series" in seen.reason.detail


REPLACED_REPORT = """
import sys
def f(x):
    frame = sys._getframe(1)
    while "{name}" not in frame.f_globals: frame = frame.f_back
    names, own = frame.f_globals, frame.f_globals["{name}"]
    names["{name}"] = {replacement}
    return torch.nn.functional.gelu(x)
"""
REPLACEMENTS = {
    "describe_leaf": 'lambda leaf: own(leaf) | {"negated": True, "dtype": "bool"}',
    "_make_report": 'lambda worker: {"leaves": 3}',
    "find_segments": "lambda values: 7",
}


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_a_report_that_cannot_be_read_is_forged(verdict, name):
    seen = verdict(REPLACED_REPORT.format(name=name, replacement=REPLACEMENTS[name]), problem=SMALL_GELU)
    assert seen.reason, "accepted"
    assert seen.reason.code in ("forged-answer", "runtime-error"), seen.reason


NUMBER = """
import torch
def f(x): return torch.nn.functional.gelu(x).mean().item()
def get_inputs(): return [torch.randn(16, 24)]
"""
NUMBER_IN_REPORT = """
import sys
owed = {}
def f(x):
    frame = sys._getframe(1)
    while "describe_leaf" not in frame.f_globals: frame = frame.f_back
    names = frame.f_globals
    if not owed:
        own = names["describe_leaf"]
        names["describe_leaf"] = lambda leaf: own(owed.pop(leaf)() if leaf in owed else leaf)
    token = 1e9 + len(owed)
    owed[token] = lambda: torch.nn.functional.gelu(x).mean().item()
    return token
"""


def test_a_number_that_is_computed_in_the_report_is_forged(verdict):
    assert verdict("def f(x): return torch.nn.functional.gelu(x).mean().item()", problem=NUMBER).accepted
    seen = verdict(NUMBER_IN_REPORT, problem=NUMBER)
    assert seen.reason and seen.reason.code == "forged-answer", seen.reason


INTEGER_WEIGHT = """
import torch
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.arange(24, dtype=torch.int8) * 3 - 30)
        self.wide = None
    def forward(self, x):
        {compute}
        return x * self.wide
"""


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_integer_buffer_is_changed_too(verdict, is_kept):
    fresh = "self.wide = self.weight.float()"
    problem = INTEGER_WEIGHT.format(name="Model", compute=fresh) + "def get_inputs(): return [torch.randn(16, 24)]\n"
    candidate = INTEGER_WEIGHT.format(name="ModelNew", compute=f"if self.wide is None: {fresh}" if is_kept else fresh)
    seen = verdict(candidate, problem=problem, sets=None)
    assert seen.accepted != is_kept, seen.reason


def test_an_error_of_the_judge_that_the_candidate_raises_is_its_own(verdict):
    seen = verdict("from kernelwright.core.errors import InternalError\ndef f(x): raise InternalError('mine')")
    assert seen.reason and seen.reason.code == "runtime-error", seen.reason


@pytest.mark.slow
def test_a_library_is_not_ones_own_kernel(verdict):
    assert verdict(TORCH).accepted
    seen = verdict(TORCH, own_kernels=True)
    assert seen.reason, seen.own_kernel_share
    assert seen.reason.code == "not-own-kernels"
    assert "libtorch_cpu" in seen.reason.detail


def test_a_kernel_of_ones_own_is(verdict):
    seen = verdict(OWN, suffix=".cpp", own_kernels=True)
    assert seen.accepted, seen.reason
    assert seen.own_kernel_share >= MIN_OWN_SHARE


def test_a_verdict_knows_the_time_of_a_call_by_two_clocks(verdict):
    slow = "import time\ndef f(x):\n    time.sleep(0.03)\n    return torch.nn.functional.gelu(x)"
    assert verdict(slow).call_us > 30_000


def test_a_verdict_says_what_held_the_stranger(verdict):
    assert {"outputs read and calls timed by the verifier", "own process", "process limit"} <= set(
        verdict(TORCH).sandbox
    )


def test_state_that_a_program_changes_is_put_back_and_compared(verdict):
    right = """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))
    def forward(self, x):
        self.calls = self.calls + x.mean()
        return x + self.calls
"""
    assert verdict(right, problem=LINEAR, sets=6).accepted
    wrong = right.replace("self.calls = self.calls + x.mean()", "calls = self.calls + x.mean()").replace(
        "x + self.calls", "x + calls"
    )
    assert verdict(wrong, problem=LINEAR, sets=6).reason.code in ("inaccurate", "not-finite")
