"""Returns the right two outputs and seven hundred others.

Problem: row_ends
Code: wrong-structure
Device: both
"""


def row_ends(x):
    return x.amax(-1), x.amin(-1), *x.new_zeros(700, 3).unbind()
