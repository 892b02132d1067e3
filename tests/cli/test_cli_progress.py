"""What a long command says while it runs."""

import subprocess
import sys

SLOW = """
import sys, time
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.commands import CommandResult
from kernelwright.core.progress import report_stage
from kernelwright.core.verdict import Reason
def task():
    report_stage("thinking: 1 of 2")
    time.sleep(2.5)
    return CommandResult(Reason(code="timeout", detail="1 s"))
sys.exit(run_command("why", task, Reason, OutputOptions(json=True)))
"""


def test_a_command_says_what_it_does_on_stderr_and_nothing_of_it_on_stdout():
    done = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, check=True)
    assert "s] thinking: 1 of 2" in done.stderr
    assert done.stdout.startswith("{") and "thinking" not in done.stdout
