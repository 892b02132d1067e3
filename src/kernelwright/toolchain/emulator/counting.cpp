// Counts what a run asks of memory. The kernel's library is compiled with -fsanitize=thread, whose hooks for each
// access are these, and with -fsanitize-coverage=trace-pc, which calls one at the begin of each basic block.
//
// Each lane leaves a trail of blocks and accesses. When a warp rests (all lanes at __syncthreads or ended) the trails
// are walked as a warp executes: the lanes that are furthest behind in the code go next, together. Unoptimised code
// lies in the order of the source, so lanes that left a loop or a branch early wait for the others behind it.
#include <map>
#include <unordered_map>

struct KwRange {
  uint64_t begin, end, base;  // of a tensor; `base` is the begin of its storage, which a GPU would align
};

struct KwPattern {
  unsigned place;  // of the instruction behind the access, from the library's begin
  unsigned short operand;  // number of the tensor, or kSharedMemory
  unsigned char kind, bytes;
  unsigned mask;  // lanes that take part
  unsigned pad;
  uint64_t offsets[32];    // addresses of those lanes, from a multiple of 128 below the first of them
  uint64_t count;
};

namespace {

enum Kind : unsigned char { kBlock, kRead, kWrite, kAtomic };
constexpr unsigned short kSharedMemory = 0xffff;
constexpr uint64_t kFarApart = 1ull << 40;  // between the addresses of two tensors

struct Token {
  unsigned place, chain;
  uint64_t address;
  unsigned short operand;
  unsigned char kind, bytes;
};

struct Chain {
  unsigned parent, place, function, depth;
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
  std::vector<unsigned> function_of;  // by place; 0 is none
  std::vector<uint64_t> visits;       // of blocks, by place
  std::vector<Chain> chains;
  std::map<std::pair<unsigned, unsigned>, unsigned> children;
  std::vector<Token> trails[kKwWarp];  // warps run one after another
  unsigned chain_of[1024];
  std::unordered_map<KwPattern, uint64_t, Hash, Same> patterns;
  std::vector<KwPattern> result;
  std::vector<unsigned> functions;
  uintptr_t code = 0;
  uint64_t shared_begin = 0, shared_end = 0;
  std::vector<Token>* trail = nullptr;
  unsigned* chain = nullptr;
} counting;

unsigned place_of(void* pc) { return unsigned(reinterpret_cast<uintptr_t>(pc) - counting.code); }

// Whether a lane at `a` is behind one at `b`: by the calls that led there, then the place.
bool behind(const Token& a, const Token& b) {
  if (a.chain == b.chain) return a.place < b.place;
  const auto& chains = counting.chains;
  unsigned left = a.chain, right = b.chain, left_place = a.place, right_place = b.place;
  while (chains[left].depth > chains[right].depth) left_place = chains[left].place, left = chains[left].parent;
  while (chains[right].depth > chains[left].depth) right_place = chains[right].place, right = chains[right].parent;
  while (left != right) {
    left_place = chains[left].place, left = chains[left].parent;
    right_place = chains[right].place, right = chains[right].parent;
  }
  return left_place < right_place;
}

void request(const Token& first, unsigned mask, const uint64_t* addresses) {
  KwPattern pattern{};
  pattern.place = first.place;
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
  if (!counting.trail) return;
  const auto at = reinterpret_cast<uint64_t>(address);
  if (at >= counting.shared_begin && at < counting.shared_end) {
    counting.trail->push_back({place_of(pc), *counting.chain, at - counting.shared_begin, kSharedMemory, kind, bytes});
    return;
  }
  for (size_t i = 0; i < counting.ranges.size(); ++i) {
    const KwRange& range = counting.ranges[i];
    if (at < range.begin || at >= range.end) continue;
    const uint64_t virtual_address = (i + 1) * kFarApart + (at - range.base);
    counting.trail->push_back({place_of(pc), *counting.chain, virtual_address, (unsigned short)i, kind, bytes});
    return;
  }
}

}  // namespace

// ---- The scheduler tells of these.
void kw_count_begins(char* shared, size_t shared_bytes, uintptr_t code, size_t code_bytes) {
  counting.code = code;
  counting.shared_begin = reinterpret_cast<uint64_t>(shared);
  counting.shared_end = counting.shared_begin + shared_bytes;
  counting.visits.assign(code_bytes + 1, 0);
  counting.function_of.assign(code_bytes + 1, 0);
  for (size_t i = 0; i < counting.functions.size(); ++i) {
    const size_t end = i + 1 < counting.functions.size() ? counting.functions[i + 1] : code_bytes;
    for (size_t at = counting.functions[i]; at < end; ++at) counting.function_of[at] = unsigned(i + 1);
  }
  counting.chains.assign(1, Chain{0, 0, 0, 0});
  counting.children.clear();
  counting.patterns.clear();
  std::fill(std::begin(counting.chain_of), std::end(counting.chain_of), 0);
  for (auto& trail : counting.trails) trail.clear();
}

