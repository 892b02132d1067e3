"""The Triton kernel of a recurrence: one launch for all time steps of some layers or directions (lanes).

A program owns some hidden units of a lane and keeps their weights in shared memory for the whole loop. After each step
it writes their states to the workspace, where the other programs of the lane, and those of the lane above, wait for
them. The workspace has a place for each step and is filled with a bit pattern that no state has, so that a state is its
own ready flag: no flag, fence or barrier between programs, and no place is written twice. All programs have to be
resident at once.
"""

from __future__ import annotations

from kernelwright.compiler.triton.op_templates import TRITON_TYPES
from kernelwright.core.record import Record

NUM_SLOTS = {"lstm": 4, "gru": 4, "rnn_tanh": 1, "rnn_relu": 1}
"""Sums of products for each hidden unit. Those of a GRU: r, z, n from the input, n from the state."""
UNSET = -1
"""The bits of a state that is not there yet; a NaN that the kernel never writes."""
NAN_BITS = {"float32": 0x7FC00000, "float16": 0x7E00, "bfloat16": 0x7FC0}
WORD_TYPES = {"float32": "int32", "float16": "int16", "bfloat16": "int16"}
"""The dtype of the workspace by that of the states."""

WAIT_HELPER = '''@triton.jit
def wait_states(ptr, mask):
    """Waits for the states of all programs of a lane and loads their bits. Each thread looks at the
    words that it returns, so that it reads none again."""
    words = tl.load(ptr, mask=mask, other=0, volatile=True)
    while tl.max((words == -1).to(tl.int32)) == 1:
        words = tl.load(ptr, mask=mask, other=0, volatile=True)
    return words
'''

KERNEL_TEMPLATE = '''@triton.jit
def {name}({arguments}):
    """{docstring}."""
    NUM_STEPS: tl.constexpr = {num_steps}
    BATCH: tl.constexpr = {batch}
    HIDDEN: tl.constexpr = {hidden}
    NUM_LANES: tl.constexpr = {num_lanes}
    WIDTH: tl.constexpr = {width}
    UNITS: tl.constexpr = {units}
    SLICES: tl.constexpr = {num_slices}
    SLOTS: tl.constexpr = {num_slots}
    BLOCK_B: tl.constexpr = {block_b}
    BLOCK_K: tl.constexpr = {block_k}
    SPLIT_K: tl.constexpr = {split_k}
    lane = tl.program_id(0) // SLICES
    first_unit = tl.program_id(0) % SLICES * UNITS
{lane_pointers}
    # each warp multiplies its part of the states by its part of the weights: [split, row, column]
    offs_split = tl.arange(0, SPLIT_K)[:, None, None] * (BLOCK_K // SPLIT_K)
    offs_k = offs_split + tl.arange(0, BLOCK_K // SPLIT_K)[None, :, None]
    offs_n = tl.arange(0, UNITS * SLOTS)
    slot = offs_n % SLOTS
    unit_n = first_unit + offs_n // SLOTS
{slot_rows}
    weight_mask = (offs_k < HIDDEN) & hh_mask[None, None, :]
    w_hh = tl.load(w_hh_ptr + hh_row[None, None, :] * HIDDEN + offs_k, mask=weight_mask, other=0.0)
    bias = {bias}
{input_weights}
    offs_b = tl.arange(0, BLOCK_B)[:, None]
    offs_state_k = offs_split + tl.arange(0, BLOCK_K // SPLIT_K)[None, None, :]
    rows = tl.arange(0, BLOCK_B)[None, :, None]
    states_mask = (rows < BATCH) & (offs_state_k < HIDDEN)
    offs_states = rows * HIDDEN + offs_state_k
    unit = first_unit + tl.arange(0, UNITS)[None, :]
    unit_mask = (offs_b < BATCH) & (unit < HIDDEN)
    offs_unit = lane * BATCH * HIDDEN + offs_b * HIDDEN + unit
    offs_output = offs_b * WIDTH + {column}
    state = tl.load(hidden_ptr + offs_unit, mask=unit_mask, other=0.0).to(tl.float32)
{load_cell}
    projected_mask = {projected_mask}
    offs_projected = offs_b * {projected_stride_b} + ih_row[None, :]
    first_ptr = projected_ptr + {first_time} * {projected_stride_t} + offs_projected
    projected = tl.load(first_ptr, mask=projected_mask, other=0.0)
    lane_ptr = workspace_ptr + lane * (NUM_STEPS * BATCH * HIDDEN)
    for step in range(NUM_STEPS):
        time = {time}
        next_time = {next_time}
        gates = projected.to(tl.float32) + bias[None, :]
        projected = tl.load(  # in flight during this step
            projected_ptr + next_time * {projected_stride_t} + offs_projected,
            mask=projected_mask & (step + 1 < NUM_STEPS),
            other=0.0,
        )
        acc = tl.zeros((SPLIT_K, BLOCK_B, UNITS * SLOTS), tl.float32)
{input_product}
        if step == 0:
            start_ptr = hidden_ptr + lane * (BATCH * HIDDEN) + offs_states
            states = tl.load(start_ptr, mask=states_mask, other=0.0)
        else:
            before_ptr = lane_ptr + (step - 1) * (BATCH * HIDDEN) + offs_states
            states = wait_states(before_ptr, states_mask).to({state_type}, bitcast=True)
        acc = tl.dot(states, w_hh, acc{precision})
        gates += tl.sum(acc, 0)
{nonlinearities}
        rounded = state.to({state_type})
        words = rounded.to({word_type}, bitcast=True)
        words = tl.where(words == {unset}, {nan_bits}, words).to({word_type})
        tl.store(lane_ptr + step * (BATCH * HIDDEN) + offs_b * HIDDEN + unit, words, mask=unit_mask)
        tl.store(output_ptr + time * (BATCH * WIDTH) + offs_output, rounded, mask={output_mask})
{round_state}
    tl.store(last_hidden_ptr + offs_unit, state.to({state_type}), mask=unit_mask)
{store_cell}
'''

