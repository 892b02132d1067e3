// Hooks into this process: the fiber interfaces of a sanitizer, if one runs, and the loaded library of the kernel.
#include <stddef.h>
#ifdef __linux__
#include <link.h>
#endif

// ---- The sanitizers' fiber interfaces; null without a sanitizer.
extern "C" {
#define KW_WEAK __attribute__((weak))
void* __tsan_get_current_fiber() KW_WEAK;
void* __tsan_create_fiber(unsigned) KW_WEAK;
void __tsan_switch_to_fiber(void*, unsigned) KW_WEAK;
void __tsan_set_fiber_name(void*, const char*) KW_WEAK;
void __tsan_acquire(void*) KW_WEAK;
void __tsan_release(void*) KW_WEAK;
void __tsan_ignore_thread_begin() KW_WEAK;
void __tsan_ignore_thread_end() KW_WEAK;
void __sanitizer_start_switch_fiber(void**, const void*, size_t) KW_WEAK;
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) KW_WEAK;
void __asan_poison_memory_region(const volatile void*, size_t) KW_WEAK;
}

namespace {

constexpr unsigned kNoSync = 1;  // flag of __tsan_switch_to_fiber: a switch does not synchronize

// While one exists, ThreadSanitizer ignores what this thread accesses: memory of the runtime itself.
struct UnrecordedAccesses {
  UnrecordedAccesses() {
    if (__tsan_ignore_thread_begin) __tsan_ignore_thread_begin();
  }
  ~UnrecordedAccesses() {
    if (__tsan_ignore_thread_end) __tsan_ignore_thread_end();
  }
};

// The library that contains a launch's kernel.
struct Module {
  uintptr_t address, code;  // an address inside, the load address
  size_t code_bytes;
  char* shared;
  size_t shared_bytes;
};

#ifdef __linux__
int find_module(dl_phdr_info* info, size_t, void* data) {
  auto* module = static_cast<Module*>(data);
  size_t shared_bytes = 0, code_bytes = 0;
  bool contains = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_TLS) shared_bytes = segment.p_memsz;
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_flags & PF_X) code_bytes = segment.p_vaddr + segment.p_memsz;
    if (module->address >= begin && module->address < begin + segment.p_memsz) contains = true;
  }
  if (!contains) return 0;
  module->code = info->dlpi_addr;
  module->code_bytes = code_bytes;
  module->shared = static_cast<char*>(info->dlpi_tls_data);
  module->shared_bytes = module->shared ? shared_bytes : 0;
  return 1;
}
#endif

Module module_of(const KwLaunch& launch) {
  Module module{reinterpret_cast<uintptr_t>(launch.call), 0, 0, nullptr, 0};
#ifdef __linux__
  dl_iterate_phdr(find_module, &module);
#endif
  return module;
}

}  // namespace
