// Square tiles of 16 by 16 in shared memory, zero-padded at the edges.
//
// Problem: matmul
// Device: cuda
//
// kw: entry  matmul_tile
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 16), cdiv(M, 16)
// kw: block  16, 16
// kw: args   a, b, out, M, N, K

extern "C" __global__ void __launch_bounds__(256)
matmul_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int M, int N, int K) {
    __shared__ float left[16][16], right[16][17];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (int start = 0; start < K; start += 16) {
        left[y][x] = row < M && start + x < K ? a[(long long)row * K + start + x] : 0.0f;
        right[y][x] = start + y < K && column < N ? b[(long long)(start + y) * N + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += left[y][k] * right[k][x];
        __syncthreads();
    }
    if (row < M && column < N) out[(long long)row * N + column] = sum;
}
