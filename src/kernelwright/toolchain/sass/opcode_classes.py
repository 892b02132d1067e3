"""Classification of instructions, and counts by group and access width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kernelwright.core.machine_code import InstructionGroup
from kernelwright.toolchain.sass.disassembly import SassInstruction
from kernelwright.toolchain.sass.registers import access_bytes

_NAMES: dict[InstructionGroup, tuple[str, ...]] = {
    "tensor": ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA",
               "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA"),
    "float math": ("FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2", "FFMA32I", "FADD32I", "FMUL32I", "FMNMX",
                   "FMNMX3", "FSEL", "FSET", "FSETP", "FCHK", "FSWZADD", "HADD2", "HMUL2", "HFMA2", "HMNMX2", "HSET2",
                   "HSETP2", "HADD2_32I", "HMUL2_32I", "HFMA2_32I", "DADD", "DMUL", "DFMA", "DSETP", "UFFMA", "UFADD",
                   "UFMUL"),
    "special": ("MUFU",),
    "integer": ("IADD", "IADD3", "IADD32I", "IMAD", "IMUL", "IDP", "IMNMX", "ISETP", "IABS", "LEA", "LOP", "LOP3",
                "LOP32I", "SHF", "SHL", "SHR", "BMSK", "BREV", "FLO", "POPC", "SGXT", "VIADD", "VIADDMNMX", "VIMNMX",
                "VIMNMX3", "VHMNMX", "VABSDIFF", "VABSDIFF4", "XMAD", "PRMT", "SEL", "IADD64", "UIADD3", "UIMAD",
                "UISETP", "ULEA", "ULOP3", "ULOP", "USHF", "UBMSK", "UBREV", "UFLO", "UPOPC", "USGXT", "UPRMT", "USEL",
                "UIMNMX", "UVIMNMX", "UVIADD", "UIABS"),
    "conversion": ("F2F", "F2I", "I2F", "I2I", "FRND", "F2FP", "I2FP", "I2IP", "F2IP", "UF2FP", "UI2FP", "UF2F",
                   "UI2F", "UF2I"),
    "global load": ("LDG", "LD", "LDGSTS", "UTMALDG", "UBLKCP", "TEX", "TLD", "TLD4", "UTMAPF", "UBLKPF"),
    "global store": ("STG", "ST", "UTMASTG", "UTMAREDG", "UBLKRED", "RED", "REDG", "REDAS", "ATOM", "ATOMG"),
    "shared load": ("LDS", "LDSM"),
    "shared store": ("STS", "STSM", "ATOMS", "STAS"),
    "local memory": ("LDL", "STL"),
    "branch": ("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "BPT", "KILL", "BRXU",
               "JMXU", "BMOV", "RPCMOV", "WARPSYNC", "YIELD", "NANOSLEEP", "RTT"),
    "barrier": ("BAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "FENCE", "SYNCS", "ARRIVES", "WARPGROUP",
                "WARPGROUPSET", "UCGABAR_ARV", "UCGABAR_WAIT", "UCGABAR", "UTMACMDFLUSH", "UTMACCTL", "CCTL",
                "ACQBULK", "PREEXIT", "ELECT", "UTCBAR", "B2R", "R2B", "CGAERRBAR", "USETMAXREG"),
}  # fmt: skip
_GROUP_OF: dict[str, InstructionGroup] = {name: group for group, names in _NAMES.items() for name in names}
ACCESS_GROUPS: tuple[InstructionGroup, ...] = ("global load", "global store", "shared load", "shared store")
_BULK_COPIES = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "UTMAPF", "UBLKPF")


def classify(line: SassInstruction) -> InstructionGroup:
    """Group of an instruction. Arithmetic that only moves a value, and padding that is never executed, are "other"."""
    if line.is_never_executed or is_move(line):
        return "other"
    if line.base_opcode == "UBLKCP" and line.modifiers[:1] == ("G",):  # to global memory
        return "global store"
    return "conversion" if is_widening(line) else _GROUP_OF.get(line.base_opcode, "other")


def is_move(line: SassInstruction) -> bool:
    """Whether an IMAD or HFMA2 of zeros is a move that the compiler placed on an idle arithmetic unit."""
    return line.base_opcode in ("IMAD", "HFMA2") and [part.lstrip("-") for part in line.operand_list[1:3]] == [
        "RZ",
        "RZ",
    ]


def is_widening(line: SassInstruction) -> bool:
    """Whether an HADD2.F32 of zero is a conversion from FP16 to FP32."""
    return line.base_opcode == "HADD2" and "F32" in line.modifiers and "-RZ" in line.operand_list


def count_groups(lines: Iterable[SassInstruction]) -> dict[str, int]:
    """Number of instructions per group, the most frequent first."""
    return dict(Counter(classify(line) for line in lines).most_common())


def count_access_widths(lines: Iterable[SassInstruction]) -> dict[str, dict[int, int]]:
    """Number of loads and stores by bytes per thread; bulk copies are left out because they move whole tiles."""
    counts: dict[str, Counter[int]] = {}
    for line in lines:
        group = classify(line)
        if group in ACCESS_GROUPS and line.base_opcode not in _BULK_COPIES:
            counts.setdefault(group, Counter())[access_bytes(line)] += 1
    return {group: dict(sorted(counts[group].items())) for group in ACCESS_GROUPS if group in counts}


def count_tensor_opcodes(lines: Iterable[SassInstruction]) -> dict[str, int]:
    """Number of tensor instructions by full opcode, which contains their shape."""
    return dict(Counter(line.opcode for line in lines if classify(line) == "tensor").most_common())
