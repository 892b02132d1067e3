"""Programs are captured here in hundreds of tests: torch.export does without what it would repeat."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import brisk_export  # noqa: F401 - it patches torch
