// Runtime of emulated kernels: the grid is a loop, the threads of a cluster are fibers of one operating-system thread.
// build.py prepends fibers.h, runtime.h and process_hooks.h, and appends cluster.cpp, interface.cpp and, to the counting
// runtime, counting.cpp.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

__thread KwThreadPosition kw_thread_position;

#ifdef KW_COUNTED
void kw_count_start(char* shared, size_t shared_bytes, uintptr_t code, size_t code_bytes);
void kw_count_select_lane(int thread);
void kw_count_reconverge();
#endif

namespace {

enum State : unsigned char { kReady, kAtSyncthreads, kAtWarpSync, kPolling, kExited };
enum Operation : unsigned char { kSyncWarp, kBallot, kShuffle, kExchange };
const char* const kOperationNames[] = {"__syncwarp", "a vote", "a shuffle", "a matrix instruction"};

// An asynchronous operation; `group` counts the groups of its queue.
struct Task {
  void (*run)(const void*);
  unsigned group;
  alignas(16) char content[kKwTaskBytes];
};

struct TaskQueue {
  std::vector<Task> tasks;
  unsigned group = 0;
};

Task make_task(void (*run)(const void*), const void* content, unsigned bytes, unsigned group) {
  Task task{run, group, {}};
  memcpy(task.content, content, std::min(bytes, kKwTaskBytes));
  return task;
}

struct NamedBarrier {
  unsigned arrived = 0, threads = 0, phase = 0;
};

struct Thread {
  Context context;
  State state;
  Operation operation;
  int line;  // of the operation that it waits in
  const char* barrier;  // that it polls
  unsigned long polled_at;  // number of signals
  bool has_time_limit;
  unsigned cluster_phase;
  bool has_arrived;  // in the current phase of the cluster's barrier
  TaskQueue queues[kKwQueues];
  unsigned mask;
  int source;
  uint64_t sent, received;
  // Two, since a lane may begin the next exchange before others end this one; volatile, since ThreadSanitizer would see
  // a memcpy, which loops over these words become otherwise.
  volatile unsigned exchanged[2][kKwExchangeWords];
  int exchange_phase = 0;
  KwIndex index;
  void* tsan = nullptr;
  char sync_objects[2] = {};  // of the warp, in its first thread
  int sync_phase = 0;
};

std::string text_of(KwIndex index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

KwIndex index_of(unsigned long number, KwIndex size) {
  unsigned long plane = (unsigned long)size.x * size.y;
  return {unsigned(number % size.x), unsigned(number % plane / size.x), unsigned(number / plane)};
}

thread_local Stacks stacks;

// Runs blocks of a launch on one operating-system thread.
class Worker {
 public:
  explicit Worker(KwLaunch& launch) : launch_(launch), cluster_(launch.cluster), blocks_(launch.cluster) {
    block_threads_ = launch.block.x * launch.block.y * launch.block.z;
    count_ = block_threads_ * cluster_;
    threads_ = std::vector<Thread>(count_);
    kw_thread_position.block_dim = launch.block;
    kw_thread_position.grid_dim = launch.grid;
    ready_ = stacks.reserve(count_);
    if (!ready_) set_error(0, "no memory for the stacks of " + std::to_string(count_) + " threads");
    find_shared();
    if (__tsan_create_fiber) make_tsan_fibers();
  }

  ~Worker() {
    for (char& one : cluster_objects_)
      if (__tsan_acquire) __tsan_acquire(&one);  // the fibers' accesses come before the end of their memory
  }

  bool run(unsigned long cluster);
  void wait(State state, int line);
  void poll(int line, const char* barrier, bool has_time_limit = false);
  void fail(int line, const char* what) { set_error(line, "thread " + text_of(current().index) + what); }
  Thread& current() { return threads_[current_]; }
  void signal() {
    ++signals_;
    time_limits_ = 0;
  }
  int barrier_or(int line, bool predicate);
  void named_barrier(int line, unsigned id, unsigned threads, bool wait);
  unsigned rank() const { return current_ / block_threads_; }
  unsigned thread() const { return current_ % block_threads_; }
  void cluster_arrive();
  void cluster_wait(int line);
  unsigned shared_address(const void* pointer) const;
  void* shared_pointer(int line, unsigned address, unsigned bytes);
  void run_later(const Task& task);
  void queue(KwQueue number, void (*run)(const void*), const void* content, unsigned bytes);
  void commit_group(KwQueue queue);
  void wait_group(int line, KwQueue queue, unsigned pending);
  void receive(unsigned group, int phase, unsigned words, unsigned* received) const;
  int lane() const { return current_ % kKwWarp; }
  void* barrier_object() { return &blocks_[rank()].barrier_objects[blocks_[rank()].phase]; }
  void* warp_object() { return &threads_[current_ / kKwWarp * kKwWarp].sync_objects[current().sync_phase ^= 1]; }
  [[noreturn]] void thread_main();

 private:
  bool run_block(unsigned rank, bool& progress);
  bool release_syncthreads(unsigned rank);
  bool run_warp(unsigned first);
  void make_resident(unsigned rank);
  char* address_base() const;
  Task take_copy();
  bool run_copy();
  bool end_time_limits();
  unsigned random() { return (random_ = random_ * 1664525 + 1013904223) >> 16; }
  static void run_groups(TaskQueue& queue, unsigned groups);
  void complete_cluster_barrier();
  bool resolve_warp_ops(unsigned first);
  bool is_complete(unsigned first, unsigned lane, unsigned& group);
  void deliver(unsigned first, unsigned group);
  void resume(unsigned thread);
  void yield();
  void fill_shared_with_nan();
  void find_shared();
  void make_tsan_fibers();
  void set_error(int line, const std::string& message);
  void report_deadlock();
  std::string describe_waiting(State state, int line);

  struct Block {
    KwIndex index;
    NamedBarrier barriers[16];
    int phase = 0;  // of __syncthreads
    bool any_true = false, was_any_true = false;  // of the predicates of __syncthreads_or
    unsigned exited = 0;
    char barrier_objects[2] = {};
    std::vector<char> memory;  // shared memory while another block of the cluster runs
  };

  KwLaunch& launch_;
  const unsigned cluster_;
  std::vector<Thread> threads_;
  std::vector<Block> blocks_;
  std::vector<Task> copies_;
  unsigned count_ = 0, block_threads_ = 0, current_ = 0, resident_ = 0, cluster_arrived_ = 0, cluster_phase_ = 0;
  unsigned absent_ = 0;  // threads that have exited without arriving at the cluster's barrier
  unsigned time_limits_ = 0;  // that ended since the last signal
  unsigned long signals_ = 0;
  uint32_t random_ = 1;
  bool ready_ = false, failed_ = false;
  Context scheduler_;
  void* scheduler_tsan_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  int cluster_order_ = 0;
  char cluster_objects_[2] = {};
  char *shared_ = nullptr, *dynamic_ = nullptr;
  size_t shared_bytes_ = 0;
};

__thread Worker* worker;

// ---- Switching.
void Worker::resume(unsigned thread) {
  current_ = thread;
  kw_thread_position.thread = threads_[thread].index;
  kw_thread_position.block = blocks_[rank()].index;
#ifdef KW_COUNTED
  kw_count_select_lane(int(thread));
#endif
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake, stacks.base(thread), kStackBytes);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(threads_[thread].tsan, kNoSync);
  Context::switch_to(scheduler_, threads_[thread].context);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  if (stacks.canary(thread) != kCanary) {
    stacks.canary(thread) = kCanary;
    set_error(threads_[thread].line, "thread " + text_of(threads_[thread].index) + " needs more than " +
                                    std::to_string(kStackBytes) + " bytes of local memory");
  }
}

void Worker::yield() {
  Thread& thread = current();
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(thread.state == kExited ? nullptr : &fake, scheduler_stack_, scheduler_stack_bytes_);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(scheduler_tsan_, kNoSync);
  Context::switch_to(thread.context, scheduler_);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_stack_bytes_);
}

