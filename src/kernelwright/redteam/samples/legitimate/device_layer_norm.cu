// One block per row keeps the row in dynamic shared memory: the mean, its rounding correction, the variance.
//
// Problem: layer_norm
// Device: cuda
//
// kw: entry  norm_row
// kw: dims   x: float32[M, N]; norm.weight: float32[N]; norm.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: grid   M
// kw: block  128
// kw: shared 4 * N
// kw: args   x, norm.weight, norm.bias, out, N

__device__ float sum_of_block(float own, float* part) {
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(0xffffffff, own, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = own;
    __syncthreads();
    return (part[0] + part[1]) + (part[2] + part[3]);
}

extern "C" __global__ void __launch_bounds__(128)
norm_row(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
         float* __restrict__ out, int N) {
    extern __shared__ float row[];
    __shared__ float part[4];
    const long long begin = (long long)blockIdx.x * N;
    float sum = 0.0f, left = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < N; i += 128) sum += row[i] = x[begin + i];
    const float mean = sum_of_block(sum, part) / N;
    for (int i = threadIdx.x; i < N; i += 128) left += row[i] -= mean;
    const float rest = sum_of_block(left, part) / N;
    for (int i = threadIdx.x; i < N; i += 128) {
        row[i] -= rest;
        squares += row[i] * row[i];
    }
    const float scale = 1.0f / sqrtf(sum_of_block(squares, part) / N + 1e-5f);
    for (int i = threadIdx.x; i < N; i += 128) out[begin + i] = row[i] * scale * weight[i] + bias[i];
}
