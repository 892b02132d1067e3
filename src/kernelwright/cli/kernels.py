"""kw kernels: what the library holds."""

from __future__ import annotations

from kernelwright.cli.answer import Manner, answer
from kernelwright.cli.options import DebugOption, JsonOption
from kernelwright.core.library import Library


def kernels(json: JsonOption = False, debug: DebugOption = False) -> int:
    """What does the library hold? Every kernel with what it takes, where it comes from, and the evidence behind it.

    Example: kw kernels

    Example: kw sass kernels/rms_norm:backward
    """

    def call() -> Library:
        from kernelwright.evidence.library import library

        return library()

    return answer("kernels", call, Library, Manner(json, None, debug))
