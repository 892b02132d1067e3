// kw/ptx/griddepcontrol.cuh on the CPU, where launches run one after the other.
#pragma once

namespace kw {

inline void griddepcontrol_wait() {}

inline void griddepcontrol_launch_dependents() {}

}  // namespace kw
