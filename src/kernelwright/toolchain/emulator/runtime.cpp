// Runtime of emulated kernels: the grid is a loop, the threads of a block are fibers of one operating-system thread.
// build.py prepends fibers.h, runtime.h and process_hooks.h, and appends counting.cpp to the counting runtime.
#include <stdio.h>
#include <string.h>

#include <algorithm>
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

struct Thread {
  Context context;
  State state;
  Operation operation;
  int line;  // of the operation that it waits in
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
  explicit Worker(KwLaunch& launch) : launch_(launch) {
    count_ = launch.block.x * launch.block.y * launch.block.z;
    threads_ = std::vector<Thread>(count_);
    kw_thread_position.block_dim = launch.block;
    kw_thread_position.grid_dim = launch.grid;
    ready_ = stacks.reserve(count_);
    if (!ready_) set_error(0, "no memory for the stacks of " + std::to_string(count_) + " threads");
    find_shared();
    if (__tsan_create_fiber) make_tsan_fibers();
  }

  bool run(unsigned long block);
  void wait(State state, int line);
  Thread& current() { return threads_[current_]; }
  void signal() { signalled_ = true; }
  void receive(unsigned group, int phase, unsigned words, unsigned* received) const;
  int lane() const { return current_ % kKwWarp; }
  void* barrier_object() { return &barrier_objects_[phase_]; }
  void* warp_object() { return &threads_[current_ / kKwWarp * kKwWarp].sync_objects[current().sync_phase ^= 1]; }
  [[noreturn]] void thread_main();

 private:
  bool run_warp(unsigned first);
  bool resolve_warp_ops(unsigned first);
  bool is_complete(unsigned first, unsigned lane, unsigned& group);
  void deliver(unsigned first, unsigned group);
  bool resume_polling(bool& any);
  void resume(unsigned thread);
  void yield();
  void fill_shared_with_nan();
  void find_shared();
  void make_tsan_fibers();
  void set_error(int line, const std::string& message);
  void report_deadlock();
  std::string describe_waiting(State state, int line);

  KwLaunch& launch_;
  std::vector<Thread> threads_;
  unsigned count_ = 0, current_ = 0;
  bool ready_ = false, failed_ = false, signalled_ = false;
  Context scheduler_;
  void* scheduler_tsan_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  int phase_ = 0, block_phase_ = 0;
  char barrier_objects_[2] = {}, block_objects_[2] = {};
  char *shared_ = nullptr, *dynamic_ = nullptr;
  size_t shared_bytes_ = 0;
};

__thread Worker* worker;

// ---- Switching.
void Worker::resume(unsigned thread) {
  current_ = thread;
  kw_thread_position.thread = threads_[thread].index;
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

void Worker::thread_main() {
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
  if (__tsan_acquire) __tsan_acquire(&block_objects_[block_phase_]);  // synchronizes with the previous block
  launch_.call(launch_.values);
  if (__tsan_release) __tsan_release(&block_objects_[1 - block_phase_]);
  current().state = kExited;
  yield();
  __builtin_unreachable();
}

void fiber_entry() { worker->thread_main(); }

// ---- One block.
bool Worker::run(unsigned long block) {
  if (!ready_) return false;
  worker = this;
  kw_thread_position.block = index_of(block, launch_.grid);
  fill_shared_with_nan();
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].state = kReady;
    threads_[i].line = 0;
    threads_[i].exchange_phase = 0;
    threads_[i].index = index_of(i, launch_.block);
    threads_[i].context.prepare(stacks.base(i), fiber_entry);
  }
  for (;;) {
    for (unsigned first = 0; first < count_; first += kKwWarp) {
      if (!run_warp(first)) return false;
    }
    unsigned exited = 0, waiting = 0;
    for (const Thread& thread : threads_) {
      exited += thread.state == kExited;
      waiting += thread.state == kAtSyncthreads && thread.line == threads_[0].line;
    }
    if (exited == count_) break;
    if (bool any = false; resume_polling(any)) {
      continue;
    } else if (any || waiting != count_) {
      report_deadlock();
      return false;
    }
    for (Thread& thread : threads_) thread.state = kReady;
    phase_ = 1 - phase_;
  }
  block_phase_ = 1 - block_phase_;
  return true;
}

