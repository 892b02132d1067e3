"""CUDA sources in which one instruction is all that happens: registers in from memory, registers out to memory.

Every block is a probe of its own, with its own registers and its own image of shared memory.
"""

from __future__ import annotations

from kernelwright.layouts import CopyAtom, MmaAtom, size

PREAMBLE = """
using uint = unsigned int;
using ulong = unsigned long long;
__device__ uint shared_address(const void* p) { return static_cast<uint>(__cvta_generic_to_shared(p)); }
"""
_REGISTER_TYPES = {"f64": ("double", "d"), "f32": ("float", "f"), "s32": ("int", "r")}
"""C++'s type and the constraint of a register by what it holds; everything else is packed into 32 bits."""


def mma_source(atom: MmaAtom, registers: tuple[int, int, int]) -> str:
    """`probe(a, b, d)`: a, b and d hold the registers of every thread of every probe.

    Args:
        registers: of A, B and C in each thread.
    """
    (kind, _, total), (a, b, c) = atom.types, registers
    packed, packed_name = _REGISTER_TYPES.get(kind, ("uint", "r"))
    out, out_name = _REGISTER_TYPES[total]
    m, n, k = atom.shape
    lists = _operand_lists(c, a, b)
    instruction = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{total}.{kind}.{kind}.{total}"
    return f"""{PREAMBLE}
extern "C" __global__ void probe(const {packed}* a, const {packed}* b, {out}* d) {{
  const int who = blockIdx.x * {size(atom.threads)} + threadIdx.x;
  {packed} A[{a}], B[{b}];
  {out} D[{c}] = {{}};
  for (int i = 0; i < {a}; ++i) A[i] = a[who * {a} + i];
  for (int i = 0; i < {b}; ++i) B[i] = b[who * {b} + i];
  asm volatile("{instruction} {lists[0]}, {lists[1]}, {lists[2]}, {lists[0]};"
               : {_asm_operands("+" + out_name, "D", c)}
               : {_asm_operands(packed_name, "A", a)}, {_asm_operands(packed_name, "B", b)});
  for (int i = 0; i < {c}; ++i) d[who * {c} + i] = D[i];
}}
"""


def wgmma_source(atom: MmaAtom, accumulators: int, image_bytes: tuple[int, int], descriptors: tuple[int, int]) -> str:
    """`probe(a, b, d)`: a and b hold images of shared memory, or a the registers of A where threads hold it.

    Args:
        accumulators: registers of C in each thread.
        image_bytes: of A (0 where threads hold it) and of B.
        descriptors: everything but the address, of A and of B.
    """
    kind, _, total = atom.types
    out, out_name = _REGISTER_TYPES[total]
    m, n, k = atom.shape
    held = atom.a is not None
    lists = _operand_lists(accumulators, 4)
    a_text = lists[1] if held else f"%{accumulators}"
    b_at = accumulators + (4 if held else 1)
    scales = "" if total == "s32" else ", 1, 1"
    transposes = {True: ", 0", False: ", 0, 0"}[held] if kind in ("f16", "bf16") else ""
    operands = _asm_operands("r", "A", 4) if held else '"l"(a_at)'
    return f"""{PREAMBLE}
extern "C" __global__ void __launch_bounds__(128) probe(const unsigned char* a, const unsigned char* b, {out}* d) {{
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char *a_image = shared, *b_image = shared + {image_bytes[0]};
  for (int i = threadIdx.x; i < {image_bytes[0]}; i += 128) a_image[i] = a[blockIdx.x * {image_bytes[0]} + i];
  for (int i = threadIdx.x; i < {image_bytes[1]}; i += 128) b_image[i] = b[blockIdx.x * {image_bytes[1]} + i];
  const int who = blockIdx.x * 128 + threadIdx.x;
  {"uint A[4]; for (int i = 0; i < 4; ++i) A[i] = reinterpret_cast<const uint*>(a)[who * 4 + i];" if held else ""}
  {out} D[{accumulators}] = {{}};
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const ulong a_at = {descriptors[0]}ull | (shared_address(a_image) & 0x3FFFF) >> 4;
  const ulong b_at = {descriptors[1]}ull | (shared_address(b_image) & 0x3FFFF) >> 4;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{ .reg .pred add; setp.ne.b32 add, %{b_at + 1}, 0;"
               " wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{total}.{kind}.{kind} {lists[0]}, {a_text}, %{b_at}, add"
               "{scales}{transposes}; }}"
               : {_asm_operands("+" + out_name, "D", accumulators)} : {operands}, "l"(b_at), "r"(1));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {accumulators}; ++i) d[who * {accumulators} + i] = D[i];
}}
"""


