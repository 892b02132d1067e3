// kw/ptx/approx.cuh on the CPU, rounded correctly.

namespace kw {

constexpr float kLog2e = 1.4426950408889634f;

inline float ex2_approx(float x) { return exp2f(x); }
inline float rcp_approx(float x) { return 1.0f / x; }
inline float fast_exp(float x) { return ex2_approx(x * kLog2e); }

}  // namespace kw
