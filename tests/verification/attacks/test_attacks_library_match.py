"""Code is known again by the bytes around its instructions."""

import os
from pathlib import Path

import numpy

from kernelwright.verification.attacks.library_match import holder


def test_code_of_an_installed_library_is_known_again_and_no_other():
    (blas,) = (Path(numpy.__file__).parent.parent / "numpy.libs").glob("*openblas*")
    code = blas.read_bytes()
    pieces = [code[at : at + 48] for at in range(len(code) // 4, len(code) // 4 + 600, 100)]
    assert holder(pieces) == blas.name
    foreign = [os.urandom(48) for _ in range(6)]
    assert holder(foreign) is None
    assert holder([*foreign[:4], *pieces[:2]]) is None, "most of it is its own"
    assert holder([]) is None
