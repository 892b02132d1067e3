// Interface between a kernel's library, the runtime and Python (launcher.py, by ctypes).

struct KwIndex {
  unsigned x, y, z;
};

struct KwThreadPosition {
  KwIndex thread, block, block_dim, grid_dim;
};

struct KwLaunch {
  KwIndex grid, block;
  unsigned shared_bytes;
  unsigned workers;           // operating-system threads that run the blocks
  void (*call)(void**);       // runs the kernel for one CUDA thread
  void** values;              // address of each parameter
  char* (*dynamic_shared)();  // dynamic shared memory of the calling operating-system thread
  int error_line;             // line of the source; 0 if unknown
  char error[1024];           // empty on success
};

// A kernel parameter; `inner` describes the pointee of a pointer.
struct KwParameter {
  int kind, bytes, inner, inner_bytes;
};
enum { kKwOther, kKwFloat, kKwSigned, kKwUnsigned, kKwPointer };

constexpr unsigned kKwSharedBytes = 227 * 1024;  // limit of dynamic shared memory per block on Hopper
constexpr unsigned kKwWarp = 32;
constexpr unsigned kKwExchangeWords = 8;  // 32-bit words per lane: fragments of a matrix instruction

extern "C" {
extern __thread KwThreadPosition kw_thread_position __attribute__((visibility("default")));
__attribute__((visibility("default"))) void kw_run(KwLaunch* launch);
__attribute__((visibility("default"))) void kw_barrier(int line);
__attribute__((visibility("default"))) void kw_syncwarp(int line, unsigned mask);
__attribute__((visibility("default"))) unsigned kw_ballot(int line, unsigned mask, int predicate);
__attribute__((visibility("default"))) unsigned long long kw_shuffle(int line, unsigned mask,
                                                                     unsigned long long value, int source);
__attribute__((visibility("default"))) int kw_lane();
// Waits until another thread has signalled; a round of all threads without a signal is a deadlock.
__attribute__((visibility("default"))) void kw_poll(int line);
__attribute__((visibility("default"))) void kw_signal();
// Collective of all 32 lanes: copies `words` words, at most kKwExchangeWords, of every lane to `received`, by lane.
__attribute__((visibility("default"))) void kw_exchange(int line, const unsigned* sent, unsigned words,
                                                        unsigned* received);
}
