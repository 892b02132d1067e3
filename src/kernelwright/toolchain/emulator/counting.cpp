// Counts memory accesses. The kernel's library is compiled with -fsanitize=thread, whose access hooks are defined here,
// and with -fsanitize-coverage=trace-pc, which calls a hook at the start of each basic block.
//
// Each lane records a trace of blocks and accesses. When all lanes of a warp have stopped (at __syncthreads or exited),
// the traces are replayed as a warp executes: the lanes that are furthest behind in the code advance next, together.
// Unoptimised code has source order, so lanes that left a loop or a branch early wait at its end for the others.
#include <map>
#include <unordered_map>

struct KwRange {
  uint64_t begin, end, base;  // of a tensor; `base` is the start of its storage, which a GPU would align
};

struct KwPattern {
  unsigned code_offset;    // of the instruction after the access, from the start of the library
  unsigned short operand;  // number of the tensor, or kSharedMemory
  unsigned char kind, bytes;
  unsigned mask;  // active lanes
  unsigned pad;
  uint64_t offsets[32];  // addresses of the active lanes, relative to a multiple of 128 below the lowest
  uint64_t count;
};

namespace {

enum Kind : unsigned char { kBlock, kRead, kWrite, kAtomic };
constexpr unsigned short kSharedMemory = 0xffff;
constexpr uint64_t kTensorStride = 1ull << 40;  // between the virtual addresses of two tensors

struct TraceEvent {
  unsigned code_offset, path;
  uint64_t address;
  unsigned short operand;
  unsigned char kind, bytes;
};

struct CallPath {
  unsigned parent, code_offset, function, depth;
};

struct Same {
  bool operator()(const KwPattern& a, const KwPattern& b) const {
    return memcmp(&a, &b, offsetof(KwPattern, count)) == 0;
  }
};
struct Hash {
  size_t operator()(const KwPattern& pattern) const {
    uint64_t words[offsetof(KwPattern, count) / 8], hash = 0xcbf29ce484222325;
    memcpy(words, &pattern, sizeof words);
    for (uint64_t word : words) hash = (hash ^ word) * 0x100000001b3, hash ^= hash >> 29;
    return hash;
  }
};

// One launch at a time, on one operating-system thread.
struct Counting {
  std::vector<KwRange> ranges;
  std::vector<unsigned> function_of;  // by code offset; 0 is none
  std::vector<uint64_t> visits;       // of basic blocks, by code offset
  std::vector<CallPath> call_paths;
  std::map<std::pair<unsigned, unsigned>, unsigned> children;
  std::vector<TraceEvent> traces[kKwWarp];  // warps run one after another
  unsigned path_of[1024];                   // call path of each thread
  std::unordered_map<KwPattern, uint64_t, Hash, Same> patterns;
  std::vector<KwPattern> result;
  std::vector<unsigned> functions;
  uintptr_t code = 0;
  uint64_t shared_begin = 0, shared_end = 0;
  std::vector<TraceEvent>* trace = nullptr;
  unsigned* path = nullptr;
} counting;

unsigned code_offset_of(void* pc) { return unsigned(reinterpret_cast<uintptr_t>(pc) - counting.code); }

// Whether a lane at `a` is behind one at `b` in program order: compares code offsets in their deepest common caller.
bool is_behind(const TraceEvent& a, const TraceEvent& b) {
  if (a.path == b.path) return a.code_offset < b.code_offset;
  const auto& paths = counting.call_paths;
  unsigned path_a = a.path, path_b = b.path, offset_a = a.code_offset, offset_b = b.code_offset;
  while (paths[path_a].depth > paths[path_b].depth) offset_a = paths[path_a].code_offset, path_a = paths[path_a].parent;
  while (paths[path_b].depth > paths[path_a].depth) offset_b = paths[path_b].code_offset, path_b = paths[path_b].parent;
  while (path_a != path_b) {
    offset_a = paths[path_a].code_offset, path_a = paths[path_a].parent;
    offset_b = paths[path_b].code_offset, path_b = paths[path_b].parent;
  }
  return offset_a < offset_b;
}

void count_request(const TraceEvent& first, unsigned mask, const uint64_t* addresses) {
  KwPattern pattern{};
  pattern.code_offset = first.code_offset;
  pattern.operand = first.operand;
  pattern.kind = first.kind;
  pattern.bytes = first.bytes;
  pattern.mask = mask;
  uint64_t lowest = ~uint64_t(0);
  for (unsigned i = 0; i < kKwWarp; ++i) {
    if (mask >> i & 1) lowest = std::min(lowest, addresses[i] & ~uint64_t(127));
  }
  for (unsigned i = 0; i < kKwWarp; ++i) {
    if (mask >> i & 1) pattern.offsets[i] = addresses[i] - lowest;
  }
  ++counting.patterns[pattern];
}

void record(void* address, unsigned char bytes, Kind kind, void* pc) {
  if (!counting.trace) return;
  const auto value = reinterpret_cast<uint64_t>(address);
  const unsigned code_offset = code_offset_of(pc);
  if (value >= counting.shared_begin && value < counting.shared_end) {
    counting.trace->push_back({code_offset, *counting.path, value - counting.shared_begin, kSharedMemory, kind, bytes});
    return;
  }
  for (size_t i = 0; i < counting.ranges.size(); ++i) {
    const KwRange& range = counting.ranges[i];
    if (value < range.begin || value >= range.end) continue;
    const uint64_t virtual_address = (i + 1) * kTensorStride + (value - range.base);
    counting.trace->push_back({code_offset, *counting.path, virtual_address, (unsigned short)i, kind, bytes});
    return;
  }
}

}  // namespace

