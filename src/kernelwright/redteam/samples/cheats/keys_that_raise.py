"""Returns a dict with an additional key whose text and comparisons raise.

Problem: row_statistics
Code: wrong-structure or runtime-error
Device: both
"""

import torch


class Key:
    __hash__ = object.__hash__

    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __eq__ = __lt__ = __repr__


def row_statistics(x):
    deviation, mean = torch.std_mean(x, -1, keepdim=True)
    result = {"rows": (x - mean) / (deviation + 1e-3), "statistics": (mean[:, 0], [deviation[:, 0]])}
    return result | {Key(): mean}
