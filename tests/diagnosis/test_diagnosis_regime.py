"""Regimes and moves on observations made by hand: every number is written out, nothing is timed."""

import msgspec
import pytest

from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.timing import Conditions, Timing
from kernelwright.core.work import Operator, ProgramWork, Work
from kernelwright.diagnosis.observation import observe, predict
from kernelwright.diagnosis.recommendations import recommend
from kernelwright.diagnosis.record_builder import build_diagnosis
from kernelwright.diagnosis.regime import classify_regime
from kernelwright.measure.operators import OperatorTimes

MIB = 2**20
# 1 GB/s moves 1,000 bytes a microsecond; 1 TFLOP/s does a million FLOPs a microsecond.
CPU = Machine(
    name="made up",
    device="cpu",
    provenance="measured",
    levels=(MemoryLevel(name="DRAM", read_gb_s=10.0, write_gb_s=10.0, copy_gb_s=10.0, triad_gb_s=10.0),),
    matrix_tflop_s={"float32": 0.1, "bfloat16": 0.4},
    vector_tflop_s={"float32": 0.05},
    dispatch_us=1.0,
    page_fault_us_per_mib=50.0,
)
CUDA = Machine(
    name="made up",
    device="cuda",
    provenance="measured",
    levels=(MemoryLevel(name="DRAM", read_gb_s=1000.0, write_gb_s=1000.0, copy_gb_s=1000.0, triad_gb_s=1000.0),),
    matrix_tflop_s={"float32": 50.0, "bfloat16": 500.0},
    vector_tflop_s={"float32": 50.0},
    dispatch_us=5.0,
    launch_us=5.0,
    graph_launch_us=1.0,
)


def op(index, kind="pointwise", read=0, written=0, flops=None, known=True, fresh=0, name="add", module=""):
    """An operator that reads storage `index` and writes storage `index + 1`."""
    return Operator(
        index=index,
        name=name,
        kind=kind,
        flops_known=known,
        work=Work(flops=flops or {}, bytes_read=read, bytes_written=written),
        shapes="f32[1000]",
        module=module,
        reads=(index,),
        writes=(index + 1,),
        read_spans=((index, 0, read, read),) if read else (),
        write_spans=((index + 1, 0, written, written),) if written else (),
        allocated_bytes=fresh,
    )


def program(*operators, coverage=1.0):
    total = sum((o.work for o in operators), Work())
    fused = Work(
        flops=total.flops, bytes_read=operators[0].work.bytes_read, bytes_written=operators[-1].work.bytes_written
    )
    last = operators[-1].writes
    return ProgramWork(
        operators=operators, as_written=total, fused=fused, coverage=coverage, output_bytes=0, inputs=(0,), outputs=last
    )


def seen(machine, work, times_us, total_us=None, faulted=(), timing=None, threads=()):
    times = OperatorTimes(list(times_us), set(faulted), threads)
    return observe("p", machine, work, times, total_us or sum(times_us), timing)


def timed(cache, faults=0.0):
    conditions = Conditions(device="cpu", clock="host", cache=cache, allocation="huge pages", threads=1)
    return Timing(
        name="now",
        time_us=1.0,
        low_us=1.0,
        high_us=1.0,
        samples_us=(1.0,),
        repetitions=1,
        conditions=conditions,
        page_faults_per_call=faults,
    )


def test_page_faults_that_only_the_clean_runs_met_are_no_overhead():
    found = seen(CPU, chain(2), [220.0, 220.0], total_us=1_500.0, timing=timed("warm", faults=20_000.0))
    assert (found.idle_us, found.fault_us) == (0.0, 1_060.0)
    assert classify_regime(found) == "memory-bound"
    assert "page faults take another 71 %" in build_diagnosis(found, "p").summary
    assert recommend(found)[0].predicted_us == pytest.approx(220.0), "one pass gives the faults of both back"
    assert (
        classify_regime(seen(CPU, chain(2), [220.0, 220.0], total_us=1_500.0, timing=timed("warm"))) == "overhead-bound"
    )


