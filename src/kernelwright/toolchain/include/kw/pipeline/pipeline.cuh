// A ring of buffers between a producer and consumers, with an mbarrier for full and one for empty buffers.
#pragma once

#include "kw/ptx/mbarrier.cuh"

namespace kw {

template <int kNumStages>
struct PipelineBarriers {
    unsigned long long full[kNumStages];   // arrivals: producers, one with the bytes of its copies
    unsigned long long empty[kNumStages];  // arrivals: every consumer, of all blocks that read a copy

    template <int kNumConsumers, int kNumProducers = 1>
    __device__ void init() {
        for (int stage = 0; stage < kNumStages; ++stage) {
            mbarrier_init<kNumProducers>(&full[stage]);
            mbarrier_init<kNumConsumers>(&empty[stage]);
        }
    }
};

// A position in the ring. The parity is that of the current round: consumers wait for it at `full`, producers for the
// opposite one at `empty`, so that the first round finds every buffer empty.
template <int kNumStages>
struct PipelineState {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kNumStages) {
            stage = 0;
            parity ^= 1;
        }
    }

    // Advances over buffers of others.
    __device__ __forceinline__ void skip(int count) {
        stage += count;
        parity ^= stage / kNumStages & 1;
        stage %= kNumStages;
    }
};

}  // namespace kw
