"""CUDA sources that execute a single PTX instruction: operands from memory to registers, results back to memory.

Every block is one probe with its own registers and shared memory.
"""

from __future__ import annotations

from kernelwright.layouts import CopyAtom, MmaAtom, size

PREAMBLE = """
using uint = unsigned int;
using ulong = unsigned long long;
__device__ uint smem_u32(const void* p) { return static_cast<uint>(__cvta_generic_to_shared(p)); }
"""
_REGISTER_TYPES = {"f64": ("double", "d"), "f32": ("float", "f"), "s32": ("int", "r")}
"""C++ type and asm constraint of a register by element type; other types are packed into 32 bits."""


def mma_source(atom: MmaAtom, registers: tuple[int, int, int]) -> str:
    """Source of `probe(a_ptr, b_ptr, d_ptr)` for mma; the pointers hold the registers of every thread of every probe.

    Args:
        registers: number per thread of A, B and C.
    """
    (operand_type, _, accumulator_type), (a, b, c) = atom.types, registers
    register_type, constraint = _REGISTER_TYPES.get(operand_type, ("uint", "r"))
    out_type, out_constraint = _REGISTER_TYPES[accumulator_type]
    m, n, k = atom.shape
    lists = _operand_lists(c, a, b)
    types = f"{accumulator_type}.{operand_type}.{operand_type}.{accumulator_type}"
    instruction = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}"
    return f"""{PREAMBLE}
extern "C" __global__ void probe(const {register_type}* a_ptr, const {register_type}* b_ptr, {out_type}* d_ptr) {{
  const int tid = blockIdx.x * {size(atom.threads)} + threadIdx.x;
  {register_type} A[{a}], B[{b}];
  {out_type} D[{c}] = {{}};
  for (int i = 0; i < {a}; ++i) A[i] = a_ptr[tid * {a} + i];
  for (int i = 0; i < {b}; ++i) B[i] = b_ptr[tid * {b} + i];
  asm volatile("{instruction} {lists[0]}, {lists[1]}, {lists[2]}, {lists[0]};"
               : {_asm_operands("+" + out_constraint, "D", c)}
               : {_asm_operands(constraint, "A", a)}, {_asm_operands(constraint, "B", b)});
  for (int i = 0; i < {c}; ++i) d_ptr[tid * {c} + i] = D[i];
}}
"""


def wgmma_source(atom: MmaAtom, accumulators: int, image_bytes: tuple[int, int], descriptors: tuple[int, int]) -> str:
    """Source of `probe(a_ptr, b_ptr, d_ptr)` for wgmma.

    `a_ptr` and `b_ptr` hold shared memory images, or `a_ptr` the registers of A if the instruction reads A from them.

    Args:
        accumulators: registers of C per thread.
        image_bytes: size of the images of A (0 if A is in registers) and B.
        descriptors: shared memory descriptors of A and B without the address.
    """
    operand_type, _, accumulator_type = atom.types
    out_type, out_constraint = _REGISTER_TYPES[accumulator_type]
    m, n, k = atom.shape
    a_in_registers = atom.a is not None
    lists = _operand_lists(accumulators, 4)
    a_text = lists[1] if a_in_registers else f"%{accumulators}"
    b_operand = accumulators + (4 if a_in_registers else 1)
    scales = "" if accumulator_type == "s32" else ", 1, 1"
    transposes = {True: ", 0", False: ", 0, 0"}[a_in_registers] if operand_type in ("f16", "bf16") else ""
    a_asm = _asm_operands("r", "A", 4) if a_in_registers else '"l"(a_desc)'
    types = f"{accumulator_type}.{operand_type}.{operand_type}"
    load_a = "uint A[4]; for (int i = 0; i < 4; ++i) A[i] = reinterpret_cast<const uint*>(a_ptr)[tid * 4 + i];"
    parameters = f"const unsigned char* a_ptr, const unsigned char* b_ptr, {out_type}* d_ptr"
    return f"""{PREAMBLE}
extern "C" __global__ void __launch_bounds__(128) probe({parameters}) {{
  extern __shared__ __align__(1024) unsigned char smem[];
  unsigned char *a_smem = smem, *b_smem = smem + {image_bytes[0]};
  for (int i = threadIdx.x; i < {image_bytes[0]}; i += 128) a_smem[i] = a_ptr[blockIdx.x * {image_bytes[0]} + i];
  for (int i = threadIdx.x; i < {image_bytes[1]}; i += 128) b_smem[i] = b_ptr[blockIdx.x * {image_bytes[1]} + i];
  const int tid = blockIdx.x * 128 + threadIdx.x;
  {load_a if a_in_registers else ""}
  {out_type} D[{accumulators}] = {{}};
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const ulong a_desc = {descriptors[0]}ull | (smem_u32(a_smem) & 0x3FFFF) >> 4;
  const ulong b_desc = {descriptors[1]}ull | (smem_u32(b_smem) & 0x3FFFF) >> 4;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{ .reg .pred add; setp.ne.b32 add, %{b_operand + 1}, 0;"
               " wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{types} {lists[0]}, {a_text}, %{b_operand}, add"
               "{scales}{transposes}; }}"
               : {_asm_operands("+" + out_constraint, "D", accumulators)} : {a_asm}, "l"(b_desc), "r"(1));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {accumulators}; ++i) d_ptr[tid * {accumulators} + i] = D[i];
}}
"""