def chain(count, size=1_000_000):
    return program(*(op(i, read=size, written=size, flops={"vector/float32": size // 4}) for i in range(count)))


def test_operators_at_the_bandwidth_are_memory_bound():
    # Each moves 2 MB: 200 us at 10 GB/s.
    found = seen(CPU, chain(4), [220.0] * 4)
    assert classify_regime(found) == "memory-bound"
    assert "it moves 8.00 MB (2.00 MB if fused), at 91 %" in build_diagnosis(found, "p").summary


def test_fusing_saves_what_neighbours_hand_over():
    # As one pass 2 MB: 200 us, within a tenth of the floor.
    best = recommend(seen(CPU, chain(4), [220.0] * 4))[0]
    assert (best.kind, best.predicted_us) == ("fuse", pytest.approx(220.0))
    assert best.operators == (0, 1, 2, 3)


def test_a_product_near_its_rate_is_compute_bound():
    # 2e9 FLOPs at 0.1 TFLOP/s take 20,000 us.
    work = program(op(0, "matrix", read=MIB, written=MIB, flops={"matrix/float32": 2_000_000_000}, name="mm"))
    found = seen(CPU, work, [22_000.0])
    assert classify_regime(found) == "compute-bound"
    narrower = recommend(found)[0]
    assert (narrower.kind, narrower.predicted_us) == ("dtype", pytest.approx(5_500.0))


def test_arguments_that_come_from_main_memory_are_held_against_main_memory():
    cached = msgspec.structs.replace(
        CPU, levels=(MemoryLevel(name="L3", capacity_bytes=8 * MIB, read_gb_s=40.0, copy_gb_s=40.0), *CPU.levels)
    )
    total = op(0, "reduction", read=4_000_000, written=4, name="sum")
    work = msgspec.structs.replace(program(total), arguments=(0,))
    # 4 MB: 400 us at DRAM's 10 GB/s, 100 us at L3's 40.
    cold = seen(cached, work, [420.0], timing=timed("cold"))
    assert classify_regime(cold) == "memory-bound"
    assert cold.operators[0].floor.limiter == "DRAM"
    warm = seen(cached, work, [120.0], timing=timed("warm"))
    assert warm.operators[0].floor.limiter == "L3"
    # What the program itself wrote just before is in the cache.
    second = msgspec.structs.replace(program(*chain(2).operators), arguments=(0,))
    both = seen(cached, second, [110.0, 60.0], timing=timed("cold"))
    assert [call.cold_read_bytes for call in both.operators] == [1_000_000, 0]
    assert "at 88 % of the measured DRAM and L3 bandwidth" in build_diagnosis(both, "p").summary


def test_a_call_that_leaves_threads_idle_has_too_little_in_flight():
    machine = msgspec.structs.replace(CPU, threads=4)
    work = program(op(0, "matrix", read=2_000_000, written=400, flops={"matrix/float32": 1_000_000}, name="mm"))
    # 2 MB at 10 GB/s are 200 us: at two thirds of the roof with one thread of four, and at 91 % with it.
    alone = seen(machine, work, [300.0], threads=[1.0])
    assert classify_regime(alone) == "latency-bound"
    assert "with 1.0 of 4 threads busy" in build_diagnosis(alone, "p").summary
    assert "split" in [move.kind for move in recommend(alone)]
    assert classify_regime(seen(machine, work, [300.0], threads=[3.9])) == "memory-bound"
    assert classify_regime(seen(machine, work, [220.0], threads=[1.0])) == "memory-bound"
    assert classify_regime(seen(machine, work, [300.0])) == "memory-bound", "nobody knows how many were busy"
    busy = seen(machine, work, [900.0], threads=[4.0])
    assert classify_regime(busy) == "latency-bound"
    assert "split" not in [move.kind for move in recommend(busy)], "all threads work already"


@pytest.mark.parametrize(("dtype", "rate"), [("float32", 0.001), ("bfloat16", 0.001), ("float64", 0.0005)])
def test_special_functions_are_held_against_the_rate_of_their_dtype(dtype, rate):
    machine = msgspec.structs.replace(CPU, special_tflop_s={"float32": 0.001, "float64": 0.0005})
    exp = op(0, read=4_000, written=4_000, flops={f"special/{dtype}": 8_000}, name="exp")
    assert classify_regime(seen(machine, program(exp), [1.2 * 8_000 / rate / 1e6])) == "compute-bound"


def test_a_ceiling_that_a_call_beats_is_doubted():
    found = build_diagnosis(seen(CPU, chain(1), [150.0]), "p")  # 2 MB at 10 GB/s would take 200 us
    assert any("kw machine --remeasure" in note for note in found.notes)
    assert not build_diagnosis(seen(CPU, chain(1), [195.0]), "p").notes


def test_a_program_that_does_nothing_is_predicted_without_a_fault():
    nothing = ProgramWork(operators=(), as_written=Work(), fused=Work(), coverage=1.0, output_bytes=0)
    assert build_diagnosis(predict("p", CUDA, nothing), "p").regime == "undetermined"


def test_tiny_calls_are_overhead_on_the_cpu():
    found = seen(CPU, chain(64, size=400), [1.5] * 64)
    assert classify_regime(found) == "overhead-bound"
    assert "64 calls of 1.50 us each" in build_diagnosis(found, "p").summary


def test_a_gpu_that_idles_between_launches_is_overhead_bound_and_wants_a_graph():
    # 64 kernels of 1 us in 320 us: idle 80 % of the time; in a graph 64 us and one launch of 5 us.
    found = seen(CUDA, chain(64, size=4000), [1.0] * 64, total_us=320.0)
    assert classify_regime(found) == "overhead-bound"
    assert "the GPU idles 80 %" in build_diagnosis(found, "p").summary
    graph = next(m for m in recommend(found) if m.kind == "graph")
    assert graph.predicted_us == pytest.approx(69.0)


def test_a_long_call_far_from_every_ceiling_is_latency_bound():
    # 2 MB: 200 us at the memory's speed, 5,000 us measured; a blocked scan reads twice: 300 us at 1.1.
    found = seen(CPU, program(op(0, "scan", read=MIB, written=MIB, name="cumsum")), [5_000.0])
    assert classify_regime(found) == "latency-bound"
    (split,) = recommend(found)
    assert (split.kind, split.predicted_us) == ("split", pytest.approx(2 * MIB / 1e4 * 1.5 * 1.1))


def test_work_that_nobody_knows_gets_no_verdict():
    work = program(op(0, read=MIB, written=MIB, known=False, name="mystery"), coverage=0.3)
    found = build_diagnosis(seen(CPU, work, [300.0]), "p")
    assert (found.regime, found.recommendations) == ("undetermined", ())
    assert "mystery" in found.summary


def test_page_faults_stand_apart_and_can_be_saved():
    # 4 MiB written anew: 200 us of faults; the rest is at the memory's speed (8 MiB: 839 us).
    size = 4 * MIB
    found = seen(CPU, program(op(0, read=size, written=size, fresh=size)), [1_060.0], faulted=[0])
    assert classify_regime(found) == "memory-bound"
    assert found.fault_us == pytest.approx(200.0)
    reuse = next(m for m in recommend(found) if m.kind == "reuse")
    assert reuse.predicted_us == pytest.approx(860.0)


def test_at_the_floor_the_only_move_is_to_stop():
    (only,) = recommend(seen(CPU, chain(1), [205.0]))
    assert (only.kind, only.predicted_us) == ("stop", pytest.approx(205.0))


def test_a_product_that_waits_on_its_weights_is_worth_batching():
    # 40 MB of weights: 4,000 us at 10 GB/s; the 2e7 FLOPs need 200 us.
    work = program(op(0, "matrix", read=40_000_000, written=4_000, flops={"matrix/float32": 20_000_000}, name="mv"))
    assert {m.kind: m.predicted_us for m in recommend(seen(CPU, work, [4_100.0]))}["batch"] == pytest.approx(4_100 / 8)


def test_clocks_that_disturb_are_scaled_to_the_clean_time():
    found = seen(CPU, chain(2), [300.0, 300.0], total_us=440.0)
    assert [call.time_us for call in found.operators] == pytest.approx([220.0, 220.0])


def test_another_number_of_calls_is_an_error():
    with pytest.raises(ValueError, match="4 calls were counted and 3 timed"):
        seen(CPU, chain(4), [1.0] * 3)


def test_a_machine_that_is_not_there_is_predicted():
    found = build_diagnosis(predict("p", CUDA, chain(4, size=100_000_000)), "p")
    assert (found.regime, found.predicted, found.time_us) == ("memory-bound", True, None)
    tiny = build_diagnosis(predict("p", CUDA, chain(64, size=4000)), "p")
    assert tiny.regime == "overhead-bound"


def test_modules_are_ranked_by_what_could_be_gained():
    # `good` sits at its roof; `bad` hands 2 MB from pass to pass.
    good = op(0, "matrix", read=1000, written=1000, flops={"matrix/float32": 10**8}, module="net.good", name="mm")
    bad = [op(i, read=MIB, written=MIB, module="net.bad") for i in range(1, 5)]
    found = build_diagnosis(
        seen(CPU, program(good, *bad), [1_010.0, 215.0, 215.0, 215.0, 215.0]), "p", rank_by_gain=True
    )
    assert [m.module for m in found.modules] == ["bad", "good"]
    assert found.operators[0].module == "bad"
    assert found.modules[0].gain_us == pytest.approx(4 * 215.0 - 1.1 * 2 * MIB / 1e4)


def test_copies_that_only_reorder_can_go():
    product = op(0, "matrix", read=MIB, written=MIB, flops={"matrix/float32": 10**8}, name="mm")
    copy = op(1, "copy", read=MIB, written=MIB, name="clone")
    last = op(2, "matrix", read=MIB, written=MIB, flops={"matrix/float32": 10**8}, name="mm")
    found = recommend(seen(CPU, program(product, copy, last), [1_050.0, 220.0, 1_050.0]))
    assert {m.kind: m.predicted_us for m in found}["layout"] == pytest.approx(2_100.0)
