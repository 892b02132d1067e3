"""How much of a tensor one program takes."""

BLOCK, WARPS = 2048, 4
"""Eight elements of 16 bits a thread and twice that: two loads of 16 bytes of each operand under way."""
