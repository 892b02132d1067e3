// The runtime of kernels on the CPU: blocks are loops, the threads of a block are fibers of one operating-system
// thread. build.py puts fibers.h, runtime.h and surroundings.h
// before it, and counting.cpp behind it where a run is counted.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <string>

__thread KwPlace kw_place;

#ifdef KW_COUNTED
void kw_count_begins(char* shared, size_t shared_bytes, uintptr_t code, size_t code_bytes);
void kw_count_lane(int thread);
void kw_count_rest();
#endif

namespace {

enum State : unsigned char { kReady, kAtBarrier, kAtWarp, kEnded };
enum Operation : unsigned char { kSyncWarp, kBallot, kExchange };
const char* const kOperationNames[] = {"__syncwarp", "a vote", "a shuffle"};

struct Thread {
  Context context;
  State state;
  Operation operation;
  int line;  // where it waits
  unsigned mask;
  int source;
  uint64_t given, received;
  KwIndex index;
  void* tsan = nullptr;
  char sync_objects[2] = {};  // of the warp whose first thread this is
  int sync_phase = 0;
};

std::string text_of(KwIndex at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

KwIndex index_of(unsigned long number, KwIndex size) {
  unsigned long plane = (unsigned long)size.x * size.y;
  return {unsigned(number % size.x), unsigned(number % plane / size.x), unsigned(number / plane)};
}

thread_local Stacks stacks;

// One operating-system thread's part of a launch.
class Worker {
 public:
  explicit Worker(KwLaunch& launch) : launch_(launch) {
    count_ = launch.block.x * launch.block.y * launch.block.z;
    threads_ = std::vector<Thread>(count_);
    kw_place.block_dim = launch.block;
    kw_place.grid_dim = launch.grid;
    ready_ = stacks.hold(count_);
    if (!ready_) fail(0, "no memory for the stacks of " + std::to_string(count_) + " threads");
    find_shared();
    if (__tsan_create_fiber) make_tsan_fibers();
  }

  bool run(unsigned long block);
  void wait(State state, int line);
  Thread& current() { return threads_[current_]; }
  int lane() const { return current_ % kKwWarp; }
  void* barrier_object() { return &barrier_objects_[phase_]; }
  void* warp_object() { return &threads_[current_ / kKwWarp * kKwWarp].sync_objects[current().sync_phase ^= 1]; }
  [[noreturn]] void thread_main();

 private:
  bool run_warp(unsigned first);
  bool resolve(unsigned first);
  bool complete(unsigned first, unsigned lane, unsigned& group);
  void give(unsigned first, unsigned group);
  void enter(unsigned thread);
  void leave();
  void poison();
  void find_shared();
  void make_tsan_fibers();
  void fail(int line, const std::string& message);
  void report();
  std::string what_others_do(State state, int line);

  KwLaunch& launch_;
  std::vector<Thread> threads_;
  unsigned count_ = 0, current_ = 0;
  bool ready_ = false, failed_ = false;
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
void Worker::enter(unsigned thread) {
  current_ = thread;
  kw_place.thread = threads_[thread].index;
#ifdef KW_COUNTED
  kw_count_lane(int(thread));
#endif
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake, stacks.low(thread), kStackBytes);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(threads_[thread].tsan, kNoSync);
  Context::change(scheduler_, threads_[thread].context);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  if (stacks.canary(thread) != kCanary) {
    stacks.canary(thread) = kCanary;
    fail(threads_[thread].line, "thread " + text_of(threads_[thread].index) + " needs more than " +
                                    std::to_string(kStackBytes) + " bytes of local memory");
  }
}

void Worker::leave() {
  Thread& thread = current();
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(thread.state == kEnded ? nullptr : &fake, scheduler_stack_, scheduler_stack_bytes_);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(scheduler_tsan_, kNoSync);
  Context::change(thread.context, scheduler_);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_stack_bytes_);
}

void Worker::wait(State state, int line) {
  current().state = state;
  current().line = line;
  leave();
}

void Worker::thread_main() {
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
  if (__tsan_acquire) __tsan_acquire(&block_objects_[block_phase_]);  // what the block before did
  launch_.call(launch_.values);
  if (__tsan_release) __tsan_release(&block_objects_[1 - block_phase_]);
  current().state = kEnded;
  leave();
  __builtin_unreachable();
}

void fiber_entry() { worker->thread_main(); }

// ---- One block.
bool Worker::run(unsigned long block) {
  if (!ready_) return false;
  worker = this;
  kw_place.block = index_of(block, launch_.grid);
  poison();
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].state = kReady;
    threads_[i].line = 0;
    threads_[i].index = index_of(i, launch_.block);
    threads_[i].context.prepare(stacks.low(i), fiber_entry);
  }
  for (;;) {
    for (unsigned first = 0; first < count_; first += kKwWarp) {
      if (!run_warp(first)) return false;
    }
    unsigned ended = 0, waiting = 0;
    for (const Thread& thread : threads_) {
      ended += thread.state == kEnded;
      waiting += thread.state == kAtBarrier && thread.line == threads_[0].line;
    }
    if (ended == count_) break;
    if (waiting != count_) {
      report();
      return false;
    }
    for (Thread& thread : threads_) thread.state = kReady;
    phase_ = 1 - phase_;
  }
  block_phase_ = 1 - block_phase_;
  return true;
}