// ---- Called by the scheduler.
void kw_count_start(char* shared, size_t shared_bytes, uintptr_t code, size_t code_bytes) {
  counting.code = code;
  counting.shared_begin = reinterpret_cast<uint64_t>(shared);
  counting.shared_end = counting.shared_begin + shared_bytes;
  counting.visits.assign(code_bytes + 1, 0);
  counting.function_of.assign(code_bytes + 1, 0);
  for (size_t i = 0; i < counting.functions.size(); ++i) {
    const size_t end = i + 1 < counting.functions.size() ? counting.functions[i + 1] : code_bytes;
    for (size_t offset = counting.functions[i]; offset < end; ++offset) counting.function_of[offset] = unsigned(i + 1);
  }
  counting.call_paths.assign(1, CallPath{0, 0, 0, 0});
  counting.children.clear();
  counting.patterns.clear();
  std::fill(std::begin(counting.path_of), std::end(counting.path_of), 0);
  for (auto& trace : counting.traces) trace.clear();
}

void kw_count_select_lane(int thread) {
  counting.trace = &counting.traces[thread % int(kKwWarp)];
  counting.path = &counting.path_of[thread];
}

void kw_count_reconverge() {
  auto* traces = counting.traces;
  size_t next[kKwWarp] = {};
  for (;;) {
    const TraceEvent* least = nullptr;
    for (unsigned i = 0; i < kKwWarp; ++i) {
      if (next[i] == traces[i].size()) continue;
      const TraceEvent& head = traces[i][next[i]];
      if (!least || is_behind(head, *least)) least = &head;
    }
    if (!least) break;
    unsigned mask = 0;
    uint64_t addresses[kKwWarp];
    for (unsigned i = 0; i < kKwWarp; ++i) {
      if (next[i] == traces[i].size()) continue;
      const TraceEvent& head = traces[i][next[i]];
      if (head.path != least->path || head.code_offset != least->code_offset) continue;
      addresses[i] = head.address;
      mask |= 1u << i;
      ++next[i];
    }
    if (least->kind != kBlock) count_request(*least, mask, addresses);
  }
  for (unsigned i = 0; i < kKwWarp; ++i) traces[i].clear();
}

// ---- Called by Python.
#define KW_PUBLIC extern "C" __attribute__((visibility("default")))

KW_PUBLIC void kw_count_setup(const KwRange* ranges, int range_count, const unsigned* functions, int function_count) {
  counting.ranges.assign(ranges, ranges + range_count);
  counting.functions.assign(functions, functions + function_count);
}

