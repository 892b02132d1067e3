// What a kernel's library, the runtime and Python (run.py, by ctypes) agree on.

struct KwIndex {
  unsigned x, y, z;
};

struct KwPlace {
  KwIndex thread, block, block_dim, grid_dim;
};

struct KwLaunch {
  KwIndex grid, block;
  unsigned shared_bytes;
  unsigned workers;           // operating-system threads over which the blocks are spread
  void (*call)(void**);       // the kernel with its parameters, for one thread
  void** values;              // where each parameter lies
  char* (*dynamic_shared)();  // of the operating-system thread that asks
  int error_line;             // of the source; 0 is unknown
  char error[1024];           // empty: all went well
};

// A parameter of a kernel: `inner` is what a pointer points to.
struct KwParameter {
  int kind, bytes, inner, inner_bytes;
};
enum { kKwOther, kKwFloat, kKwSigned, kKwUnsigned, kKwPointer };

constexpr unsigned kKwSharedBytes = 227 * 1024;  // the most dynamic shared memory of a block on Hopper
constexpr unsigned kKwWarp = 32;

extern "C" {
extern __thread KwPlace kw_place __attribute__((visibility("default")));
__attribute__((visibility("default"))) void kw_run(KwLaunch* launch);
__attribute__((visibility("default"))) void kw_barrier(int line);
__attribute__((visibility("default"))) void kw_sync_warp(int line, unsigned mask);
__attribute__((visibility("default"))) unsigned kw_ballot(int line, unsigned mask, int predicate);
__attribute__((visibility("default"))) unsigned long long kw_exchange(int line, unsigned mask,
                                                                      unsigned long long value, int source);
__attribute__((visibility("default"))) int kw_lane();
}
