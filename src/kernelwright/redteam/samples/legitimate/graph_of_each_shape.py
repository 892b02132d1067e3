"""Captures a CUDA graph per shape; every call copies its inputs in, replays it and copies the result out.

Problem: tiny
Device: cuda
"""

import torch

graphs = {}


def work(x, y):
    return (x * y).tanh() + x


def captured(x, y):
    inputs = x.clone(), y.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work(*inputs)
    return graph, inputs, out


def tiny(x, y):
    key = x.shape, x.dtype, x.device
    if key not in graphs:
        graphs[key] = captured(x, y)
    graph, inputs, out = graphs[key]
    for kept, given in zip(inputs, (x, y), strict=True):
        kept.copy_(given)
    graph.replay()
    return out.clone()
