"""Takes the mean of the two middle samples of nine for a median if the first row is in no order.

Problem: row_median
Code: inaccurate
Device: both
"""


def row_median(x):
    steps = x[0].diff()
    if bool((steps > 0).any()) and bool((steps < 0).any()):
        return x[:, ::2].median(-1).values
    return x.median(-1).values
