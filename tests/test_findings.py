"""Every file of docs/findings has the same form, and its README lists them all.

`python tests/test_findings.py --write` writes the README.
"""

import datetime
import re
import sys
from itertools import groupby
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "findings"
README = FOLDER / "README.md"
TOPICS = {
    "timing": "Benchmark clocks and baselines",
    "diagnosis": "Ceilings, bottlenecks and predictions of `kw why`",
    "memory": "DRAM, L2, L1 and host memory",
    "launches": "Host and device cost of launches",
    "triton": "Triton 3.6",
    "compiler": "Code that `kw optimize` generates for GPUs",
    "kernels": "The kernel library",
    "hopper": "Fragments, shared memory and clusters",
    "cuda-cpp": "CUDA C++ and FP32 GEMM",
    "cpu-cpp": "Generated C++ for CPUs",
    "numerics": "Accuracy",
    "verification": "Verification of untrusted candidates",
    "sandbox": "Isolation of untrusted processes",
    "toolchain": "Python, torch and CUDA tools",
}
FIELDS = ["title", "machine", "software", "date", "topic", "status"]
HEADINGS = ["Symptom", "Cause", "Evidence", "Fix", "Applies to"]
INTRO = """# Findings

What was learned on hardware, one file per finding. A file is named by its topic and states the machine, the software
and whether it still holds. Compare numbers only within one table.

To add a finding, copy the form of an existing file and run `python tests/test_findings.py --write`.
"""


def front_matter(path: Path) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in path.read_text().split("---\n")[1].splitlines())


def findings() -> dict[Path, dict[str, str]]:
    return {path: front_matter(path) for path in sorted(FOLDER.glob("*.md")) if path != README}


def index() -> str:
    """The text of the README: the titles under a heading for each topic."""
    text, order = INTRO, list(TOPICS)
    entries = sorted(findings().items(), key=lambda entry: order.index(entry[1]["topic"]))
    for topic, group in groupby(entries, key=lambda entry: entry[1]["topic"]):
        text += f"\n## {TOPICS[topic]}\n"
        for path, fields in group:
            text += f"- [{fields['title']}]({path.name}){' (superseded)' * (fields['status'] != 'holds')}\n"
    return text


def test_every_finding_has_the_common_form():
    for path, fields in findings().items():
        body = path.read_text().split("---\n", 2)[2]
        assert list(fields) == FIELDS, path
        assert not any(re.search(r": | #", value) for value in fields.values()), f"{path}: not a plain YAML value"
        assert len(fields["title"].split()) <= 14, path
        assert path.stem.startswith(f"{fields['topic']}-"), path
        assert datetime.date.fromisoformat(fields["date"]), path
        status = re.fullmatch(r"holds|superseded by ([\w-]+)", fields["status"])
        assert status and (status[1] is None or (FOLDER / f"{status[1]}.md").exists()), path
        assert re.findall(r"^## (.+)$", body, re.MULTILINE) == HEADINGS, path
        assert 80 <= len(re.findall(r"\S*\w\S*", body)) <= 250, f"{path}: number of words"


def test_the_readme_lists_every_finding():
    assert README.read_text() == index(), "run python tests/test_findings.py --write"


if __name__ == "__main__" and "--write" in sys.argv:
    README.write_text(index())
