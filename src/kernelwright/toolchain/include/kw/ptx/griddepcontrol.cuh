// Programmatic dependent launch (sm_90 and later).
// PTX ISA, "griddepcontrol".
#pragma once

namespace kw {

// Waits until the previous kernel has completed and its writes are visible. A kernel launched with programmatic
// dependent launch must call it before its first memory access; otherwise it returns immediately.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace kw
