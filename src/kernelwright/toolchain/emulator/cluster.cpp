// What the threads of a cluster share: memory, asynchronous operations and barriers. After runtime.cpp.

namespace {

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
  for (unsigned rank = cluster_; rank-- > 0;) {
    memset(shared_, 0xff, size_t(dynamic_ - shared_));
    memset(dynamic_, 0xff, launch_.shared_bytes);
    char* after = dynamic_ + kKwSharedBytes;
    memset(after, 0xff, size_t(shared_ + shared_bytes_ - after));
    if (rank > 0) blocks_[rank].memory.assign(shared_, shared_ + shared_bytes_);
  }
}

// Exchanges shared memory for that of another block of the cluster.
void Worker::make_resident(unsigned rank) {
  if (rank == resident_) return;
  blocks_[resident_].memory.assign(shared_, shared_ + shared_bytes_);
  std::copy(blocks_[rank].memory.begin(), blocks_[rank].memory.end(), shared_);
  resident_ = rank;
}

// Where the lower 24 bits of an address are relative to, signed.
char* Worker::address_base() const {
  const auto begin = reinterpret_cast<uintptr_t>(shared_ ? shared_ : dynamic_);
  return reinterpret_cast<char*>(begin & ~uintptr_t(1023));
}

unsigned Worker::shared_address(const void* pointer) const {
  return rank() << 24 | (unsigned(static_cast<const char*>(pointer) - address_base()) & 0xffffff);
}

void* Worker::shared_pointer(int line, unsigned address, unsigned bytes) {
  alignas(128) thread_local static char other[256 * 1024];
  const unsigned rank = address >> 24;
  char* const pointer = address_base() + (int(address << 8) >> 8);
  if (rank >= cluster_ || blocks_[rank].exited == block_threads_) {
    set_error(line, "an access to the shared memory of block " + std::to_string(rank) + " of the cluster, which " +
                        (rank < cluster_ ? "has exited" : "does not exist"));
    return other;
  }
  if (shared_ && (pointer < shared_ || pointer + bytes > shared_ + shared_bytes_)) {
    set_error(line, "an access outside of shared memory");
    return other;
  }
  return rank == resident_ ? pointer : blocks_[rank].memory.data() + (pointer - shared_);
}

// ---- Asynchronous operations.
void Worker::run_later(const Task& task) {
  if (__tsan_release) __tsan_release(&copies_);
  const UnrecordedAccesses unrecorded;
  copies_.push_back(task);
}

Task Worker::take_copy() {
  const UnrecordedAccesses unrecorded;
  std::swap(copies_[random() % copies_.size()], copies_.back());
  const Task task = copies_.back();
  copies_.pop_back();
  return task;
}

// Runs one copy, any of them; false if there is none.
bool Worker::run_copy() {
  if (copies_.empty()) return false;
  const Task task = take_copy();
  if (__tsan_acquire) __tsan_acquire(&copies_);
  task.run(task.content);
  ++signals_;
  return true;
}

// Ends waits that have a time limit; false if there is none, or they end again and again.
bool Worker::end_time_limits() {
  constexpr unsigned kMostTimeLimits = 1000;
  bool any = false;
  for (Thread& thread : threads_) {
    if (thread.state != kPolling || !thread.has_time_limit) continue;
    thread.state = kReady;
    any = true;
  }
  return any && ++time_limits_ < kMostTimeLimits;
}

void Worker::queue(KwQueue number, void (*run)(const void*), const void* content, unsigned bytes) {
  TaskQueue& queue = current().queues[number];
  if (number == kKwMatrixQueue && queue.tasks.empty() && random() % 2) return run(content);
  if (__tsan_release) __tsan_release(&queue);
  const UnrecordedAccesses unrecorded;
  queue.tasks.push_back(make_task(run, content, bytes, queue.group));
}

void Worker::commit_group(KwQueue number) {
  ++current().queues[number].group;
  signal();
}

// Runs the tasks of a thread's first `groups` groups.
void Worker::run_groups(TaskQueue& queue, unsigned groups) {
  auto first = queue.tasks.begin(), end = first;
  while (end != queue.tasks.end() && end->group < groups) ++end;
  if (first == end) return;
  if (__tsan_acquire) __tsan_acquire(&queue);
  for (auto task = first; task != end; ++task) task->run(task->content);
  if (__tsan_release) __tsan_release(&queue);
  const UnrecordedAccesses unrecorded;
  queue.tasks.erase(first, end);
}

// A matrix operation is one of all warps of a warpgroup: it is complete only if all have issued it, and then for all.
void Worker::wait_group(int line, KwQueue number, unsigned pending) {
  TaskQueue& own = current().queues[number];
  const unsigned groups = own.group - std::min(own.group, pending);
  if (number != kKwMatrixQueue) return run_groups(own, groups);
  constexpr unsigned kWarpgroup = 128;
  const unsigned first = current_ - thread() % kWarpgroup, end = first + kWarpgroup;
  if (end > (rank() + 1) * block_threads_) return fail(line, " waits for wgmma in a warpgroup of less than 128 threads");
  for (unsigned i = first; i < end; ++i)
    while (threads_[i].state != kExited && threads_[i].queues[number].group < groups)
      poll(line, "a matrix operation of its warpgroup");
  for (unsigned i = first; i < end; ++i) run_groups(threads_[i].queues[number], groups);
  if (__tsan_acquire) __tsan_acquire(&own);
}

// ---- Barriers.
int Worker::barrier_or(int line, bool predicate) {
  Block& block = blocks_[rank()];
  block.any_true |= predicate;
  kw_barrier(line);
  return block.was_any_true;
}

void Worker::named_barrier(int line, unsigned id, unsigned threads, bool wait) {
  if (id > 15 || threads % kKwWarp) return fail(line, " is at a barrier that is not one of 16, for whole warps");
  NamedBarrier& barrier = blocks_[rank()].barriers[id];
  if (__tsan_release) __tsan_release(&barrier);
  if (barrier.arrived && barrier.threads != threads)
    set_error(line, "barrier " + std::to_string(id) + " of " + std::to_string(threads) + " and of " +
                        std::to_string(barrier.threads) + " threads");
  barrier.threads = threads;
  const unsigned phase = barrier.phase;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.phase;
    ++signals_;
  }
  while (wait && barrier.phase == phase) poll(line, "a named barrier");
  if (wait && __tsan_acquire) __tsan_acquire(&barrier);
}

void Worker::cluster_arrive() {
  if (__tsan_release) __tsan_release(&cluster_arrived_);
  current().cluster_phase = cluster_phase_;
  current().has_arrived = true;
  ++cluster_arrived_;
  complete_cluster_barrier();
}

void Worker::cluster_wait(int line) {
  while (cluster_phase_ == current().cluster_phase) poll(line, "a barrier of the cluster");
  if (__tsan_acquire) __tsan_acquire(&cluster_arrived_);
}

// All threads that have not exited have arrived.
void Worker::complete_cluster_barrier() {
  if (!cluster_arrived_ || cluster_arrived_ + absent_ < count_) return;
  cluster_arrived_ = absent_ = 0;
  for (Thread& thread : threads_) {
    thread.has_arrived = false;
    absent_ += thread.state == kExited;
  }
  ++cluster_phase_;
  ++signals_;
}

void Worker::make_tsan_fibers() {
  scheduler_tsan_ = __tsan_get_current_fiber();
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].tsan = __tsan_create_fiber(0);
    __tsan_set_fiber_name(threads_[i].tsan, ("thread " + text_of(index_of(i, launch_.block))).c_str());
  }
}

}  // namespace
