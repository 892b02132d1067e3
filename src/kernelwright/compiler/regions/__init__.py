"""Regions: the partition of a graph into kernels, and their intermediate representation."""
