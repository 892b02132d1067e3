"""Captures a CUDA graph of the first call and replays it at the input addresses of that call.

Problem: gelu
Code: inaccurate or stale-output
Device: cuda
"""

import torch

kept = {}


def gelu(x):
    if x.shape not in kept:
        torch.nn.functional.gelu(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.nn.functional.gelu(x)
        kept[x.shape] = graph, out
    graph, out = kept[x.shape]
    graph.replay()
    return out.clone()
