"""`kw kernels` with the evidence behind each kernel."""

from kernelwright.core.document import document, encode
from kernelwright.core.library import ArmTime, KernelRecord, KernelRow
from kernelwright.judge.evidence import load, sources_of
from kernelwright.judge.listing import library


def written(folder, machine, date, ours):
    arms = ArmTime(name="kernelwright", time_us=ours), ArmTime(name="eager", time_us=10.0)
    record = KernelRecord(
        kind="kernel", name="softmax", state="measured", device="cuda", machine=machine, date=date, software={},
        sources={}, rows=(KernelRow(what="forward", size=(2, 3), bytes=24, copy_us=1.0, arms=arms),),
    )  # fmt: skip
    path = folder / machine / "kernel" / "softmax.json"
    path.parent.mkdir(parents=True)
    path.write_text(encode(document("evidence", record)))
    return path


def test_the_newest_record_is_told(tmp_path):
    written(tmp_path, "old", "2026-01-01", 10.0)
    path = written(tmp_path, "new", "2026-02-01", 5.0)
    found = {one.name: one.evidence for one in library(str(tmp_path)).kernels}
    assert found["softmax"] == "2.00x the best of eager in 1 comparison on new, 2026-02-01"
    assert not found["rms_norm"]
    assert load(path).rows[0].gain == 2.0


def test_a_record_hangs_on_its_family_and_on_what_measures(tmp_path):
    sources = {path.name: path for path in sources_of("kernel", "softmax", tmp_path)}
    assert {"paired.py", "tile.py", "launching.py", "repeating.py"} <= sources.keys()
    whole = [str(path) for path in sources_of("kernel", "softmax", tmp_path)]
    assert any(path.endswith("softmaxes/kernel.py") for path in whole)
    assert not any("rotary" in path for path in whole)
