"""One way to run a whole program: its layers, and its instance in memory."""

import dataclasses

import torch
from torch import nn

from kernelwright.compiler.assembly.channels_last_layer import ChannelsLastLayer
from kernelwright.compiler.assembly.cuda_graph_layer import CudaGraphLayer
from kernelwright.compiler.assembly.cudnn_benchmark_layer import CudnnBenchmarkLayer
from kernelwright.compiler.assembly.output_file import CompiledLayer
from kernelwright.compiler.program_variant import COMPILED, EAGER, clone_with_class
from kernelwright.problems import Problem


def test_a_variant_in_a_graph_has_the_graph_on_top():
    variant = dataclasses.replace(COMPILED, in_graph=True)
    assert variant.name == "torch.compile, in a CUDA graph"
    assert list(map(type, variant.layers)) == [CompiledLayer, CudaGraphLayer]
    assert "class Compiled(" in variant.source(Problem.from_callable(lambda x: x + 1, torch.zeros(2)), "A test.")


def test_a_variant_with_every_option_has_its_layers_in_this_order():
    variant = dataclasses.replace(COMPILED, channels_last=True, cudnn_benchmark=True, in_graph=True)
    assert variant.name == "torch.compile, channels-last, cuDNN's fastest algorithms, in a CUDA graph"
    layers = [CompiledLayer, ChannelsLastLayer, CudnnBenchmarkLayer, CudaGraphLayer]
    assert list(map(type, variant.layers)) == layers
    assert EAGER.layers == ()


def test_a_copy_with_another_class_shares_its_weights_and_not_its_hooks():
    class Other(nn.Linear):
        pass

    model = nn.Linear(3, 3)
    made = clone_with_class(model, Other)
    assert type(made) is Other
    assert made.weight is model.weight
    model.weight = nn.Parameter(torch.ones(3, 3))
    assert made.weight is model.weight
    made.register_forward_hook(lambda *_: None)
    assert not model._forward_hooks


def test_a_function_becomes_an_instance():
    class Other(nn.Module):
        pass

    assert type(clone_with_class(torch.relu, Other)) is Other