def copy_source(atom: CopyAtom) -> str:
    """Source of `probe(in_ptr, out_ptr)`: ldmatrix from a shared memory image to registers, stmatrix the reverse."""
    count = size(atom.memory) // 64
    instruction, matrices, *trans = atom.name.split(".")
    qualifiers = f".sync.aligned.m8n8.{matrices}{'.trans' * bool(trans)}.shared.b16"
    registers = ", ".join(f"%{i}" for i in range(count))
    if instruction == "ldmatrix":
        body = f"""
  for (int i = threadIdx.x; i < {32 * count}; i += 32) smem[i] = in_ptr[i];
  __syncwarp();
  asm volatile("ldmatrix{qualifiers} {{{registers}}}, [%{count}];" : {_asm_operands("=r", "R", count)} : "r"(addr));
  for (int i = 0; i < {count}; ++i) out_ptr[threadIdx.x * {count} + i] = R[i];"""
    else:
        inputs = f'{_asm_operands("r", "R", count)}, "r"(addr)'
        body = f"""
  for (int i = 0; i < {count}; ++i) R[i] = in_ptr[threadIdx.x * {count} + i];
  asm volatile("stmatrix{qualifiers} [%{count}], {{{registers}}};" :: {inputs} : "memory");
  __syncwarp();
  for (int i = threadIdx.x; i < {32 * count}; i += 32) out_ptr[i] = smem[i];"""
    return f"""{PREAMBLE}
extern "C" __global__ void probe(const uint* in_ptr, uint* out_ptr) {{
  __shared__ __align__(16) uint smem[{32 * count}];
  uint R[{count}];
  const uint addr = smem_u32(smem) + threadIdx.x % {8 * count} * 16;
{body}
}}
"""


def access_source(addresses: list[list[int]], access_bytes: int, memory: str, extent_bytes: int) -> str:
    """Source of `probe(in_ptr, out_ptr)`: loads of one warp at byte addresses from constant memory.

    Args:
        addresses: of each instruction, of each thread.
        memory: shared or global.
        extent_bytes: one past the last byte that is accessed.
    """
    table = ", ".join(str(address) for row in addresses for address in row)
    words = max(1, access_bytes // 4)
    load_type = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}[access_bytes]
    base, constraint = ("smem_u32(smem)", "r") if memory == "shared" else ("in_ptr", "l")
    address = f'"{constraint}"({base} + offsets[i * 32 + threadIdx.x])'
    registers = "{" + ", ".join(f"%{i}" for i in range(words)) + "}" if words > 1 else "%0"
    return f"""{PREAMBLE}
__constant__ int offsets[{len(addresses) * 32}] = {{{table}}};
extern "C" __global__ void probe(const unsigned char* in_ptr, uint* out_ptr) {{
  {f"__shared__ __align__(128) unsigned char smem[{extent_bytes + 16}];" if memory == "shared" else ""}
  uint sum = 0;
#pragma unroll 1
  for (int i = 0; i < {len(addresses)}; ++i) {{
    uint R[{words}];
    asm volatile("ld.{memory}.{load_type} {registers}, [%{words}];" : {_asm_operands("=r", "R", words)} : {address});
    for (int j = 0; j < {words}; ++j) sum += R[j];
  }}
  out_ptr[threadIdx.x] = sum;
}}
"""


def _operand_lists(*counts: int) -> list[str]:
    """Brace lists of consecutive asm operand numbers, one per count."""
    lists, first = [], 0
    for count in counts:
        lists.append("{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}")
        first += count
    return lists


def _asm_operands(constraint: str, name: str, count: int) -> str:
    return ", ".join(f'"{constraint}"({name}[{i}])' for i in range(count))