INPUT_WEIGHTS = """    input_mask = (offs_k < HIDDEN) & ih_mask[None, None, :] & (lane > 0)
    w_ih = tl.load(w_ih_ptr + ih_row[None, None, :] * HIDDEN + offs_k, mask=input_mask, other=0.0)"""
INPUT_BIAS = "    bias += tl.load(b_ih_ptr + ih_row, mask=ih_mask & (lane > 0), other=0.0).to(tl.float32)"
INPUT_PRODUCT = """        if lane > 0:
            below_ptr = lane_ptr + (step - NUM_STEPS) * (BATCH * HIDDEN) + offs_states
            below = wait_states(below_ptr, states_mask).to({state_type}, bitcast=True)
            acc = tl.dot(below, w_ih, acc{precision})"""
PLAIN_ROWS = """    ih_row = slot * HIDDEN + unit_n
    ih_mask = unit_n < HIDDEN
    hh_row = ih_row
    hh_mask = ih_mask"""
GRU_ROWS = """    ih_row = slot * HIDDEN + unit_n
    ih_mask = (unit_n < HIDDEN) & (slot < 3)
    hh_row = tl.where(slot == 3, 2, slot) * HIDDEN + unit_n
    hh_mask = (unit_n < HIDDEN) & (slot != 2)"""
SPLIT_SLOTS = """        even, odd = tl.split(tl.reshape(gates, (BLOCK_B, UNITS, 2, 2)))
        slot_0, slot_2 = tl.split(even)
        slot_1, slot_3 = tl.split(odd)
"""
NONLINEARITIES = {
    "lstm": SPLIT_SLOTS
    + """        cell = tl.sigmoid(slot_1) * cell + tl.sigmoid(slot_0) * libdevice.tanh(slot_2)
        state = tl.sigmoid(slot_3) * libdevice.tanh(cell)""",
    "gru": SPLIT_SLOTS
    + """        new = libdevice.tanh(slot_2 + tl.sigmoid(slot_0) * slot_3)
        state = new + tl.sigmoid(slot_1) * (state - new)""",
    "rnn_tanh": "        state = libdevice.tanh(gates)",
    "rnn_relu": "        state = maximum_nan(gates, tl.full((), 0.0, tl.float32))",
}
LOAD_CELL = "    cell = tl.load(cell_ptr + offs_unit, mask=unit_mask, other=0.0).to(tl.float32)"
STORE_CELL = "    tl.store(last_cell_ptr + offs_unit, cell.to({state_type}), mask=unit_mask)"
ROUND_STATE = "        state = rounded.to(tl.float32)"