// Every lane of a warp, until all have ended or wait for others.
bool Worker::run_warp(unsigned first) {
  const unsigned end = std::min(first + kKwWarp, count_);
  do {
    for (unsigned i = first; i < end; ++i) {
      if (threads_[i].state == kReady) enter(i);
      if (failed_) return false;
    }
  } while (resolve(first));
#ifdef KW_COUNTED
  kw_count_rest();
#endif
  return true;
}

// ---- Operations of a warp: done when every lane of the mask that has not ended waits in the same one.
bool Worker::resolve(unsigned first) {
  bool any = false;
  for (unsigned lane = 0; lane < kKwWarp && first + lane < count_; ++lane) {
    unsigned group = 0;
    if (threads_[first + lane].state == kAtWarp && complete(first, lane, group)) {
      give(first, group);
      any = true;
    }
  }
  return any;
}

bool Worker::complete(unsigned first, unsigned lane, unsigned& group) {
  const Thread& one = threads_[first + lane];
  for (unsigned i = 0; i < kKwWarp && first + i < count_; ++i) {
    const Thread& other = threads_[first + i];
    if (!(one.mask >> i & 1) || other.state == kEnded) continue;
    if (other.state != kAtWarp || other.mask != one.mask || other.operation != one.operation) return false;
    group |= 1u << i;
  }
  return group >> lane & 1;
}

void Worker::give(unsigned first, unsigned group) {
  uint64_t ballot = 0;
  for (unsigned i = 0; i < kKwWarp; ++i) {
    if (group >> i & 1) ballot |= (threads_[first + i].given & 1) << i;
  }
  for (unsigned i = 0; i < kKwWarp; ++i) {
    if (!(group >> i & 1)) continue;
    Thread& thread = threads_[first + i];
    const bool there = unsigned(thread.source) < kKwWarp && (group >> thread.source & 1);
    // What a lane that takes no part holds is undefined: all bits set, which no result survives.
    if (thread.operation == kExchange) thread.received = there ? threads_[first + thread.source].given : ~uint64_t(0);
    if (thread.operation == kBallot) thread.received = ballot;
    thread.state = kReady;
  }
}

// ---- Errors.
void Worker::fail(int line, const std::string& message) {
  failed_ = true;
#pragma omp critical(kw_error)
  if (!launch_.error[0]) {
    launch_.error_line = line;
    snprintf(launch_.error, sizeof launch_.error, "%s", message.c_str());
  }
}

