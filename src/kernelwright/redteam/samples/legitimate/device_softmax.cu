// One block per row, three passes over it, and reductions through shared memory.
//
// Problem: softmax
// Device: cuda
//
// kw: entry  softmax_row
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   M
// kw: block  256
// kw: args   x, out, N

extern "C" __global__ void __launch_bounds__(256)
softmax_row(const float* __restrict__ x, float* __restrict__ out, int N) {
    __shared__ float board[256];
    const int thread = threadIdx.x;
    const long long begin = (long long)blockIdx.x * N;
    float top = -INFINITY;
    for (int i = thread; i < N; i += 256) top = fmaxf(top, x[begin + i]);
    board[thread] = top;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (thread < step) board[thread] = fmaxf(board[thread], board[thread + step]);
        __syncthreads();
    }
    top = board[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = thread; i < N; i += 256) {
        const float raised = expf(x[begin + i] - top);
        out[begin + i] = raised;
        sum += raised;
    }
    board[thread] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (thread < step) board[thread] += board[thread + step];
        __syncthreads();
    }
    for (int i = thread; i < N; i += 256) out[begin + i] /= board[0];
}
