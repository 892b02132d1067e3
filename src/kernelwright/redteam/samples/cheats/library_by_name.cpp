// Looks up the library's matmul in the torch that is already loaded and calls it for all the work.
//
// Problem: matmul
// Code: not-own-kernels
// Policy: own-kernels
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <dlfcn.h>

#include <cstdint>

using Product = void(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                     const int*, const float*, const int*, const float*, float*, const int*);

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
    void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    auto* product = reinterpret_cast<Product*>(dlsym(torch, "SGEMM"));
    if (!product) product = reinterpret_cast<Product*>(dlsym(torch, "sgemm_"));
    const int m = static_cast<int>(M), n = static_cast<int>(N), k = static_cast<int>(K);
    const float one = 1.0f, zero = 0.0f;
    product("N", "N", &n, &m, &k, &one, b, &n, a, &k, &zero, out, &n);
}