void Worker::wait(State state, int line) {
  current().state = state;
  current().line = line;
  yield();
}

void Worker::poll(int line, const char* barrier, bool has_time_limit) {
  current().polled_at = signals_;
  current().has_time_limit = has_time_limit;
  current().barrier = barrier;
  wait(kPolling, line);
}

void Worker::thread_main() {
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
  if (__tsan_acquire) __tsan_acquire(&cluster_objects_[cluster_order_]);  // synchronizes with the previous cluster
  launch_.call(launch_.values);
  if (!current().queues[kKwMatrixQueue].tasks.empty()) fail(0, " exits without a wait for its wgmma");
  if (!current().queues[kKwStoreQueue].tasks.empty()) fail(0, " exits without a wait for its TMA store");
  if (__tsan_release) __tsan_release(&cluster_objects_[1 - cluster_order_]);
  current().state = kExited;
  ++blocks_[rank()].exited;
  absent_ += !current().has_arrived;
  complete_cluster_barrier();
  yield();
  __builtin_unreachable();
}

void fiber_entry() { worker->thread_main(); }

// ---- One cluster: the blocks take turns, each until all its threads wait.
bool Worker::run(unsigned long cluster) {
  if (!ready_) return false;
  worker = this;
  fill_shared_with_nan();
  copies_.clear();
  cluster_arrived_ = resident_ = absent_ = 0;
  random_ = unsigned(cluster) * 2654435761u + 1;
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    Block& block = blocks_[rank];
    block.index = index_of(cluster * cluster_ + rank, launch_.grid);
    block.exited = 0;
    for (NamedBarrier& barrier : block.barriers) barrier.arrived = 0;
  }
  for (unsigned i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    thread.state = kReady;
    thread.line = 0;
    thread.exchange_phase = 0;
    thread.cluster_phase = cluster_phase_;
    thread.has_arrived = false;
    for (TaskQueue& queue : thread.queues) {
      queue.tasks.clear();
      queue.group = 0;
    }
    thread.index = index_of(i % block_threads_, launch_.block);
    thread.context.prepare(stacks.base(i), fiber_entry);
  }
  for (;;) {
    bool progress = false;
    unsigned exited = 0;
    for (unsigned rank = 0; rank < cluster_; ++rank) {
      if (!run_block(rank, progress)) return false;
      exited += blocks_[rank].exited;
    }
    if (exited == count_) break;
    if (failed_) return false;
    if (!progress && !run_copy() && !end_time_limits()) {
      report_deadlock();
      return false;
    }
  }
  while (run_copy()) {
  }
  cluster_order_ = 1 - cluster_order_;
  return !failed_;
}