def copy_source(atom: CopyAtom) -> str:
    """`probe(in, out)`: ldmatrix takes an image of shared memory to registers, stmatrix registers to an image."""
    count = size(atom.memory) // 64
    instruction, matrices, *trans = atom.name.split(".")
    rest = f".sync.aligned.m8n8.{matrices}{'.trans' * bool(trans)}.shared.b16"
    names = ", ".join(f"%{i}" for i in range(count))
    if instruction == "ldmatrix":
        move = f"""
  for (int i = threadIdx.x; i < {32 * count}; i += 32) image[i] = in[i];
  __syncwarp();
  asm volatile("ldmatrix{rest} {{{names}}}, [%{count}];" : {_asm_operands("=r", "R", count)} : "r"(address));
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = R[i];"""
    else:
        move = f"""
  for (int i = 0; i < {count}; ++i) R[i] = in[threadIdx.x * {count} + i];
  asm volatile("stmatrix{rest} [%{count}], {{{names}}};" :: {_asm_operands("r", "R", count)}, "r"(address) : "memory");
  __syncwarp();
  for (int i = threadIdx.x; i < {32 * count}; i += 32) out[i] = image[i];"""
    return f"""{PREAMBLE}
extern "C" __global__ void probe(const uint* in, uint* out) {{
  __shared__ __align__(16) uint image[{32 * count}];
  uint R[{count}];
  const uint address = shared_address(image) + threadIdx.x % {8 * count} * 16;
{move}
}}
"""


def access_source(addresses: list[list[int]], access_bytes: int, memory: str, extent_bytes: int) -> str:
    """`probe(memory, out)`: the instructions of one warp, at byte addresses that stand in constant memory.

    Args:
        addresses: for each instruction, of each thread.
        memory: shared or global.
        extent_bytes: one more than the last byte that is touched.
    """
    table = ", ".join(str(address) for row in addresses for address in row)
    words = max(1, access_bytes // 4)
    kind = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}[access_bytes]
    base, constraint = ("shared_address(image)", "r") if memory == "shared" else ("in", "l")
    address = f'"{constraint}"({base} + at[i * 32 + threadIdx.x])'
    names = "{" + ", ".join(f"%{i}" for i in range(words)) + "}" if words > 1 else "%0"
    return f"""{PREAMBLE}
__constant__ int at[{len(addresses) * 32}] = {{{table}}};
extern "C" __global__ void probe(const unsigned char* in, uint* out) {{
  {f"__shared__ __align__(128) unsigned char image[{extent_bytes + 16}];" if memory == "shared" else ""}
  uint sum = 0;
#pragma unroll 1
  for (int i = 0; i < {len(addresses)}; ++i) {{
    uint R[{words}];
    asm volatile("ld.{memory}.{kind} {names}, [%{words}];" : {_asm_operands("=r", "R", words)} : {address});
    for (int j = 0; j < {words}; ++j) sum += R[j];
  }}
  out[threadIdx.x] = sum;
}}
"""


def _operand_lists(*counts: int) -> list[str]:
    """Operands of an instruction by number, one brace list for each count."""
    found, at = [], 0
    for count in counts:
        found.append("{" + ", ".join(f"%{i}" for i in range(at, at + count)) + "}")
        at += count
    return found


def _asm_operands(constraint: str, name: str, count: int) -> str:
    return ", ".join(f'"{constraint}"({name}[{i}])' for i in range(count))
