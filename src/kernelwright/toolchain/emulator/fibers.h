// Fibers: a separate stack each, and a context switch that saves the callee-saved registers.
// x86-64 switches in a few instructions; other machines, or -DKW_UCONTEXT, use ucontext.
#if defined(__x86_64__) && !defined(KW_UCONTEXT)
#define KW_FAST_SWITCH 1
#else
#define _XOPEN_SOURCE 700
#endif
#include <stdint.h>
#include <sys/mman.h>
#ifndef KW_FAST_SWITCH
#include <ucontext.h>
#endif
#include <vector>

namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kStackStride = kStackBytes + 576;  // a power-of-two stride would map all stack tops to one cache set
constexpr uint64_t kCanary = 0x6b65726e656c7772;

#ifdef KW_FAST_SWITCH
extern "C" void kw_switch(void** from, void* to) __attribute__((visibility("hidden")));
__asm__(R"(
.text
.p2align 4
.globl kw_switch
.hidden kw_switch
.type kw_switch, @function
kw_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kw_switch, .-kw_switch
)");

struct Context {
  void* stack_pointer = nullptr;
  // The initial stack looks as after a call; a return address of 0 ends stack traces.
  void prepare(char* stack, void (*entry)()) {
    auto** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + kStackBytes) & ~uintptr_t(15));
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    stack_pointer = top;
  }
  static void switch_to(Context& from, Context& to) { kw_switch(&from.stack_pointer, to.stack_pointer); }
};
#else
struct Context {
  ucontext_t state;
  void prepare(char* stack, void (*entry)()) {
    getcontext(&state);
    state.uc_stack.ss_sp = stack;
    state.uc_stack.ss_size = kStackBytes;
    state.uc_link = nullptr;
    makecontext(&state, entry, 0);
  }
  static void switch_to(Context& from, Context& to) { swapcontext(&from.state, &to.state); }
};
#endif

// Stacks of one operating-system thread, reused by its next launch. A canary at the low end of each detects overflow.
class Stacks {
 public:
  ~Stacks() { release(); }
  bool reserve(size_t count) {
    if (count <= count_) return true;
    release();
    void* memory = mmap(nullptr, count * kStackStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    memory_ = static_cast<char*>(memory);
    count_ = count;
    for (size_t i = 0; i < count; ++i) canary(i) = kCanary;
    return true;
  }
  char* base(size_t i) { return memory_ + i * kStackStride; }
  uint64_t& canary(size_t i) { return *reinterpret_cast<uint64_t*>(base(i)); }

 private:
  void release() {
    if (memory_) munmap(memory_, count_ * kStackStride);
    memory_ = nullptr;
    count_ = 0;
  }
  char* memory_ = nullptr;
  size_t count_ = 0;
};

}  // namespace
