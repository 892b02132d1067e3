"""LSTM, GRU and RNN as one persistent kernel for all time steps, in place of a launch or more for each step.

cuDNN takes 14 us for each of the dependent steps of an LSTM (H200, batch 10, 256 hidden units). Here the programs of a
launch keep the weights on chip and wait for each other's states. The layers of a stack run in one launch, each a step
behind the layer below; those of a bidirectional stack one after the other, with both directions in one launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kernelwright.compiler.capture.recurrences import RECURRENCES
from kernelwright.compiler.library.recurrence_kernel import (
    NUM_SLOTS,
    WAIT_HELPER,
    WORD_TYPES,
    KernelShape,
    print_recurrence_kernel,
)
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.triton.op_templates import select_helpers
from kernelwright.compiler.triton.source_lines import wrap_line
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

MAX_BATCH = 64
MAX_PROGRAMS = 132
"""Multiprocessors of an H100 or H200: each holds one program."""
MAX_SHARED_BYTES = 227 * 1024
"""Shared memory of a program on sm_90."""
MAX_ACCUMULATORS = 128
"""FP32 sums of a thread."""
MAX_WORKSPACE_ELEMENTS = 2**31
"""Offsets in the workspace are 32-bit."""
COLUMNS = (64, 32, 128)
"""Sums of products of a program for each batch item, in the order in which they are tried: fewer mean more programs
that exchange states, more mean longer products."""
WARPS = (8, 4)


class RecurrenceConfig(Record, frozen=True, kw_only=True):
    """How a recurrence is divided into programs.

    Attributes:
        UNITS: hidden units of a program.
        chained: the layers of a stack run at the same time; else one after the other.
    """

    UNITS: int
    num_warps: int
    chained: bool


class Recurrence(Record, frozen=True, kw_only=True):
    """The arguments of a call of a recurrence.

    Attributes:
        tensors: the names in the graph by role: `x`, `h_0`, `c_0` and for each layer and direction `w_ih_0`, `w_hh_0`
            and, with biases, `b_ih_0` and `b_hh_0`.
    """

    operator: str
    dtype: str
    tensors: dict[str, str]
    has_biases: bool
    num_layers: int
    num_directions: int
    batch_first: bool
    num_steps: int
    batch: int
    num_inputs: int
    hidden: int


def parse_recurrence(region: CallRegion) -> Recurrence:
    """Return the arguments of a call.

    Raises:
        Unsupported: the kernel does not compute it, with the reason.
    """
    literals, shapes = region.literals, region.shapes
    dtypes = {dtype for _, dtype in region.tensors.values()}
    num_layers, has_biases = int(literals["num_layers"]), literals["has_biases"] == "True"
    num_directions, batch_first = 1 + (literals["bidirectional"] == "True"), literals["batch_first"] == "True"
    count = 4 if has_biases else 2
    num_params = sum(parameter.startswith("params[") for parameter in shapes)
    hidden_shape = next(shape for parameter, shape in shapes.items() if parameter.startswith("hx"))
    num_steps, batch = shapes["input"][:2][:: -1 if batch_first else 1]
    if len(dtypes) > 1 or not dtypes <= WORD_TYPES.keys():
        raise Unsupported(f"a recurrence of {', '.join(sorted(dtypes))}")
    if literals["train"] == "True" and float(literals["dropout"]) and num_layers > 1:
        raise Unsupported("a recurrence with dropout between its layers")
    if num_params != num_layers * num_directions * count:
        raise Unsupported("a recurrence with projections")
    if not 0 < batch <= MAX_BATCH or not num_steps:
        raise Unsupported(f"a recurrence of {num_steps} steps and a batch of {batch}; supported are 1 to {MAX_BATCH}")
    if num_layers * num_directions * num_steps * batch * hidden_shape[-1] >= MAX_WORKSPACE_ELEMENTS:
        raise Unsupported("a recurrence with 2**31 states")
    return Recurrence(
        operator=region.operator,
        dtype=dtypes.pop(),
        tensors={_role(parameter, count): name for parameter, (name, _) in region.tensors.items()},
        has_biases=has_biases,
        num_layers=num_layers,
        num_directions=num_directions,
        batch_first=batch_first,
        num_steps=num_steps,
        batch=batch,
        num_inputs=shapes["input"][-1],
        hidden=hidden_shape[-1],
    )


def _role(parameter: str, count: int) -> str:
    """The role of a parameter; each layer and direction has so many."""
    if not parameter.startswith("params["):
        return {"input": "x", "hx": "h_0", "hx[0]": "h_0", "hx[1]": "c_0"}[parameter]
    lane, index = divmod(int(parameter[len("params[") : -1]), count)
    return f"{('w_ih', 'w_hh', 'b_ih', 'b_hh')[index]}_{lane}"


def generate_recurrence_configs(region: CallRegion) -> list[RecurrenceConfig]:
    """Return the configs whose programs fit the shared memory and multiprocessors of an H100, chained ones first."""
    try:
        recurrence = parse_recurrence(region)
    except Unsupported:
        return []
    can_chain = recurrence.num_layers > 1 and recurrence.num_directions == 1
    configs = [
        RecurrenceConfig(UNITS=columns // NUM_SLOTS[recurrence.operator], num_warps=num_warps, chained=chained)
        for chained in ((True, False) if can_chain else (False,))
        for columns in COLUMNS
        for num_warps in WARPS
    ]
    return [config for config in configs if not explain_excess(recurrence, config)]


def explain_excess(recurrence: Recurrence, config: RecurrenceConfig) -> str:
    """Return what of the GPU a config exceeds; empty if it fits."""
    shape = kernel_shape(recurrence, config)
    num_programs = shape.num_lanes * shape.num_slices
    if num_programs > MAX_PROGRAMS:
        return f"{num_programs} programs have to be resident at once"
    if (shared_bytes := count_shared_bytes(shape)) > MAX_SHARED_BYTES:
        return f"{shared_bytes:,} bytes of shared memory"
    if shape.block_b * shape.num_columns // 32 > MAX_ACCUMULATORS:
        return "too many sums in registers"
    return ""


def count_shared_bytes(shape: KernelShape) -> int:
    """Return the shared memory of a program, in bytes: its weights, and either the states of a step or the sums of all
    warps. FP32 states are two TF32 numbers each; so are the weights of the loop that every lane uses."""
    parts, size = (2 if shape.dtype == "float32" else 1), DTYPE_BYTES[shape.dtype]
    weights = shape.block_k * shape.num_columns * (parts + shape.is_chained) * size
    states = parts * shape.block_b * shape.block_k * size
    sums = shape.num_warps * shape.block_b * shape.num_columns * 4
    return weights + max(states, sums)


def kernel_shape(recurrence: Recurrence, config: RecurrenceConfig, layer: int = 0) -> KernelShape:
    """Return the kernel of all layers, if they are chained, or of one layer."""
    num_gates = RECURRENCES[recurrence.operator]
    width, is_batch_first = num_gates * recurrence.hidden, recurrence.batch_first and layer == 0
    stride_b, stride_t = (recurrence.num_steps * width, width) if is_batch_first else (width, recurrence.batch * width)
    return KernelShape(
        operator=recurrence.operator,
        dtype=recurrence.dtype,
        num_steps=recurrence.num_steps,
        batch=recurrence.batch,
        hidden=recurrence.hidden,
        num_lanes=recurrence.num_layers if config.chained else recurrence.num_directions,
        is_chained=config.chained,
        has_biases=recurrence.has_biases,
        units=config.UNITS,
        num_warps=config.num_warps,
        projected_strides=(stride_b, stride_t),
    )


def print_recurrence(region: CallRegion, config: RecurrenceConfig) -> TritonSource:
    """Generate the kernels of a call and its function, which returns the results that are used.

    Raises:
        Unsupported: the kernel does not compute it.
    """
    recurrence = parse_recurrence(region)
    num_launches = 1 if config.chained else recurrence.num_layers
    shapes = [kernel_shape(recurrence, config, layer) for layer in range(num_launches)]
    unique = dict.fromkeys(shapes)  # the first of batch-first layers reads its input in another order
    names = dict(zip(unique, (f"{region.name}_kernel", f"{region.name}_inner_kernel"), strict=False))
    kernels = "\n\n".join(print_recurrence_kernel(name, shape) for shape, name in names.items())
    launchers = [_launcher(name, shape) for shape, name in names.items()]
    lines = [*launchers, "", "", *_function(region, recurrence, [(names[shape], shape) for shape in shapes])]
    return TritonSource(
        launcher_name=region.name,
        helpers=(WAIT_HELPER, *select_helpers(kernels)),
        kernels="\n".join(wrapped for line in kernels.splitlines() for wrapped in wrap_line(line)) + "\n",
        kernel_names=tuple(names.values()),
        scratch={"workspace": WORD_TYPES[recurrence.dtype]},
        launcher="\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n",
    )


def _launcher(name: str, shape: KernelShape) -> str:
    """The launcher of a kernel whose programs wait for each other: the launch is cooperative, all of them or none."""
    count = shape.num_lanes * shape.num_slices
    options = f"resident_programs={count}, launch_cooperative_grid=True"
    return f"launch_{name} = make_launcher({name}, {count}, {shape.num_warps}, {options})"


def _function(region: CallRegion, call: Recurrence, launches: Sequence[tuple[str, KernelShape]]) -> list[str]:
    """The lines of the region's function; a tensor that has several roles is the argument of the first."""
    arguments = {name: role for role, name in reversed(call.tensors.items())}
    given = {role: arguments[name] for role, name in call.tensors.items()}
    dtype, word_type = f"torch.{call.dtype}", f"torch.{WORD_TYPES[call.dtype]}"
    state_shape = (call.num_layers * call.num_directions, call.batch, call.hidden)
    num_states = launches[0][1].num_lanes * call.num_steps * call.batch * call.hidden
    has_cell = call.operator == "lstm"
    lines = [f"hidden = {given['h_0']}.contiguous()", *[f"cell = {given.get('c_0')}.contiguous()"] * has_cell]
    lines += [_allocation("workspace", (len(launches), num_states), word_type), "workspace.fill_(-1)"]
    results = ["last_hidden", *["last_cell"] * has_cell]
    lines += [_allocation(name, state_shape, dtype) for name in results]
    lines.append(f"rows = x.reshape(-1, {call.num_inputs})")
    for layer, (name, shape) in enumerate(launches):
        lines += _launch(call, given, layer, name, shape)
    results.insert(0, "output.transpose(0, 1)" if call.batch_first else "output")
    doc = f'"""{call.operator} of {call.num_layers} layers; {call.num_steps:,} steps of a batch of {call.batch}."""'
    body = [doc, *lines, f"return {', '.join(results[index] for index in region.outputs)}"]
    signature = ", ".join(arguments[name] for name in region.reads)
    return [f"def {region.name}({signature}):", *(f"    {line}" for line in body)]


