// One kernel stores the loss of each row in its own memory; a second one sums the rows in order.
//
// Problem: cross_entropy
// Device: cuda
//
// kw: dims   logits: float32[M, N]; targets: int64[M]
// kw: out    loss: float32[]
// kw: temp   losses: float32[M]
// kw: entry  loss_of_row
// kw: grid   M
// kw: block  32
// kw: args   logits, targets, losses, N
// kw: entry  mean_of_rows
// kw: grid   1
// kw: block  1
// kw: args   losses, loss, M

extern "C" __global__ void __launch_bounds__(32)
loss_of_row(const float* __restrict__ logits, const long long* __restrict__ targets, float* __restrict__ losses,
            int N) {
    const float* row = logits + (long long)blockIdx.x * N;
    float top = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < N; i += 32) top = fmaxf(top, row[i]);
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
    for (int i = threadIdx.x; i < N; i += 32) sum += expf(row[i] - top);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x == 0) losses[blockIdx.x] = top - row[targets[blockIdx.x]] + logf(sum);
}

extern "C" __global__ void mean_of_rows(const float* __restrict__ losses, float* __restrict__ loss, int M) {
    double sum = 0.0;
    for (int row = 0; row < M; ++row) sum += losses[row];
    *loss = (float)(sum / M);
}
