// Programmatic dependent launch (sm_90 and later).
// PTX ISA, "griddepcontrol".
#pragma once

namespace kw {

// Waits until the previous kernel has completed and its writes are visible. A kernel launched with programmatic
// dependent launch must call it before its first memory access; otherwise it returns immediately.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next kernel start, if it is launched with programmatic dependent launch, as soon as every block has called
// this or ended. Its own wait still holds until this kernel has completed.
__device__ __forceinline__ void griddepcontrol_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace kw