bool Worker::run_block(unsigned rank, bool& progress) {
  const unsigned begin = rank * block_threads_, end = begin + block_threads_;
  for (;;) {
    bool ready = false;
    for (unsigned i = begin; i < end; ++i) {
      Thread& thread = threads_[i];
      if (thread.state == kPolling && thread.polled_at != signals_) thread.state = kReady;
      ready |= thread.state == kReady;
    }
    if (!ready) return true;
    progress = true;
    make_resident(rank);
    for (unsigned first = begin; first < end; first += kKwWarp) {
      if (!run_warp(first)) return false;
      if (random() % 4 == 0) run_copy();
    }
    if (failed_) return false;
    release_syncthreads(rank);
  }
}

bool Worker::release_syncthreads(unsigned rank) {
  Thread* const begin = &threads_[rank * block_threads_];
  for (const Thread* thread = begin; thread < begin + block_threads_; ++thread)
    if (thread->state != kAtSyncthreads || thread->line != begin->line) return false;
  for (Thread* thread = begin; thread < begin + block_threads_; ++thread) thread->state = kReady;
  Block& block = blocks_[rank];
  block.phase = 1 - block.phase;
  block.was_any_true = std::exchange(block.any_true, false);
  return true;
}

// Runs every lane of a warp until all have exited or wait for other warps.
bool Worker::run_warp(unsigned first) {
  const unsigned end = std::min(first + kKwWarp, count_);  // a cluster has blocks of whole warps
  do {
    for (unsigned i = first; i < end; ++i) {
      if (threads_[i].state == kReady) resume(i);
      if (failed_) return false;
    }
  } while (resolve_warp_ops(first));
#ifdef KW_COUNTED
  kw_count_reconverge();
#endif
  return true;
}

