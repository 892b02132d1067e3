// One block per row; partial sums pass between lanes by shuffles and between warps through shared memory.
//
// Problem: row_sum
// Device: cuda
//
// kw: entry  sum_row
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: grid   M
// kw: block  256
// kw: args   x, out, N

extern "C" __global__ void __launch_bounds__(256)
sum_row(const float* __restrict__ x, float* __restrict__ out, int N) {
    __shared__ float part[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < N; i += 256) sum += x[(long long)blockIdx.x * N + i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < 8 ? part[lane] : 0.0f;
        for (int step = 4; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
        if (lane == 0) out[blockIdx.x] = sum;
    }
}
