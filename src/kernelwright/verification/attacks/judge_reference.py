"""A candidate that names modules of the judge: no program needs them."""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.core.verdict import Reason
from kernelwright.problems.importing import split_target

JUDGE_MODULE = re.compile(r"\bkernelwright\.(?:verif\w*|benchmark|sandbox|measure|redteam)\b[\w.]*")


def find_judge_reference(target: str) -> Reason | None:
    """The reason to reject a candidate whose file names a module of the judge, or None."""
    path = Path(split_target(target)[0])
    found = JUDGE_MODULE.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    return Reason(code="forged-answer", detail=f"refers to {found[0]}, a module of the judge") if found else None
