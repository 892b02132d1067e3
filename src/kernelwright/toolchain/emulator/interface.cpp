// What kernels and Python call: runtime.h. After cluster.cpp.

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

int kw_barrier_or(int line, int predicate) { return worker->barrier_or(line, predicate != 0); }

void kw_fail(int line, const char* what) { worker->fail(line, what); }

unsigned kw_thread() { return worker->thread(); }

void kw_poll(int line, const char* barrier, int has_time_limit) { worker->poll(line, barrier, has_time_limit != 0); }

void kw_signal() { worker->signal(); }

void kw_named_barrier(int line, unsigned id, unsigned threads, int wait) {
  worker->named_barrier(line, id, threads, wait != 0);
}

unsigned kw_cluster_rank() { return worker->rank(); }

void kw_cluster_arrive() { worker->cluster_arrive(); }

void kw_cluster_wait(int line) { worker->cluster_wait(line); }

unsigned kw_shared_address(const void* pointer) { return worker->shared_address(pointer); }

void* kw_shared_pointer(int line, unsigned address, unsigned bytes) {
  return worker->shared_pointer(line, address, bytes);
}

void kw_run_later(void (*run)(const void*), const void* task, unsigned bytes) {
  worker->run_later(make_task(run, task, bytes, 0));
}

void kw_queue(KwQueue number, void (*run)(const void*), const void* task, unsigned bytes) {
  worker->queue(number, run, task, bytes);
}

int kw_defers_copies() {
#ifdef KW_COUNTED
  return 0;
#else
  return 1;
#endif
}

void kw_commit_group(KwQueue queue) { worker->commit_group(queue); }

void kw_wait_group(int line, KwQueue queue, unsigned pending) { worker->wait_group(line, queue, pending); }

void kw_run(KwLaunch* launch) {
  const unsigned long clusters =
      (unsigned long)launch->grid.x * launch->grid.y * launch->grid.z / launch->cluster;
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
    for (unsigned long cluster = 0; cluster < clusters; ++cluster) {
      if (!stop && !own_worker.run(cluster)) stop = true;
    }
  }
}
