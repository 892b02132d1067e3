// What surrounds the runtime: a sanitizer, if there is one, and the library of the kernel in this process.
#include <stddef.h>
#ifdef __linux__
#include <link.h>
#endif

// ---- The sanitizers' interfaces for fibers; null where no sanitizer runs.
extern "C" {
#define KW_WEAK __attribute__((weak))
void* __tsan_get_current_fiber() KW_WEAK;
void* __tsan_create_fiber(unsigned) KW_WEAK;
void __tsan_switch_to_fiber(void*, unsigned) KW_WEAK;
void __tsan_set_fiber_name(void*, const char*) KW_WEAK;
void __tsan_acquire(void*) KW_WEAK;
void __tsan_release(void*) KW_WEAK;
void __sanitizer_start_switch_fiber(void**, const void*, size_t) KW_WEAK;
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) KW_WEAK;
void __asan_poison_memory_region(const volatile void*, size_t) KW_WEAK;
}

namespace {

constexpr unsigned kNoSync = 1;  // of __tsan_switch_to_fiber: a switch orders nothing

// The library that a launch's kernel is in.
struct Module {
  uintptr_t inside, code;
  size_t code_bytes;
  char* shared;
  size_t shared_bytes;
};

#ifdef __linux__
int find_module(dl_phdr_info* info, size_t, void* data) {
  auto* module = static_cast<Module*>(data);
  size_t shared_bytes = 0, code_bytes = 0;
  bool mine = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_TLS) shared_bytes = part.p_memsz;
    if (part.p_type != PT_LOAD) continue;
    if (part.p_flags & PF_X) code_bytes = part.p_vaddr + part.p_memsz;
    if (module->inside >= begin && module->inside < begin + part.p_memsz) mine = true;
  }
  if (!mine) return 0;
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
