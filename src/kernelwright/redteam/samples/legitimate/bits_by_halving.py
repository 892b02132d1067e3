"""Adds adjacent bits, then pairs, then groups of four, and the bytes by a product that wraps around.

Problem: bit_distances
Device: both
"""


def bit_distances(x, y):
    bits = x[:, None] ^ y
    bits = bits - ((bits >> 1) & 0x5555555555555555)
    bits = (bits & 0x3333333333333333) + ((bits >> 2) & 0x3333333333333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (bits * 0x0101010101010101 >> 56) & 0x7F
