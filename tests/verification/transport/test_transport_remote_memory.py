"""What reading a child's memory says of whoever is not there."""

import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from kernelwright.core.errors import CrashError, TamperingError
from kernelwright.sandbox import can_inspect
from kernelwright.verification.transport.remote_memory import RemoteMemory

pytestmark = pytest.mark.skipif(not can_inspect(), reason="the memory of children cannot be reached here")


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_who_names_memory_that_is_not_there_is_a_forger_and_who_was_killed_is_none(sleeper):
    reach = RemoteMemory(SimpleNamespace(pid=sleeper.pid))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TamperingError, match="reported address is not mapped"):
        reach.read((4096, 8))
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(CrashError, match="was killed") as caught:
        reach.read((4096, 8))
    assert caught.value.code == "crash"