// Polling threads run again if something was signalled since the last round.
bool Worker::resume_polling(bool& any) {
  for (Thread& thread : threads_) {
    if (thread.state != kPolling) continue;
    any = true;
    if (signalled_) thread.state = kReady;
  }
  return any && std::exchange(signalled_, false);
}

// Runs every lane of a warp until all have exited or wait for other warps.
bool Worker::run_warp(unsigned first) {
  const unsigned end = std::min(first + kKwWarp, count_);
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
                   : state == kPolling       ? " wait at an mbarrier in line " + std::to_string(line)
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
  set_error(line, "deadlock in block " + text_of(kw_thread_position.block) + ": " + message);
}

// ---- Shared memory. The kernel's library has no other thread-local variables, so its TLS block is the shared memory.
// In a sanitizer's process it is unknown: there only dynamic shared memory gets a poisoned redzone.
void Worker::find_shared() {
  dynamic_ = launch_.dynamic_shared();
  if (__asan_poison_memory_region)
    __asan_poison_memory_region(dynamic_ + launch_.shared_bytes, kKwSharedBytes - launch_.shared_bytes);
  const Module module = module_of(launch_);
  shared_ = module.shared;
  shared_bytes_ = module.shared_bytes;
}

// A block starts with shared memory full of NaN (-1 as an integer), so that reads before writes show in the result.
void Worker::fill_shared_with_nan() {
  if (!shared_bytes_) return;
  memset(shared_, 0xff, size_t(dynamic_ - shared_));
  memset(dynamic_, 0xff, launch_.shared_bytes);
  char* after = dynamic_ + kKwSharedBytes;
  memset(after, 0xff, size_t(shared_ + shared_bytes_ - after));
}

void Worker::make_tsan_fibers() {
  scheduler_tsan_ = __tsan_get_current_fiber();
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].tsan = __tsan_create_fiber(0);
    __tsan_set_fiber_name(threads_[i].tsan, ("thread " + text_of(index_of(i, launch_.block))).c_str());
  }
}

}  // namespace

// ---- Called by kernels.
void kw_barrier(int line) {
  void* object = worker->barrier_object();
  if (__tsan_release) __tsan_release(object);
  worker->wait(kAtSyncthreads, line);
  if (__tsan_acquire) __tsan_acquire(object);
}

static uint64_t warp_operation(Operation operation, int line, unsigned mask, uint64_t sent, int source) {
  Thread& thread = worker->current();
  thread.operation = operation;
  thread.mask = mask;
  thread.sent = sent;
  thread.source = source;
  worker->wait(kAtWarpSync, line);
  return thread.received;
}

void kw_syncwarp(int line, unsigned mask) {
  void* object = worker->warp_object();
  if (__tsan_release) __tsan_release(object);
  warp_operation(kSyncWarp, line, mask, 0, 0);
  if (__tsan_acquire) __tsan_acquire(object);
}

unsigned kw_ballot(int line, unsigned mask, int predicate) {
  return unsigned(warp_operation(kBallot, line, mask, predicate != 0, 0));
}

unsigned long long kw_shuffle(int line, unsigned mask, unsigned long long value, int source) {
  return warp_operation(kShuffle, line, mask, value, source);
}

void kw_exchange(int line, const unsigned* sent, unsigned words, unsigned* received) {
  Thread& thread = worker->current();
  const int phase = thread.exchange_phase ^= 1;
  for (unsigned i = 0; i < words; ++i) thread.exchanged[phase][i] = sent[i];
  const auto group = unsigned(warp_operation(kExchange, line, ~0u, 0, 0));
  worker->receive(group, phase, words, received);
}

int kw_lane() { return worker->lane(); }

void kw_poll(int line) { worker->wait(kPolling, line); }

void kw_signal() { worker->signal(); }

void kw_run(KwLaunch* launch) {
  const unsigned long blocks = (unsigned long)launch->grid.x * launch->grid.y * launch->grid.z;
  std::atomic<bool> stop{false};
#ifdef KW_COUNTED
  launch->dynamic_shared();
  Module module = module_of(*launch);
  kw_count_start(module.shared, module.shared_bytes, module.code, module.code_bytes);
#endif
#pragma omp parallel num_threads(launch->workers) if (launch->workers > 1)
  {
    Worker own_worker(*launch);
#pragma omp for schedule(dynamic)
    for (unsigned long block = 0; block < blocks; ++block) {
      if (!stop && !own_worker.run(block)) stop = true;
    }
  }
}
