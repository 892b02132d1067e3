// One thread per pair of words; the hardware counts the bits.
//
// Problem: bit_distances
// Device: cuda
//
// kw: entry  bit_distances
// kw: dims   x: int64[M]; y: int64[N]
// kw: out    out: int64[M, N]
// kw: grid   cdiv(N, 128), M
// kw: block  128
// kw: args   x, y, out, N

extern "C" __global__ void __launch_bounds__(128)
bit_distances(const long long* __restrict__ x, const long long* __restrict__ y, long long* __restrict__ out, int N) {
    const int column = blockIdx.x * 128 + threadIdx.x;
    if (column < N) out[(long long)blockIdx.y * N + column] = __popcll(x[blockIdx.y] ^ y[column]);
}
