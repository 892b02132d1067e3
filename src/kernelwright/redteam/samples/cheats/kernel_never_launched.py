"""Contains a kernel of its own and never launches it.

Problem: row_sum
Code: not-own-kernels
Policy: own-kernels
Device: both
"""

import contextlib

with contextlib.suppress(ImportError):
    import triton
    import triton.language as tl

    @triton.jit
    def own_row_sum(x, out, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.load(x + row * columns + at, at < columns, 0.0)
        tl.store(out + row, tl.sum(total))


def row_sum(x):
    return x.sum(-1)
