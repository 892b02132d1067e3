// The main of a sanitizer's process, behind the kernel: reads one launch from a file and runs it. Every tensor lies in
// an allocation of its own and of its exact size, so that AddressSanitizer fences it.
#include <stdlib.h>

extern "C" {
void* __asan_get_report_address() __attribute__((weak));
void __asan_on_error();
void __tsan_on_report(void* report);
}

namespace kw {

enum { kValue, kTensor, kAlias };
struct Given {
  char* begin;
  uint64_t bytes;
  bool tensor;
};
static Given given[256];
static void* values[256];
static unsigned count;

static void say_where() {
  fprintf(stderr, "kw-place block %u %u %u thread %u %u %u\n", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
          threadIdx.y, threadIdx.z);
}

// The tensor whose end or begin is nearest to an address.
static void say_which(char* address) {
  int64_t nearest = INT64_MAX;
  unsigned which = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (!given[i].tensor) continue;
    int64_t before = given[i].begin - address, beyond = address - (given[i].begin + given[i].bytes);
    int64_t apart = before > 0 ? before : beyond >= 0 ? beyond : 0;
    if (apart < nearest) nearest = apart, which = i;
  }
  if (nearest < INT64_MAX)
    fprintf(stderr, "kw-argument %u offset %lld of %llu\n", which, (long long)(address - given[which].begin),
            (unsigned long long)given[which].bytes);
}

static uint64_t read_number(FILE* file) {
  uint64_t number = 0;
  if (fread(&number, sizeof number, 1, file) != 1) exit(3);
  return number;
}

static void read_argument(FILE* file, unsigned i) {
  uint64_t kind = read_number(file), bytes = read_number(file);
  if (kind == kAlias) {
    given[i] = given[bytes];
  } else {
    given[i] = {static_cast<char*>(malloc(bytes)), bytes, kind == kTensor};
    if (bytes && fread(given[i].begin, bytes, 1, file) != 1) exit(3);
  }
  values[i] = given[i].tensor ? static_cast<void*>(&given[i].begin) : given[i].begin;
}

static int run(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) return 3;
  uint64_t kernel = read_number(file);
  KwLaunch launch{};
  unsigned* sizes[] = {&launch.grid.x, &launch.grid.y, &launch.grid.z, &launch.block.x, &launch.block.y,
                       &launch.block.z, &launch.shared_bytes};
  for (unsigned* size : sizes) *size = unsigned(read_number(file));
  count = unsigned(read_number(file));
  for (unsigned i = 0; i < count; ++i) read_argument(file, i);
  fclose(file);
  launch.workers = 1;
  launch.call = kw_calls[kernel];
  launch.values = values;
  launch.dynamic_shared = kw_dynamic;
  kw_run(&launch);
  if (launch.error[0]) fprintf(stderr, "kw-error %d %s\n", launch.error_line, launch.error);
  fprintf(stderr, "kw-done\n");
  return 0;
}

}  // namespace kw

__attribute__((visibility("default"))) void __asan_on_error() {
  kw::say_where();
  if (__asan_get_report_address) kw::say_which(static_cast<char*>(__asan_get_report_address()));
}
__attribute__((visibility("default"))) void __tsan_on_report(void*) { kw::say_where(); }

int main(int argc, char** argv) { return argc == 2 ? kw::run(argv[1]) : 3; }
