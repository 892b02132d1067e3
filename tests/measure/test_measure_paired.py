import os

import pytest
import torch

from kernelwright.measure.buffers import RotatingBuffers, parameter_bytes
from kernelwright.measure.clock import EventClock, HostClock, choose_repetitions
from kernelwright.measure.conditions import SystemCounters
from kernelwright.measure.operators import ClockMode, _busy_threads, record_operator_times, time_operators
from kernelwright.measure.paired import MAX_ROUNDS, MIN_SAMPLE_US, select_undisturbed, time_variants

MIB = 2**20


class FakeClock:
    """Each call of a variant costs what the variant says; no time passes."""

    name = "host"

    def __init__(self):
        self.calls = []

    def time_us(self, call, repetitions=1):
        self.calls.append((call, repetitions))
        return float(call() if callable(call) else call)


def fake_variants(**costs):
    return {name: (lambda x, cost=cost: cost) for name, cost in costs.items()}


def test_variants_alternate_and_a_slower_one_is_called_slower():
    rounds = time_variants(
        fake_variants(a=100.0, b=150.0),
        ([torch.ones(4)], {}),
        device="cpu",
        last_cache_bytes=MIB,
        budget_s=30.0,
        clock=FakeClock(),
    )
    found = rounds.compare("a", "b")
    assert (found.verdict, found.speedup, found.pairs) == ("FASTER", pytest.approx(1.5), MAX_ROUNDS)
    assert rounds.timings["a"].time_us == 100.0
    assert rounds.timings["a"].repetitions == MIN_SAMPLE_US / 100


def test_real_timings_say_their_conditions():
    rounds = time_variants(
        {"add": torch.add}, ([torch.ones(8), torch.ones(8)], {}), device="cpu", last_cache_bytes=MIB, budget_s=0.05
    )
    timing = rounds.timings["add"]
    assert timing.low_us <= timing.time_us <= timing.high_us
    assert timing.conditions.cache == "warm", "inputs of 32 bytes are never cold"
    assert timing.conditions.threads == torch.get_num_threads()
    assert timing.repetitions > 1, "one call is too short to time alone"


