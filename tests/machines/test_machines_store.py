"""What is kept: found again, and never trusted when it is not what was written."""

from __future__ import annotations

import msgspec
import pytest

import kernelwright
from kernelwright.core import progress
from kernelwright.core.errors import DeviceError
from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.machines import store

KEY = {"name": "x", "threads": "2", "torch": "2"}
KNOWN = Machine(
    name="by hand",
    device="cpu",
    provenance="measured",
    levels=(MemoryLevel(name="DRAM", read_gb_s=10, write_gb_s=10, copy_gb_s=10, triad_gb_s=10),),
    matrix_tflop_s={"float32": 1.0},
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    return tmp_path / "machine"


@pytest.fixture
def measured(monkeypatch):
    """Counts the measurements instead of making them."""
    from kernelwright.machines import cpu

    runs = []

    def measure_cpu():
        runs.append(len(runs))
        progress.report_stage("measuring")
        return KNOWN

    monkeypatch.setattr(cpu, "measure_cpu", measure_cpu)
    return runs


def test_what_was_kept_is_found():
    store.save(KEY, KNOWN)
    assert store.load(KEY) == KNOWN


@pytest.mark.parametrize("change", [{"name": "y"}, {"threads": "4"}, {"torch": "3"}, {"more": "1"}])
def test_another_device_or_software_finds_nothing(change):
    store.save(KEY, KNOWN)
    assert store.load(KEY | change) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"10", b"99"),
        lambda data: b"\xff\xfe" + data,
        lambda data: data.partition(b"\n")[2],
        lambda data: b"{}",
    ],
    ids=["empty", "half", "another figure", "not text", "no checksum", "another document"],
)
def test_a_damaged_file_is_not_believed(cache, damage):
    store.save(KEY, KNOWN)
    (file,) = cache.glob("*.json")
    file.write_bytes(damage(file.read_bytes()))
    assert store.load(KEY) is None


@pytest.mark.parametrize(
    "change",
    [
        {"levels": ()},
        {"matrix_tflop_s": {}},
        {"matrix_tflop_s": {"float32": 0.0}},
        {"matrix_tflop_s": {"float32": float("inf")}},
        {"levels": (MemoryLevel(name="DRAM", copy_gb_s=-1),)},
        {"levels": (MemoryLevel(name="DRAM"),)},
    ],
)
def test_figures_that_cannot_be_are_not_believed(change):
    broken = msgspec.structs.replace(KNOWN, **change)
    assert not store.is_valid(broken)
    store.save(KEY, broken)
    assert store.load(KEY) is None


def test_a_machine_is_measured_once_then_remembered(measured):
    first, second = kernelwright.machine(), kernelwright.machine("cpu")
    assert first == second and measured == [0]
    assert first.software["torch"] and first.software["kernelwright"] == kernelwright.__version__
    assert first.software["allocation"] in ("huge pages", "4 KiB pages")


def test_remeasure_measures_again(measured):
    kernelwright.machine()
    kernelwright.machine(remeasure=True)
    assert measured == [0, 1]


def test_a_corrupted_file_is_measured_again_and_repaired(measured, cache):
    kernelwright.machine()
    (file,) = cache.glob("*.json")
    file.write_bytes(file.read_bytes()[:-20])
    assert kernelwright.machine().name == "by hand"
    kernelwright.machine()
    assert measured == [0, 1]


def test_a_disturbed_measurement_is_made_again_by_the_next_process_and_only_rises(monkeypatch):
    from kernelwright import machines
    from kernelwright.machines import cpu

    low = msgspec.structs.replace(KNOWN, matrix_tflop_s={"float32": 0.1}, notes=(store.DISTURBED,), dispatch_us=9.0)
    quiet = msgspec.structs.replace(KNOWN, matrix_tflop_s={"float32": 1.0}, dispatch_us=1.0)
    runs = iter([low, quiet])
    monkeypatch.setattr(cpu, "measure_cpu", lambda: next(runs))
    monkeypatch.setattr(machines, "_MEASURED_KEYS", [])
    assert kernelwright.machine().matrix_tflop_s == {"float32": 0.1}
    assert kernelwright.machine().matrix_tflop_s == {"float32": 0.1}, "one process does not measure twice"
    monkeypatch.setattr(machines, "_MEASURED_KEYS", [])
    final = kernelwright.machine()
    assert final.matrix_tflop_s == {"float32": 1.0} and not store.is_provisional(final)
    monkeypatch.setattr(machines, "_MEASURED_KEYS", [])
    assert kernelwright.machine() == final, "a quiet measurement is final"


def test_the_better_of_two_measurements_figure_by_figure():
    later = msgspec.structs.replace(
        KNOWN,
        levels=(MemoryLevel(name="DRAM", read_gb_s=20, write_gb_s=5, copy_gb_s=10),),
        matrix_tflop_s={"float32": 0.5, "int8": 2.0},
        dispatch_us=2.0,
    )
    best = store.merge_best(msgspec.structs.replace(KNOWN, dispatch_us=1.0, page_fault_us_per_mib=3.0), later)
    assert best.levels == (MemoryLevel(name="DRAM", read_gb_s=20, write_gb_s=10, copy_gb_s=10, triad_gb_s=10),)
    assert best.matrix_tflop_s == {"float32": 1.0, "int8": 2.0}
    assert (best.dispatch_us, best.page_fault_us_per_mib, best.launch_us) == (1.0, 3.0, None)


def test_another_thread_count_is_another_measurement(measured):
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        kernelwright.machine()
        torch.set_num_threads(2)
        kernelwright.machine()
    finally:
        torch.set_num_threads(threads)
    assert measured == [0, 1]


def test_a_gpu_that_is_not_here_says_what_to_do_instead(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError) as caught:
        kernelwright.machine("cuda")
    assert "--spec h200" in caught.value.next and "--device cpu" in caught.value.next


def test_an_unknown_device_is_refused():
    with pytest.raises(DeviceError, match="'tpu'"):
        kernelwright.machine("tpu")


def test_a_datasheet_is_never_measured(measured, cache):
    assert kernelwright.machine("cuda", spec="h200").provenance == "datasheet"
    assert measured == [] and not cache.exists()


def test_a_box_that_is_never_quiet_is_measured_twice_and_says_so():
    low = msgspec.structs.replace(KNOWN, notes=(store.DISTURBED,))
    final = store.merge_best(low, low)
    assert not store.is_provisional(final)
    assert final.notes == (store.STILL_DISTURBED,)
