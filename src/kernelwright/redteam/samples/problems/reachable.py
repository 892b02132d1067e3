"""Which nodes of a graph reach each other in at most four steps, by products of boolean matrices."""

import torch


def reachable(edges):
    for _ in range(2):
        edges = edges | (edges.float() @ edges.float() > 0.5)
    return edges


def get_inputs():
    return [torch.rand(130, 130) < 0.01]
