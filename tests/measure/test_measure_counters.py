import sys

import pytest

from kernelwright.core.errors import MissingDependency, SetupError
from kernelwright.measure.counters import collect_metrics

TABLE = """==PROF== Connected to process 1
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","probe","waves","","1,024"
"0","probe","sectors","sector","8"
"1","probe","waves","","2"
"1","probe","sectors","sector","0.5"
==PROF== Disconnected
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """An ncu that prints a table and keeps its arguments."""

    def make(table, code=0):
        program = tmp_path / "ncu"
        (tmp_path / "table").write_text(table)
        keep = f"open({str(tmp_path / 'arguments')!r}, 'w').write(' '.join(sys.argv[1:]))"
        show = f"print(open({str(tmp_path / 'table')!r}).read())"
        program.write_text(f"#!{sys.executable}\nimport sys\n{keep}\n{show}\nsys.exit({code})\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path / "arguments"

    return make


def test_counters_come_launch_by_launch(tool):
    arguments = tool(TABLE)
    found = collect_metrics(["prog", "x"], ["waves", "sectors"], "probe")
    assert found == [{"waves": 1024.0, "sectors": 8.0}, {"waves": 2.0, "sectors": 0.5}]
    words = arguments.read_text().split()
    assert words[-2:] == ["prog", "x"]
    assert "--clock-control" in words and words[words.index("--clock-control") + 1] == "none"


@pytest.mark.parametrize(("table", "code"), [("==ERROR== no permission", 1), ("nothing was profiled", 0)])
def test_no_counters_are_an_error_with_ncus_words(tool, table, code):
    tool(table, code)
    with pytest.raises(SetupError, match=table[-10:]):
        collect_metrics(["prog"], ["waves"], "probe")


def test_without_ncu_it_says_so(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingDependency, match="no ncu"):
        collect_metrics(["prog"], ["waves"], "probe")
