// Calls abort().
//
// Problem: softmax
// Code: crash
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out
#include <cstdlib>

extern "C" void softmax(const float*, float*) { std::abort(); }
