"""Three real products instead of four, in FP64, where their cancellation does not matter.

Problem: complex_product
Device: both
"""

import torch


def complex_product(a, b):
    ar, ai, br, bi = a.real.double(), a.imag.double(), b.real.double(), b.imag.double()
    real, imaginary = ar @ br, ai @ bi
    mixed = (ar + ai) @ (br + bi)
    return torch.complex((real - imaginary).float(), (mixed - real - imaginary).float())
