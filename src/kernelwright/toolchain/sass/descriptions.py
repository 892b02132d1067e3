"""One-line descriptions of SASS instructions; those whose meaning is uncertain have none.

Source: the instruction set tables of NVIDIA's "CUDA Binary Utilities", and the PTX that each was compiled from.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kernelwright.toolchain.sass.disassembly import SassInstruction
from kernelwright.toolchain.sass.opcode_classes import is_move, is_widening
from kernelwright.toolchain.sass.registers import access_bytes

_FLOATS = {4: "one float", 8: "two floats", 16: "four floats", 32: "eight floats"}
_DESCRIPTIONS = {
    "FFMA": "one FP32 multiply-add",
    "FFMA2": "two FP32 multiply-adds",
    "FADD": "one FP32 addition",
    "FMUL": "one FP32 multiplication",
    "FADD2": "two FP32 additions",
    "FMUL2": "two FP32 multiplications",
    "FMNMX": "FP32 minimum or maximum",
    "FMNMX3": "FP32 minimum or maximum of three",
    "FSEL": "selects one of two FP32 numbers by a predicate",
    "FSETP": "compares FP32 numbers",
    "DFMA": "one FP64 multiply-add",
    "DADD": "one FP64 addition",
    "DMUL": "one FP64 multiplication",
    "DSETP": "compares FP64 numbers",
    "IADD3": "adds three integers",
    "VIADD": "adds two integers",
    "UIADD3": "adds three integers, uniform",
    "UIMAD": "integer multiply-add, uniform",
    "IDP": "dot product of small integers",
    "ISETP": "compares integers",
    "UISETP": "compares integers, uniform",
    "IMNMX": "integer minimum or maximum",
    "VIMNMX": "integer minimum or maximum",
    "LEA": "shift and add for an address",
    "LOP3": "bitwise logic on three registers",
    "ULEA": "shift and add for an address, uniform",
    "ULOP3": "bitwise logic on three registers, uniform",
    "PLOP3": "logic on predicates",
    "IADD": "adds two integers",
    "SHF": "shifts",
    "USHF": "shifts, uniform",
    "SGXT": "sign extension",
    "USGXT": "sign extension, uniform",
    "USEL": "selects one of two registers by a predicate, uniform",
    "UPRMT": "permutes bytes, uniform",
    "PRMT": "permutes bytes",
    "SEL": "selects one of two registers by a predicate",
    "POPC": "counts set bits",
    "FLO": "finds the highest set bit",
    "UFLO": "finds the highest set bit, uniform",
    "UPOPC": "counts set bits, uniform",
    "CCTL": "cache control",
    "MOV": "copies a register or a constant",
    "UMOV": "copies a register or a constant, uniform",
    "S2R": "reads a thread or block index",
    "S2UR": "reads a block index, uniform",
    "LDC": "reads a parameter or constant",
    "ULDC": "reads a parameter or constant, uniform",
    "LDCU": "reads a parameter or constant, uniform",
    "R2UR": "copies a register to a uniform register",
    "VOTE": "warp vote",
    "VOTEU": "warp vote",
    "SHFL": "warp shuffle",
    "REDUX": "warp reduction of integers",
    "CREDUX": "warp reduction",
    "MATCH": "finds threads of the warp with an equal value",
    "ELECT": "elects one thread of the warp",
    "EXIT": "ends the thread",
    "RET": "returns from a function",
    "BSSY": "sets the reconvergence point of a divergent branch",
    "BSYNC": "waits for diverged threads to reconverge",
    "WARPSYNC": "synchronizes threads of the warp",
    "NANOSLEEP": "sleeps for some time",
    "YIELD": "yields to another warp",
    "NOP": "no operation",
    "LDGDEPBAR": "commits a group of asynchronous copies",
    "DEPBAR": "waits for outstanding memory operations",
    "FENCE": "orders memory accesses before those of the async proxy (TMA, tensor cores)",
    "MEMBAR": "memory fence: waits until writes are visible",
    "UTMALDG": "TMA: loads a tile into shared memory",
    "UTMASTG": "TMA: stores a tile from shared memory",
    "UTMAREDG": "TMA: reduces a tile into global memory",
    "UTMAPF": "TMA: prefetches a tile into L2",
    "UTMACMDFLUSH": "commits a group of TMA stores",
    "USETMAXREG": "reallocates registers of the warp group (setmaxnreg)",
    "PREEXIT": "allows the dependent kernel to launch (griddepcontrol.launch_dependents)",
    "ACQBULK": "waits for the previous kernel (griddepcontrol.wait)",
    "UCGABAR_ARV": "arrives at the cluster barrier",
    "UCGABAR_WAIT": "waits at the cluster barrier",
    "RED": "atomic on global memory without a result",
    "REDG": "atomic on global memory without a result",
    "ATOMG": "atomic on global memory",
    "ATOM": "atomic",
    "ATOMS": "atomic on shared memory",
    "F2FP": "converts two numbers into one register",
    "F2F": "converts a float to another format",
    "F2I": "converts a float to an integer",
    "I2F": "converts an integer to a float",
    "I2FP": "converts an integer to a float",
    "FRND": "rounds to an integer",
    "FCHK": "checks whether a division needs the slow path",
    "BPT": "breakpoint or trap",
}
_SPECIAL = {
    "EX2": "2 to the power of x",
    "LG2": "logarithm to base 2",
    "RCP": "reciprocal",
    "RSQ": "reciprocal square root",
    "SQRT": "square root",
    "SIN": "sine",
    "COS": "cosine",
    "TANH": "hyperbolic tangent",
    "RCP64H": "initial approximation of an FP64 reciprocal",
    "RSQ64H": "initial approximation of an FP64 reciprocal square root",
}
_HALF_OPERATIONS = {"HFMA2": "multiply-adds", "HADD2": "additions", "HMUL2": "multiplications"}


def describe_instruction(line: SassInstruction, spill: bool = False) -> str:
    """Describe what an instruction does; empty if unknown.

    Args:
        spill: it is a spill, according to the compiler's record.
    """
    if line.is_never_executed:
        return "never executed: padding by the compiler"
    if is_move(line):
        return "copies a register or a constant, on an idle arithmetic unit"
    if describe := _DESCRIBERS.get(line.base_opcode):
        return describe(line)
    if line.base_opcode in ("LDL", "STL"):
        return _local(line, spill)
    return _DESCRIPTIONS.get(line.base_opcode, "")


def _local(line: SassInstruction, spill: bool) -> str:
    if spill:
        return "reloads a spilled register" if line.base_opcode == "LDL" else "spills a register"
    return f"{'reads' if line.base_opcode == 'LDL' else 'writes'} local memory: an indexed array or a spill"


def _load(line: SassInstruction) -> str:
    size = access_bytes(line)
    return f"one {size}-byte load{_as_floats(size)}{', read-only' * ('CONSTANT' in line.modifiers)}"


def _store(line: SassInstruction) -> str:
    return f"one {access_bytes(line)}-byte store{_as_floats(access_bytes(line))}"


def _as_floats(size: int) -> str:
    return f", {_FLOATS[size]}" if size in _FLOATS else ""


def _shared_load(line: SassInstruction) -> str:
    return f"{access_bytes(line)} bytes from shared memory{_as_floats(access_bytes(line))}"


def _shared_store(line: SassInstruction) -> str:
    return f"{access_bytes(line)} bytes to shared memory{_as_floats(access_bytes(line))}"


def _async_copy(line: SassInstruction) -> str:
    bypass = ", bypassing L1" if "BYPASS" in line.modifiers else ""
    return f"asynchronous copy of {access_bytes(line)} bytes from global to shared memory{bypass}"


def _ldmatrix(line: SassInstruction) -> str:
    count = {1: "one", 2: "two", 4: "four"}[access_bytes(line) // 4]
    transposed = ", transposed" if any(m.startswith("MT") for m in line.modifiers) else ""
    direction = "from" if line.base_opcode == "LDSM" else "to"
    return f"{count} 8x8 matri{'x' if count == 'one' else 'ces'} of 16 bits {direction} shared memory{transposed}"


def _special(line: SassInstruction) -> str:
    unit = "special function unit"
    return next((f"{unit}: {_SPECIAL[m]}" for m in line.modifiers if m in _SPECIAL), unit)


def _imad(line: SassInstruction) -> str:
    if "SHL" in line.modifiers:
        return "shift, on the multiply-add unit"
    if "IADD" in line.modifiers:
        return "adds two integers, on the multiply-add unit"
    return f"integer multiply-add{', 64 bits' * ('WIDE' in line.modifiers)}"


def _bulk_copy(line: SassInstruction) -> str:
    directions = {"S.G": "bulk copy into shared memory", "G.S": "bulk copy from shared memory"}
    return f"TMA: {directions.get('.'.join(line.modifiers[:2]), 'bulk copy')}"


def _special_register(line: SassInstruction) -> str:
    return "zeros two registers" if line.operand_list[-1:] == ("SRZ",) else "reads a special register"


def _half(line: SassInstruction) -> str:
    if is_widening(line):
        return "converts FP16 to FP32"
    kind = "BF16" if any(m.startswith("BF16") for m in line.modifiers) else "FP16"
    return f"two {kind} {_HALF_OPERATIONS[line.base_opcode]}"


def _mma(line: SassInstruction) -> str:
    """The shape is a modifier with or without separators: HMMA.16816 is 16x8x16, DMMA.8x8x4 is 8x8x4."""
    for modifier in line.modifiers:
        if sizes := re.fullmatch(r"(16|8)x?(8)x?(4|8|16|32|64|128|256)", modifier):
            return f"tensor cores: {'x'.join(sizes.groups())} MMA of a warp"
    return "tensor cores: MMA of a warp"


def _wgmma(line: SassInstruction) -> str:
    shape = next((m for m in line.modifiers if re.fullmatch(r"\d+x\d+x\d+", m)), "")
    return f"tensor cores: {shape} MMA of a warp group, asynchronous".replace("  ", " ")


def _tcgen05_mma(line: SassInstruction) -> str:
    return "tensor cores: MMA of a block into tensor memory, asynchronous"


def _barrier(line: SassInstruction) -> str:
    if "SYNC" in line.modifiers:
        named = len(line.operand_list) > 1 or line.operands not in ("0x0", "")
        return f"waits for {'the threads of a named barrier' if named else 'all threads of the block'}"
    if "ARV" in line.modifiers:
        return "arrives at a barrier without waiting"
    return "vote across the block" if "RED" in line.modifiers else ""


def _mbarrier(line: SassInstruction) -> str:
    if "PHASECHK" in line.modifiers:
        return "tests whether an mbarrier phase is complete"
    if "ARRIVE" in line.modifiers:
        return "arrives at an mbarrier"
    return "initializes an mbarrier" if "EXCH" in line.modifiers else ""


def _warp_group(line: SassInstruction) -> str:
    if "ARRIVE" in line.modifiers:
        return "fence: registers are ready for wgmma"
    return "waits for wgmma groups" if "DEPBAR" in line.modifiers else ""


def _jump(line: SassInstruction) -> str:
    target = line.operand_list[-1] if line.operand_list else ""
    if not target.startswith("0x"):
        return ""
    is_back_edge = int(target, 16) <= line.address
    return f"{'back' if is_back_edge else 'forward'} to {target}"


def _call(line: SassInstruction) -> str:
    return _jump(line) or "calls a function that was not inlined"


_DESCRIBERS: dict[str, Callable[[SassInstruction], str]] = {
    "LDG": _load, "LD": _load, "STG": _store, "ST": _store, "LDS": _shared_load, "STS": _shared_store,
    "LDGSTS": _async_copy, "LDSM": _ldmatrix, "STSM": _ldmatrix, "MUFU": _special, "HFMA2": _half, "HADD2": _half,
    "HMUL2": _half, "HMMA": _mma, "IMMA": _mma, "DMMA": _mma, "QMMA": _mma,
    "HGMMA": _wgmma, "IGMMA": _wgmma, "QGMMA": _wgmma, "UTCHMMA": _tcgen05_mma,
    "UTCQMMA": _tcgen05_mma, "UTCIMMA": _tcgen05_mma, "BAR": _barrier, "SYNCS": _mbarrier,
    "WARPGROUP": _warp_group, "BRA": _jump, "IMAD": _imad,
    "CS2R": _special_register, "CALL": _call, "UBLKCP": _bulk_copy,
}  # fmt: skip
