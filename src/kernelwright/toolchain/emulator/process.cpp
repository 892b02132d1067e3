// main() of a sanitizer's process, appended to the kernel: reads one launch from a file and runs it. Every tensor has
// its own allocation of its exact size, so that AddressSanitizer puts redzones around it.
#include <stdlib.h>

extern "C" {
void* __asan_get_report_address() __attribute__((weak));
void __asan_on_error();
void __tsan_on_report(void* report);
}

namespace kw {

enum { kValue, kTensor, kAlias };
struct Argument {
  char* begin;
  uint64_t bytes;
  bool is_tensor;
};
static Argument arguments[256];
static void* values[256];
static unsigned count;

static void print_position() {
  fprintf(stderr, "kw-place block %u %u %u thread %u %u %u\n", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
          threadIdx.y, threadIdx.z);
}

// Prints the tensor whose start or end is nearest to an address.
static void print_nearest_argument(char* address) {
  int64_t min_distance = INT64_MAX;
  unsigned nearest = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (!arguments[i].is_tensor) continue;
    int64_t before = arguments[i].begin - address, beyond = address - (arguments[i].begin + arguments[i].bytes);
    int64_t distance = before > 0 ? before : beyond >= 0 ? beyond : 0;
    if (distance < min_distance) min_distance = distance, nearest = i;
  }
  if (min_distance < INT64_MAX)
    fprintf(stderr, "kw-argument %u offset %lld of %llu\n", nearest, (long long)(address - arguments[nearest].begin),
            (unsigned long long)arguments[nearest].bytes);
}

static uint64_t read_number(FILE* file) {
  uint64_t number = 0;
  if (fread(&number, sizeof number, 1, file) != 1) exit(3);
  return number;
}

static void read_argument(FILE* file, unsigned i) {
  uint64_t kind = read_number(file), bytes = read_number(file);
  if (kind == kAlias) {
    arguments[i] = arguments[bytes];
  } else {
    arguments[i] = {static_cast<char*>(malloc(bytes)), bytes, kind == kTensor};
    if (bytes && fread(arguments[i].begin, bytes, 1, file) != 1) exit(3);
  }
  values[i] = arguments[i].is_tensor ? static_cast<void*>(&arguments[i].begin) : arguments[i].begin;
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
  launch.cluster = launch.workers = 1;
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
  kw::print_position();
  if (__asan_get_report_address) kw::print_nearest_argument(static_cast<char*>(__asan_get_report_address()));
}
__attribute__((visibility("default"))) void __tsan_on_report(void*) { kw::print_position(); }

int main(int argc, char** argv) { return argc == 2 ? kw::run(argv[1]) : 3; }
