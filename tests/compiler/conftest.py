"""Programs are captured here in hundreds of tests: torch.export does without what it would repeat, and one fork server
imports torch for all files that are verified."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import brisk_export  # noqa: F401 - it patches torch

from kernelwright.sandbox import ForkServer
from kernelwright.verification.transport.runners import PRELOAD_MODULES


@pytest.fixture(scope="session")
def fork_server(private_cache):
    with ForkServer(PRELOAD_MODULES) as server:
        yield server