// ---- Warp operations: complete when every lane of the mask that has not exited waits in the same one. Votes and
// shuffles may be in different lines; a matrix instruction is one for the whole warp (.sync.aligned), so lanes in
// different lines never complete it, which is reported as a deadlock.
bool Worker::resolve_warp_ops(unsigned first) {
  bool any = false;
  for (unsigned lane = 0; lane < kKwWarp && first + lane < count_; ++lane) {
    unsigned group = 0;
    if (threads_[first + lane].state == kAtWarpSync && is_complete(first, lane, group)) {
      deliver(first, group);
      any = true;
    }
  }
  return any;
}

bool Worker::is_complete(unsigned first, unsigned lane, unsigned& group) {
  const Thread& one = threads_[first + lane];
  for (unsigned i = 0; i < kKwWarp && first + i < count_; ++i) {
    const Thread& other = threads_[first + i];
    if (!(one.mask >> i & 1) || other.state == kExited) continue;
    if (other.state != kAtWarpSync || other.mask != one.mask || other.operation != one.operation) return false;
    if (one.operation == kExchange && other.line != one.line) return false;
    group |= 1u << i;
  }
  return group >> lane & 1;
}

void Worker::deliver(unsigned first, unsigned group) {
  uint64_t ballot = 0;
  for (unsigned i = 0; i < kKwWarp; ++i) {
    if (group >> i & 1) ballot |= (threads_[first + i].sent & 1) << i;
  }
  for (unsigned i = 0; i < kKwWarp; ++i) {
    if (!(group >> i & 1)) continue;
    Thread& thread = threads_[first + i];
    const bool participates = unsigned(thread.source) < kKwWarp && (group >> thread.source & 1);
    // The value of a lane outside the group is undefined: return all bits set, a NaN, which poisons the result.
    if (thread.operation == kShuffle)
      thread.received = participates ? threads_[first + thread.source].sent : ~uint64_t(0);
    if (thread.operation == kBallot) thread.received = ballot;
    if (thread.operation == kExchange) thread.received = group;
    thread.state = kReady;
  }
}

// What every lane sent in an exchange; NaN for lanes outside the group, which do not exist or have exited.
void Worker::receive(unsigned group, int phase, unsigned words, unsigned* received) const {
  const Thread* lanes = &threads_[current_ / kKwWarp * kKwWarp];
  for (unsigned lane = 0; lane < kKwWarp; ++lane)
    for (unsigned i = 0; i < words; ++i) *received++ = group >> lane & 1 ? lanes[lane].exchanged[phase][i] : ~0u;
}

// ---- Errors.
void Worker::set_error(int line, const std::string& message) {
  failed_ = true;
#pragma omp critical(kw_error)
  if (!launch_.error[0]) {
    launch_.error_line = line;
    snprintf(launch_.error, sizeof launch_.error, "%s", message.c_str());
  }
}

std::string Worker::describe_waiting(State state, int line) {
  unsigned count = 0;
  const Thread* example = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.state != state || (state != kExited && thread.line != line)) continue;
    if (!count++) example = &thread;
  }
  std::string at = state == kExited      ? " have exited"
                   : state == kAtSyncthreads ? " wait at __syncthreads in line " + std::to_string(line)
                   : state == kPolling       ? " wait at " + std::string(example->barrier) + " in line " + std::to_string(line)
                                         : std::string(" wait at ") + kOperationNames[example->operation] +
                                               " in line " + std::to_string(line);
  return std::to_string(count) + " of " + std::to_string(count_) + " threads" + at + " (the first is " +
         text_of(example->index) + ")";
}

// Reports where each group of threads waits.
void Worker::report_deadlock() {
  std::string message;
  std::vector<std::pair<State, int>> reported;
  int line = 0;
  for (const Thread& thread : threads_) {
    std::pair<State, int> group{thread.state, thread.state == kExited ? 0 : thread.line};
    bool known = false;
    for (const auto& one : reported) known |= one == group;
    if (known) continue;
    reported.push_back(group);
    message += (message.empty() ? "" : ", ") + describe_waiting(group.first, group.second);
    if (thread.state != kExited && (!line || thread.state == kAtWarpSync)) line = thread.line;
  }
  set_error(line, "deadlock in block " + text_of(blocks_[0].index) + ": " + message);
}

}  // namespace
