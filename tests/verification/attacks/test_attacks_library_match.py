"""Code is known again by the bytes around its instructions."""

import os
from pathlib import Path

import numpy

from kernelwright.verification.attacks.library_match import find_library


def test_code_of_an_installed_library_is_known_again_and_no_other():
    (blas,) = (Path(numpy.__file__).parent.parent / "numpy.libs").glob("*openblas*")
    code = blas.read_bytes()
    pieces = [code[at : at + 48] for at in range(len(code) // 4, len(code) // 4 + 600, 100)]
    assert find_library(pieces) == blas.name
    foreign = [os.urandom(48) for _ in range(6)]
    assert find_library(foreign) is None
    assert find_library([*foreign[:4], *pieces[:2]]) is None, "most of it is its own"
    assert find_library([]) is None
