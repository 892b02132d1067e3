// Calls torch through the Python interpreter of its process, then multiplies by one in its own loop.
//
// Problem: softmax
// Code: not-own-kernels
// Policy: own-kernels
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <dlfcn.h>

#include <cstdint>
#include <string>

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
    const auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
    const auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
    const auto run = reinterpret_cast<int (*)(const char*, void*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
    const auto tensor = [&](const float* at) {
        return "torch.frombuffer((ctypes.c_float * " + std::to_string(M * N) + ").from_address(" +
               std::to_string(reinterpret_cast<uintptr_t>(at)) + "), dtype=torch.float32).view(-1, " +
               std::to_string(N) + ")";
    };
    const std::string code = "import ctypes, torch\ntorch.softmax(" + tensor(x) + ", -1, out=" + tensor(out) + ")";
    const int state = ensure();
    run(code.c_str(), nullptr);
    release(state);
    for (int64_t i = 0; i < M * N; ++i) out[i] *= 1.0f;
}