class KernelShape(Record, frozen=True, kw_only=True):
    """What a kernel of a recurrence is specialised for.

    Attributes:
        operator: `lstm`, `gru`, `rnn_tanh` or `rnn_relu`.
        dtype: of the weights and states; products and gates are FP32.
        is_chained: the lanes are layers, each of which reads the states of the lane below; else they are directions of
            one layer, of which the second runs backwards in time.
        units: hidden units of a program.
        projected_strides: elements from one batch item, and from one time step, to the next in the products of the
            input with its weights.
    """

    operator: str
    dtype: str
    num_steps: int
    batch: int
    hidden: int
    num_lanes: int
    is_chained: bool
    has_biases: bool
    units: int
    num_warps: int
    projected_strides: tuple[int, int]

    @property
    def num_slices(self) -> int:
        """Programs of a lane."""
        return -(-self.hidden // self.units)

    @property
    def num_columns(self) -> int:
        """Sums of products of a program for each batch item."""
        return self.units * NUM_SLOTS[self.operator]

    @property
    def block_b(self) -> int:
        """Rows of a product: the batch, padded to the shape of the tensor cores."""
        return max(16, 1 << (self.batch - 1).bit_length())

    @property
    def block_k(self) -> int:
        """The hidden units as they are summed: a power of two, and 16 or more for each warp."""
        return max(1 << (self.hidden - 1).bit_length(), 16 * self.num_warps)

    @property
    def arguments(self) -> list[str]:
        """The tensors of the kernel, without `_ptr`: those of each lane by number, then those of all."""
        names = [name for lane in range(self.num_lanes) for name in self.lane_arguments(lane)]
        cells = self.operator == "lstm"
        shared = [*["projected"] * self.is_chained, "hidden", *["cell"] * cells, "workspace", "output", "last_hidden"]
        return [*names, *shared, *["last_cell"] * cells]

    def lane_arguments(self, lane: int) -> list[str]:
        """The tensors of one lane, by number."""
        names = ["w_hh", *["b_hh"] * self.has_biases]
        if not self.is_chained:
            names.append("projected")
        elif lane:
            names += ["w_ih", *["b_ih"] * self.has_biases]
        return [f"{name}_{lane}" for name in names]


def print_recurrence_kernel(name: str, shape: KernelShape) -> str:
    """Generate the kernel of a recurrence; its grid has `num_lanes * num_slices` programs."""
    operator, is_half = shape.operator, shape.dtype != "float32"
    state_type, word_type = TRITON_TYPES[shape.dtype], TRITON_TYPES[WORD_TYPES[shape.dtype]]
    precision = "" if is_half else ', input_precision="tf32x3"'
    in_lane_0 = " & (lane == 0)" if shape.is_chained else ""
    stride_b, stride_t = shape.projected_strides
    is_reversed = not shape.is_chained and shape.num_lanes == 2
    values = {
        "name": name,
        "arguments": ", ".join(f"{argument}_ptr" for argument in shape.arguments),
        "docstring": describe_kernel(shape),
        "num_steps": shape.num_steps,
        "batch": shape.batch,
        "hidden": shape.hidden,
        "num_lanes": shape.num_lanes,
        "units": shape.units,
        "num_slices": shape.num_slices,
        "num_slots": NUM_SLOTS[operator],
        "block_b": shape.block_b,
        "block_k": shape.block_k,
        "split_k": shape.num_warps,
        "lane_pointers": _select_pointers(shape),
        "slot_rows": GRU_ROWS if operator == "gru" else PLAIN_ROWS,
        "bias": _bias(shape),
        "input_weights": _input_weights(shape),
        "input_product": INPUT_PRODUCT if shape.is_chained else "",
        "load_cell": LOAD_CELL if operator == "lstm" else "",
        "store_cell": STORE_CELL if operator == "lstm" else "",
        "projected_mask": f"(offs_b < BATCH) & ih_mask[None, :]{in_lane_0}",
        "projected_stride_b": stride_b,
        "projected_stride_t": stride_t,
        "first_time": "(lane * (NUM_STEPS - 1))" if is_reversed else "0",
        "time": "step + lane * (NUM_STEPS - 1 - 2 * step)" if is_reversed else "step",
        "next_time": "time + 1 - 2 * lane" if is_reversed else "step + 1",
        "nonlinearities": NONLINEARITIES[operator],
        "width": shape.hidden * (1 if shape.is_chained else shape.num_lanes),
        "column": "unit" if shape.is_chained else "lane * HIDDEN + unit",
        "output_mask": "unit_mask & (lane == NUM_LANES - 1)" if shape.is_chained else "unit_mask",
        "round_state": ROUND_STATE if is_half else "",
        "unset": UNSET,
        "nan_bits": hex(NAN_BITS[shape.dtype]),
    }
    common = {"state_type": state_type, "word_type": word_type, "precision": precision}
    for part in ("input_product", "store_cell"):
        values[part] = values[part].format(**common)
    text = KERNEL_TEMPLATE.format(**values, **common)
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def describe_kernel(shape: KernelShape) -> str:
    """The lanes and the programs, for a docstring."""
    kind = "layers" if shape.is_chained else "directions"
    lanes = f"{shape.num_lanes} {kind} of " if shape.num_lanes > 1 else ""
    return (
        f"{shape.num_steps:,} steps of {shape.operator}, {shape.hidden} hidden units: "
        f"{lanes}{shape.num_slices} programs"
    )


def _select_pointers(shape: KernelShape) -> str:
    """The lines that select the tensors of a program's lane; the first of chained lanes has no weights of the input."""
    last = shape.num_lanes - 1
    names = [name.removesuffix(f"_{last}") for name in shape.lane_arguments(last)]
    if not last:
        return "\n".join(f"    {name}_ptr = {name}_0_ptr" for name in names)
    lines = []
    for lane in range(last + 1):
        own = shape.lane_arguments(lane)
        lines.append("    else:" if lane == last else f"    {'elif' if lane else 'if'} lane == {lane}:")
        sources = [f"{name}_{lane}" if f"{name}_{lane}" in own else f"{name}_1" for name in names]
        lines += [f"        {name}_ptr = {source}_ptr" for name, source in zip(names, sources, strict=True)]
    return "\n".join(lines)


def _bias(shape: KernelShape) -> str:
    if shape.has_biases:
        return "tl.load(b_hh_ptr + hh_row, mask=hh_mask, other=0.0).to(tl.float32)"
    return "tl.zeros((UNITS * SLOTS,), tl.float32)"


def _input_weights(shape: KernelShape) -> str:
    """The weights with which chained lanes multiply the states of the lane below."""
    if not shape.is_chained:
        return ""
    return "\n".join([INPUT_WEIGHTS, *[INPUT_BIAS] * shape.has_biases])