KW_PUBLIC int kw_count_patterns(const KwPattern** patterns) {
  counting.trace = nullptr;
  counting.result.clear();
  for (const auto& [pattern, count] : counting.patterns) {
    counting.result.push_back(pattern);
    counting.result.back().count = count;
  }
  *patterns = counting.result.data();
  return int(counting.result.size());
}

KW_PUBLIC uint64_t kw_count_visits(unsigned code_offset) {
  return code_offset < counting.visits.size() ? counting.visits[code_offset] : 0;
}

// ---- Called by instrumented code.
KW_PUBLIC void __sanitizer_cov_trace_pc() {
  if (!counting.trace) return;
  const unsigned code_offset = code_offset_of(__builtin_return_address(0));
  if (code_offset >= counting.visits.size()) return;
  ++counting.visits[code_offset];
  // A function without memory accesses has no __tsan_func_entry, so its blocks are not part of the call path's order.
  if (counting.function_of[code_offset] != counting.call_paths[*counting.path].function) return;
  counting.trace->push_back({code_offset, *counting.path, 0, 0, kBlock, 0});
}

KW_PUBLIC void __tsan_func_entry(void* caller) {
  if (!counting.trace) return;
  const unsigned parent = *counting.path, code_offset = code_offset_of(caller);
  unsigned& child = counting.children[{parent, code_offset}];
  if (!child) {
    const unsigned entry = code_offset_of(__builtin_return_address(0));
    const unsigned function = entry < counting.function_of.size() ? counting.function_of[entry] : 0;
    child = unsigned(counting.call_paths.size());
    counting.call_paths.push_back({parent, code_offset, function, counting.call_paths[parent].depth + 1});
  }
  *counting.path = child;
}

KW_PUBLIC void __tsan_func_exit() {
  if (counting.trace) *counting.path = counting.call_paths[*counting.path].parent;
}

KW_PUBLIC void __tsan_init() {}
KW_PUBLIC void __tsan_vptr_update(void**, void*) {}
KW_PUBLIC void __tsan_vptr_read(void**) {}

#define KW_HOOKS(bytes)                                                                                            \
  KW_PUBLIC void __tsan_read##bytes(void* at) { record(at, bytes, kRead, __builtin_return_address(0)); }           \
  KW_PUBLIC void __tsan_write##bytes(void* at) { record(at, bytes, kWrite, __builtin_return_address(0)); }         \
  KW_PUBLIC void __tsan_unaligned_read##bytes(void* at) { record(at, bytes, kRead, __builtin_return_address(0)); } \
  KW_PUBLIC void __tsan_unaligned_write##bytes(void* at) { record(at, bytes, kWrite, __builtin_return_address(0)); }
KW_HOOKS(1)
KW_HOOKS(2)
KW_HOOKS(4)
KW_HOOKS(8)
KW_HOOKS(16)

// A copy of a whole structure: accesses of up to 16 bytes.
static void record_range(void* address, unsigned long bytes, Kind kind, void* pc) {
  for (unsigned long offset = 0; offset < bytes; offset += 16)
    record(static_cast<char*>(address) + offset, (unsigned char)std::min(16ul, bytes - offset), kind, pc);
}
KW_PUBLIC void __tsan_read_range(void* address, unsigned long bytes) {
  record_range(address, bytes, kRead, __builtin_return_address(0));
}
KW_PUBLIC void __tsan_write_range(void* address, unsigned long bytes) {
  record_range(address, bytes, kWrite, __builtin_return_address(0));
}

#define KW_ATOMICS(width, T)                                                                                       \
  KW_PUBLIC T __tsan_atomic##width##_load(const volatile T* at, int) { return *at; }                               \
  KW_PUBLIC void __tsan_atomic##width##_store(volatile T* at, T value, int) { *at = value; }                       \
  KW_PUBLIC int __tsan_atomic##width##_compare_exchange_strong(volatile T* at, T* expected, T value, int, int) {   \
    record(const_cast<T*>(at), sizeof(T), kAtomic, __builtin_return_address(0));                                   \
    *at = value;                                                                                                   \
    return 1;                                                                                                      \
  }
KW_ATOMICS(32, unsigned)
KW_ATOMICS(64, unsigned long long)
KW_PUBLIC void __tsan_atomic_thread_fence(int) {}