def _allocation(name: str, shape: Sequence[int], dtype: str) -> str:
    strides = tuple(prod(shape[at + 1 :]) for at in range(len(shape)))
    return f"{name} = empty_on_device_of(x, {tuple(shape)}, {strides}, {dtype})"


def _launch(call: Recurrence, given: Mapping[str, str], layer: int, name: str, shape: KernelShape) -> list[str]:
    """The lines that multiply a layer's input with its weights and launch the kernel of this layer or of all."""
    first, width = layer * call.num_directions, call.num_directions * call.hidden
    lanes = range(first, first + shape.num_lanes)
    roles = ("w_ih", "w_hh", "b_ih", "b_hh")
    known = {role: f"{argument}.contiguous()" for role, argument in given.items()}
    tensors = {f"{role}_{at}": known.get(f"{role}_{lane}", "") for at, lane in enumerate(lanes) for role in roles}
    lines = []
    for at in range(1 if shape.is_chained else call.num_directions):
        product = f"linear(rows, {tensors[f'w_ih_{at}']}{', ' * call.has_biases}{tensors[f'b_ih_{at}']})"
        lines.append(f"projected{'' if shape.is_chained else f'_{at}'} = torch.nn.functional.{product}")
    if shape.num_lanes < call.num_layers * call.num_directions:
        states = ("hidden", "cell", "last_hidden", "last_cell")
        tensors |= {state: f"{state}[{lanes.start}:{lanes.stop}]" for state in states}
        tensors["workspace"] = f"workspace[{layer}]"
    lines.append(_allocation("output", (call.num_steps, call.batch, width), f"torch.{call.dtype}"))
    lines.append(f"launch_{name}({', '.join(tensors.get(argument, argument) for argument in shape.arguments)})")
    is_last = lanes.stop == call.num_layers * call.num_directions
    return lines if is_last else [*lines, f"rows = output.view(-1, {width})"]