void kw_count_lane(int thread) {
  counting.trail = &counting.trails[thread % int(kKwWarp)];
  counting.chain = &counting.chain_of[thread];
}

void kw_count_rest() {
  auto* trails = counting.trails;
  size_t at[kKwWarp] = {};
  for (;;) {
    const Token* least = nullptr;
    for (unsigned i = 0; i < kKwWarp; ++i) {
      if (at[i] == trails[i].size()) continue;
      const Token& head = trails[i][at[i]];
      if (!least || behind(head, *least)) least = &head;
    }
    if (!least) break;
    unsigned mask = 0;
    uint64_t addresses[kKwWarp];
    for (unsigned i = 0; i < kKwWarp; ++i) {
      if (at[i] == trails[i].size()) continue;
      const Token& head = trails[i][at[i]];
      if (head.chain != least->chain || head.place != least->place) continue;
      addresses[i] = head.address;
      mask |= 1u << i;
      ++at[i];
    }
    if (least->kind != kBlock) request(*least, mask, addresses);
  }
  for (unsigned i = 0; i < kKwWarp; ++i) trails[i].clear();
}

// ---- Python asks these.
#define KW_PUBLIC extern "C" __attribute__((visibility("default")))

KW_PUBLIC void kw_count_setup(const KwRange* ranges, int range_count, const unsigned* functions, int function_count) {
  counting.ranges.assign(ranges, ranges + range_count);
  counting.functions.assign(functions, functions + function_count);
}

KW_PUBLIC int kw_count_patterns(const KwPattern** patterns) {
  counting.trail = nullptr;
  counting.result.clear();
  for (const auto& [pattern, count] : counting.patterns) {
    counting.result.push_back(pattern);
    counting.result.back().count = count;
  }
  *patterns = counting.result.data();
  return int(counting.result.size());
}

KW_PUBLIC uint64_t kw_count_visits(unsigned place) {
  return place < counting.visits.size() ? counting.visits[place] : 0;
}

// ---- The compiler calls these.
KW_PUBLIC void __sanitizer_cov_trace_pc() {
  if (!counting.trail) return;
  const unsigned place = place_of(__builtin_return_address(0));
  if (place >= counting.visits.size()) return;
  ++counting.visits[place];
  // A function that touches no memory enters unseen: its blocks belong to nobody's order.
  if (counting.function_of[place] != counting.chains[*counting.chain].function) return;
  counting.trail->push_back({place, *counting.chain, 0, 0, kBlock, 0});
}

KW_PUBLIC void __tsan_func_entry(void* caller) {
  if (!counting.trail) return;
  const unsigned parent = *counting.chain, place = place_of(caller);
  unsigned& child = counting.children[{parent, place}];
  if (!child) {
    const unsigned inside = place_of(__builtin_return_address(0));
    const unsigned function = inside < counting.function_of.size() ? counting.function_of[inside] : 0;
    child = unsigned(counting.chains.size());
    counting.chains.push_back({parent, place, function, counting.chains[parent].depth + 1});
  }
  *counting.chain = child;
}

KW_PUBLIC void __tsan_func_exit() {
  if (counting.trail) *counting.chain = counting.chains[*counting.chain].parent;
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

// A structure that is copied whole: accesses of up to 16 bytes.
static void range(void* at, unsigned long bytes, Kind kind, void* pc) {
  for (unsigned long done = 0; done < bytes; done += 16)
    record(static_cast<char*>(at) + done, (unsigned char)std::min(16ul, bytes - done), kind, pc);
}
KW_PUBLIC void __tsan_read_range(void* at, unsigned long bytes) {
  range(at, bytes, kRead, __builtin_return_address(0));
}
KW_PUBLIC void __tsan_write_range(void* at, unsigned long bytes) {
  range(at, bytes, kWrite, __builtin_return_address(0));
}

#define KW_ATOMICS(width, T)                                                                                       \
  KW_PUBLIC T __tsan_atomic##width##_load(const volatile T* at, int) { return *at; }                               \
  KW_PUBLIC int __tsan_atomic##width##_compare_exchange_strong(volatile T* at, T* expected, T value, int, int) {   \
    record(const_cast<T*>(at), sizeof(T), kAtomic, __builtin_return_address(0));                                   \
    *at = value;                                                                                                   \
    return 1;                                                                                                      \
  }
KW_ATOMICS(32, unsigned)
KW_ATOMICS(64, unsigned long long)
KW_PUBLIC void __tsan_atomic_thread_fence(int) {}
