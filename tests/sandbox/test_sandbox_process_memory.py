"""What a stopped process was waiting for."""

import subprocess
import sys
import time

import pytest

from kernelwright.sandbox import process_memory

pytestmark = pytest.mark.skipif(not process_memory.can_inspect(), reason="nobody may look into a process here")
PATIENCE_S = 20.0


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os.read(os.pipe()[0], 1)", process_memory.waits_for_process_or_file),
        ("import subprocess; subprocess.run(['sleep', '60'])", process_memory.waits_for_process_or_file),
        ("import threading; threading.Event().wait()", process_memory.find_futex_stack),
    ],
)
def test_who_waits_for_another_process_does_not_wait_for_a_thread(code, told):
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        end = time.monotonic() + PATIENCE_S
        while not _asked(process.pid, told):
            assert time.monotonic() < end
        other = {process_memory.waits_for_process_or_file, process_memory.find_futex_stack} - {told}
        assert not any(_asked(process.pid, one) for one in other)
    finally:
        process.kill()
        process.wait()


def _asked(pid, question):
    stopped = process_memory.stop(pid, pid)
    try:
        return question(pid)
    finally:
        process_memory.resume(stopped)
        time.sleep(0.01)
