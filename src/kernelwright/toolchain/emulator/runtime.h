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
  unsigned cluster;           // blocks of a cluster, consecutive in x
  unsigned workers;           // operating-system threads that run the clusters
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
constexpr unsigned kKwTaskBytes = 112;
enum KwQueue { kKwMatrixQueue, kKwStoreQueue, kKwCopyQueue, kKwQueues };  // a thread's asynchronous operations, in order

extern "C" {
extern __thread KwThreadPosition kw_thread_position __attribute__((visibility("default")));
__attribute__((visibility("default"))) void kw_run(KwLaunch* launch);
__attribute__((visibility("default"))) void kw_barrier(int line);
__attribute__((visibility("default"))) void kw_syncwarp(int line, unsigned mask);
__attribute__((visibility("default"))) unsigned kw_ballot(int line, unsigned mask, int predicate);
__attribute__((visibility("default"))) unsigned long long kw_shuffle(int line, unsigned mask,
                                                                     unsigned long long value, int source);
__attribute__((visibility("default"))) int kw_lane();
// Whether the predicate of any thread is true, after a barrier of the block.
__attribute__((visibility("default"))) int kw_barrier_or(int line, int predicate);
// Stops the launch with an error, which `what` describes.
__attribute__((visibility("default"))) void kw_fail(int line, const char* what);
__attribute__((visibility("default"))) unsigned kw_thread();  // index of the thread in its block
// Waits at `barrier` until another thread has signalled; if all threads wait and nothing is copied, that is a deadlock, or
// the end of the wait if it has a time limit.
__attribute__((visibility("default"))) void kw_poll(int line, const char* barrier, int has_time_limit);
__attribute__((visibility("default"))) void kw_signal();
// A barrier of `threads` threads of the block, with an id below 16; arrives, and waits if `wait`.
__attribute__((visibility("default"))) void kw_named_barrier(int line, unsigned id, unsigned threads, int wait);
// Clusters: the rank of the thread's block, and a barrier of all threads that have not exited.
__attribute__((visibility("default"))) unsigned kw_cluster_rank();
__attribute__((visibility("default"))) void kw_cluster_arrive();
__attribute__((visibility("default"))) void kw_cluster_wait(int line);
// Addresses in shared memory: the block's rank in the upper 8 bits; the lower ones have the alignment of the pointer. A
// pointer is to so many bytes; outside of the block's shared memory it is an error, and to other memory of 256 KiB.
__attribute__((visibility("default"))) unsigned kw_shared_address(const void* pointer);
__attribute__((visibility("default"))) void* kw_shared_pointer(int line, unsigned address, unsigned bytes);
// Runs a task of at most kKwTaskBytes at a random later time.
__attribute__((visibility("default"))) void kw_run_later(void (*run)(const void*), const void* task, unsigned bytes);
// Adds a task to a queue of the thread. It runs when a wait for its group requires it; matrix operations at random also at
// once, after those before them.
__attribute__((visibility("default"))) void kw_queue(KwQueue queue, void (*run)(const void*), const void* task,
                                                     unsigned bytes);
__attribute__((visibility("default"))) int kw_defers_copies();  // not where accesses are counted
__attribute__((visibility("default"))) void kw_commit_group(KwQueue queue);
// Runs all groups of the queue but the most recent `pending`.
__attribute__((visibility("default"))) void kw_wait_group(int line, KwQueue queue, unsigned pending);
// Collective of all 32 lanes: copies `words` words, at most kKwExchangeWords, of every lane to `received`, by lane.
__attribute__((visibility("default"))) void kw_exchange(int line, const unsigned* sent, unsigned words,
                                                        unsigned* received);
}
