// What a launch knows of the one before it (sm_90 and later).
// PTX ISA, "griddepcontrol".
#pragma once

namespace kw {

// Until what was launched before has ended and what it wrote is there: the first thing that a kernel does which is
// launched `early`. At once where it is not.
__device__ __forceinline__ void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace kw
