"""Loops over the outputs and the second index, and multiplies only vectors and matrices.

Problem: bilinear_form
Device: both
"""


def bilinear_form(x, w, y):
    out = x.new_zeros(len(x), len(w))
    for o in range(len(w)):
        for j in range(w.shape[2]):
            out[:, o] += (x @ w[o, :, j]) * y[:, j]
    return out