def test_cold_buffers_pass_twice_the_last_cache():
    rotation = RotatingBuffers(([torch.ones(MIB // 2)], {}), last_cache_bytes=8 * MIB)
    assert rotation.cache == "cold"
    assert len(rotation.input_sets) * 2 * MIB >= 16 * MIB
    seen = []
    call = rotation.bind(lambda x: seen.append(x.data_ptr()))
    for _ in range(len(rotation.input_sets)):
        call()
    assert len(set(seen)) == len(rotation.input_sets), "each call meets other memory"


def test_programs_that_alternate_take_turns_with_the_same_buffers():
    rotation = RotatingBuffers(([torch.ones(MIB // 2)], {}), last_cache_bytes=8 * MIB)
    seen = []
    one, other = (rotation.bind(lambda x: seen.append(x.data_ptr())) for _ in range(2))
    for _ in range(len(rotation.input_sets) // 2):
        one()
        other()
    assert len(set(seen)) == len(rotation.input_sets) // 2 * 2, (
        "no call finds what another program's call left in the cache"
    )


def test_parameters_past_the_last_cache_are_cold_without_rotation():
    small = ([torch.ones(4)], {})
    assert RotatingBuffers(small, last_cache_bytes=MIB, parameter_bytes=2 * MIB).cache == "cold"
    assert len(RotatingBuffers(small, last_cache_bytes=MIB, parameter_bytes=2 * MIB).input_sets) == 1
    assert RotatingBuffers(small, last_cache_bytes=MIB, parameter_bytes=MIB // 2).cache == "warm"
    assert parameter_bytes(torch.nn.Linear(8, 4)) == 4 * (8 * 4 + 4)
    assert parameter_bytes(torch.relu) == 0


def test_disturbed_samples_are_kept_and_left_out_of_the_median():
    assert select_undisturbed([1.0] * 15 + [9.0], [True] * 15 + [False]) == [1.0] * 15
    few = select_undisturbed([1.0] * 14 + [9.0] * 2, [True] * 14 + [False] * 2)
    assert len(few) == 16, "too few were left alone, so all of them count"


def test_copies_lie_as_the_given_buffers_do():
    wide, shared = torch.ones(512, 1024), torch.ones(MIB)
    rotation = RotatingBuffers(([wide[:, :128], torch.ones(1).expand(9), shared, shared], {}), last_cache_bytes=4 * MIB)
    assert len(rotation.input_sets) > 1
    for args, _ in rotation.input_sets:
        assert [x.stride() for x in args] == [(1024, 1), (0,), (1,), (1,)]
        assert args[2].data_ptr() == args[3].data_ptr(), "one buffer given twice stays one"


def test_busy_threads_are_told_for_calls_that_last():
    x = torch.randn(400, 400)
    with record_operator_times("cpu") as answer:
        x @ x @ x
    assert all(threads and threads <= torch.get_num_threads() + 0.5 for threads in answer().busy_threads), (
        "of any share"
    )
    mode = ClockMode()
    mode.spans_ns, mode.cpu_time_ns = [2_000_000, 900], [3_000_000, 900]
    assert _busy_threads(mode) == [1.5, None]


def test_a_call_that_raised_takes_no_place_among_the_operators():
    with record_operator_times("cpu") as answer:
        x = torch.ones(4)
        with pytest.raises(RuntimeError):
            x.view(3)
        x.add(1).mul(2)
    assert len(answer().times_us) == 3


@pytest.mark.parametrize(
    ("others_s", "stolen", "threads", "crowded"),
    [
        (0.1, 0, None, False),
        (1.0, 0, None, True),
        (0.1, 20, None, False),
        (0.1, 50, None, True),
        (1.0, 0, 0, True),
        (1.0, 0, 1, False),
    ],
)
def test_others_disturb_when_they_want_processors_that_are_in_use(monkeypatch, others_s, stolen, threads, crowded):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen = SystemCounters(page_faults=10**6, other_processes_s=others_s, steal_ticks=stolen)
    assert seen.shows_interference(4.0, threads) is crowded


def test_a_program_that_changes_its_inputs_meets_them_fresh():
    start = torch.ones(4)
    rotation = RotatingBuffers(([start], {}), last_cache_bytes=MIB)
    rotation.save_if_mutated(lambda x: x.mul_(3))
    rotation.bind(lambda x: x.mul_(3))()
    assert start.tolist() == [3.0] * 4
    rotation.restore()
    assert start.tolist() == [1.0] * 4


def test_repetitions_fill_a_sample():
    class Ticking:
        name = "host"

        def time_us(self, call, repetitions=1):
            return 7.0

    assert choose_repetitions(lambda: None, Ticking(), 200.0) == 29


def test_the_host_clock_counts_calls():
    calls = []
    assert HostClock().time_us(lambda: calls.append(1), 5) > 0
    assert len(calls) == 5


def test_operators_are_clocked_one_by_one_in_order():
    x = torch.randn(2000, 2000)
    times = time_operators(lambda: (x @ x).relu(), "cpu", passes=2)
    assert len(times.times_us) == 2
    assert times.times_us[0] > times.times_us[1], "2000^3 multiply-adds take longer than 4 million maxima"


def test_a_failing_operator_leaves_the_clock_usable():
    with pytest.raises(RuntimeError), record_operator_times("cpu") as answer:
        torch.ones(3) @ torch.ones(4)
    assert len(answer().times_us) >= 2


@pytest.mark.gpu
def test_events_agree_with_the_host():
    x = torch.randn(4096, 4096, device="cuda")
    assert EventClock().time_us(lambda: x @ x, 10) > 10