std::string Worker::what_others_do(State state, int line) {
  unsigned many = 0;
  const Thread* example = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.state != state || (state != kEnded && thread.line != line)) continue;
    if (!many++) example = &thread;
  }
  std::string at = state == kEnded      ? " have ended"
                   : state == kAtBarrier ? " wait at __syncthreads in line " + std::to_string(line)
                                         : std::string(" wait at ") + kOperationNames[example->operation] +
                                               " in line " + std::to_string(line);
  return std::to_string(many) + " of " + std::to_string(count_) + " threads" + at + " (the first is " +
         text_of(example->index) + ")";
}

// Who waits for whom, each group once.
void Worker::report() {
  std::string message;
  std::vector<std::pair<State, int>> told;
  int line = 0;
  for (const Thread& thread : threads_) {
    std::pair<State, int> group{thread.state, thread.state == kEnded ? 0 : thread.line};
    bool known = false;
    for (const auto& one : told) known |= one == group;
    if (known) continue;
    told.push_back(group);
    message += (message.empty() ? "" : ", ") + what_others_do(group.first, group.second);
    if (thread.state != kEnded && (!line || thread.state == kAtWarp)) line = thread.line;
  }
  fail(line, "the threads of block " + text_of(kw_place.block) + " wait for each other: " + message);
}

// ---- Shared memory. The kernel's library has no other thread-local variables, so its thread-local block is the shared
// memory; in a sanitizer's process it is unknown, and only the dynamic part is fenced.
void Worker::find_shared() {
  dynamic_ = launch_.dynamic_shared();
  if (__asan_poison_memory_region)
    __asan_poison_memory_region(dynamic_ + launch_.shared_bytes, kKwSharedBytes - launch_.shared_bytes);
  const Module module = module_of(launch_);
  shared_ = module.shared;
  shared_bytes_ = module.shared_bytes;
}

// A block begins with shared memory that holds NaN, or -1: what it does not write it must not read.
void Worker::poison() {
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

// ---- What kernels call.
void kw_barrier(int line) {
  void* object = worker->barrier_object();
  if (__tsan_release) __tsan_release(object);
  worker->wait(kAtBarrier, line);
  if (__tsan_acquire) __tsan_acquire(object);
}

static uint64_t warp_operation(Operation operation, int line, unsigned mask, uint64_t given, int source) {
  Thread& thread = worker->current();
  thread.operation = operation;
  thread.mask = mask;
  thread.given = given;
  thread.source = source;
  worker->wait(kAtWarp, line);
  return thread.received;
}

void kw_sync_warp(int line, unsigned mask) {
  void* object = worker->warp_object();
  if (__tsan_release) __tsan_release(object);
  warp_operation(kSyncWarp, line, mask, 0, 0);
  if (__tsan_acquire) __tsan_acquire(object);
}

unsigned kw_ballot(int line, unsigned mask, int predicate) {
  return unsigned(warp_operation(kBallot, line, mask, predicate != 0, 0));
}

unsigned long long kw_exchange(int line, unsigned mask, unsigned long long value, int source) {
  return warp_operation(kExchange, line, mask, value, source);
}

int kw_lane() { return worker->lane(); }

void kw_run(KwLaunch* launch) {
  const unsigned long blocks = (unsigned long)launch->grid.x * launch->grid.y * launch->grid.z;
  std::atomic<bool> stop{false};
#ifdef KW_COUNTED
  launch->dynamic_shared();
  Module module = module_of(*launch);
  kw_count_begins(module.shared, module.shared_bytes, module.code, module.code_bytes);
#endif
#pragma omp parallel num_threads(launch->workers) if (launch->workers > 1)
  {
    Worker mine(*launch);
#pragma omp for schedule(dynamic)
    for (unsigned long block = 0; block < blocks; ++block) {
      if (!stop && !mine.run(block)) stop = true;
    }
  }
}
