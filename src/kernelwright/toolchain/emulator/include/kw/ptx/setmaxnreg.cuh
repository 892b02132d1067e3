// kw/ptx/setmaxnreg.cuh on the CPU.

namespace kw {

template <int kRegisters>
inline void setmaxnreg_inc() {}

template <int kRegisters>
inline void setmaxnreg_dec() {}

}  // namespace kw
