"""An instruction in plain words; what is not known for sure stays without.

Source: the instruction set tables of NVIDIA's "CUDA Binary Utilities", and the PTX that each was seen to come from.
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
    "FMNMX": "the smaller or larger of two FP32 numbers",
    "FMNMX3": "the smallest or largest of three FP32 numbers",
    "FSEL": "one of two FP32 numbers, by a predicate",
    "FSETP": "compares FP32 numbers",
    "DFMA": "one FP64 multiply-add",
    "DADD": "one FP64 addition",
    "DMUL": "one FP64 multiplication",
    "DSETP": "compares FP64 numbers",
    "IADD3": "adds three integers",
    "VIADD": "adds two integers",
    "UIADD3": "adds three integers, once for the warp",
    "UIMAD": "integer multiply-add, once for the warp",
    "IDP": "dot product of small integers",
    "ISETP": "compares integers",
    "UISETP": "compares integers, once for the warp",
    "IMNMX": "the smaller or larger of two integers",
    "VIMNMX": "the smaller or larger of two integers",
    "LEA": "shifts and adds: an address",
    "LOP3": "a logical function of three words",
    "ULEA": "shifts and adds, once for the warp: an address",
    "ULOP3": "a logical function of three words, once for the warp",
    "PLOP3": "a logical function of predicates",
    "IADD": "adds two integers",
    "SHF": "shifts",
    "USHF": "shifts, once for the warp",
    "SGXT": "extends the sign",
    "USGXT": "extends the sign, once for the warp",
    "USEL": "one of two words, once for the warp",
    "UPRMT": "rearranges bytes, once for the warp",
    "PRMT": "rearranges bytes",
    "SEL": "one of two words, by a predicate",
    "POPC": "counts set bits",
    "FLO": "finds the highest set bit",
    "UFLO": "finds the highest set bit, once for the warp",
    "UPOPC": "counts set bits, once for the warp",
    "CCTL": "tells a cache what to keep",
    "MOV": "copies a register or a constant",
    "UMOV": "copies a register or a constant, once for the warp",
    "S2R": "reads which thread or block this is",
    "S2UR": "reads which block this is, once for the warp",
    "LDC": "reads a parameter or constant",
    "ULDC": "reads a parameter or constant, once for the warp",
    "LDCU": "reads a parameter or constant, once for the warp",
    "R2UR": "hands a register to the whole warp",
    "VOTE": "asks all threads of the warp",
    "VOTEU": "asks all threads of the warp",
    "SHFL": "a word from another thread of the warp",
    "REDUX": "reduces integers over the warp",
    "CREDUX": "reduces over the warp",
    "MATCH": "finds threads of the warp with the same word",
    "ELECT": "picks one thread of the warp",
    "EXIT": "the thread ends",
    "RET": "returns from a function",
    "BSSY": "says where threads that part here meet again",
    "BSYNC": "threads that parted meet again",
    "WARPSYNC": "waits for threads of the warp",
    "NANOSLEEP": "sleeps for a moment",
    "YIELD": "lets another warp go first",
    "NOP": "nothing",
    "LDGDEPBAR": "closes a group of asynchronous copies",
    "DEPBAR": "waits until what is on its way has arrived",
    "FENCE": "orders what was written before what the copy engine or tensor cores read",
    "MEMBAR": "waits until others see what was written",
    "UTMALDG": "TMA: the copy engine brings a tile to shared memory",
    "UTMASTG": "TMA: the copy engine takes a tile from shared memory",
    "UTMAREDG": "TMA: the copy engine reduces a tile into global memory",
    "UTMAPF": "TMA: a tile is fetched into L2",
    "UTMACMDFLUSH": "closes a group of TMA stores",
    "USETMAXREG": "takes or gives back registers of the warp group",
    "PREEXIT": "lets the next kernel begin",
    "ACQBULK": "waits for the kernel before",
    "UCGABAR_ARV": "says to the cluster that it is here",
    "UCGABAR_WAIT": "waits for all blocks of the cluster",
    "RED": "an atomic on global memory that gives nothing back",
    "REDG": "an atomic on global memory that gives nothing back",
    "ATOMG": "an atomic on global memory",
    "ATOM": "an atomic",
    "ATOMS": "an atomic on shared memory",
    "F2FP": "converts two numbers that share a register",
    "F2F": "converts a float to another format",
    "F2I": "converts a float to an integer",
    "I2F": "converts an integer to a float",
    "I2FP": "converts an integer to a float",
    "FRND": "rounds to a whole number",
    "FCHK": "looks whether a division needs the slow way",
    "BPT": "stops for a debugger, or a trap",
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
    "RCP64H": "first guess of an FP64 reciprocal",
    "RSQ64H": "first guess of an FP64 reciprocal square root",
}
_HALF_OPERATIONS = {"HFMA2": "multiply-adds", "HADD2": "additions", "HMUL2": "multiplications"}


def describe_instruction(line: SassInstruction, spill: bool = False) -> str:
    """What it does, or nothing.

    Args:
        spill: the compiler's record says that it spills.
    """
    if line.is_never_executed:
        return "never runs: padding by the compiler"
    if is_move(line):
        return "copies a register or a constant, on a unit that is free"
    if make := _DESCRIBERS.get(line.base_opcode):
        return make(line)
    if line.base_opcode in ("LDL", "STL"):
        return _local(line, spill)
    return _DESCRIPTIONS.get(line.base_opcode, "")


def _local(line: SassInstruction, spill: bool) -> str:
    if spill:
        return "loads a spilled register back" if line.base_opcode == "LDL" else "spills a register"
    return f"{'reads' if line.base_opcode == 'LDL' else 'writes'} local memory: an array that is indexed, or a spill"


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
    around = ", past L1" if "BYPASS" in line.modifiers else ""
    return f"asynchronous copy of {access_bytes(line)} bytes from global to shared memory{around}"


def _ldmatrix(line: SassInstruction) -> str:
    count = {1: "one", 2: "two", 4: "four"}[access_bytes(line) // 4]
    turned = ", transposed" if any(m.startswith("MT") for m in line.modifiers) else ""
    way = "from" if line.base_opcode == "LDSM" else "to"
    return f"{count} 8x8 matri{'x' if count == 'one' else 'ces'} of 16 bits {way} shared memory{turned}"


def _special(line: SassInstruction) -> str:
    return next((f"special unit: {_SPECIAL[m]}" for m in line.modifiers if m in _SPECIAL), "special unit")


def _imad(line: SassInstruction) -> str:
    if "SHL" in line.modifiers:
        return "shifts, on the multiply-add unit"
    if "IADD" in line.modifiers:
        return "adds two integers, on the multiply-add unit"
    return f"integer multiply-add{', 64 bits' * ('WIDE' in line.modifiers)}"


def _bulk_copy(line: SassInstruction) -> str:
    ways = {"S.G": "brings a row of bytes to", "G.S": "takes a row of bytes from"}
    way = ways.get(".".join(line.modifiers[:2]))
    return f"the copy engine {way} shared memory" if way else "the copy engine moves a row of bytes"


def _special_register(line: SassInstruction) -> str:
    return "zeros two registers" if line.operand_list[-1:] == ("SRZ",) else "reads a special register"


def _half(line: SassInstruction) -> str:
    if is_widening(line):
        return "converts FP16 to FP32"
    kind = "BF16" if any(m.startswith("BF16") for m in line.modifiers) else "FP16"
    return f"two {kind} {_HALF_OPERATIONS[line.base_opcode]}"


def _mma(line: SassInstruction) -> str:
    """HMMA.16816 is 16x8x16, and DMMA.8x8x4 says so itself."""
    for modifier in line.modifiers:
        if sizes := re.fullmatch(r"(16|8)x?(8)x?(4|8|16|32|64|128|256)", modifier):
            return f"tensor cores: {'x'.join(sizes.groups())} product of a warp"
    return "tensor cores: product of a warp"


def _wgmma(line: SassInstruction) -> str:
    shape = next((m for m in line.modifiers if re.fullmatch(r"\d+x\d+x\d+", m)), "")
    return f"tensor cores: {shape} product of a warp group, asynchronous".replace("  ", " ")


def _tcgen05_mma(line: SassInstruction) -> str:
    return "tensor cores: product of a block into tensor memory, asynchronous"


def _barrier(line: SassInstruction) -> str:
    if "SYNC" in line.modifiers:
        named = len(line.operand_list) > 1 or line.operands not in ("0x0", "")
        return f"waits for {'the threads of a named barrier' if named else 'all threads of the block'}"
    if "ARV" in line.modifiers:
        return "says to the others of a barrier that it is here"
    return "a vote over the block" if "RED" in line.modifiers else ""


def _mbarrier(line: SassInstruction) -> str:
    if "PHASECHK" in line.modifiers:
        return "asks an mbarrier whether its phase is over"
    if "ARRIVE" in line.modifiers:
        return "arrives at an mbarrier"
    return "sets up an mbarrier" if "EXCH" in line.modifiers else ""


def _warp_group(line: SassInstruction) -> str:
    if "ARRIVE" in line.modifiers:
        return "the warp group's registers are ready for tensor cores"
    return "waits for tensor cores" if "DEPBAR" in line.modifiers else ""


def _jump(line: SassInstruction) -> str:
    to = line.operand_list[-1] if line.operand_list else ""
    if not to.startswith("0x"):
        return ""
    back = int(to, 16) <= line.address
    return f"{'back' if back else 'on'} to {to}"


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
