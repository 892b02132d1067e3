// One thread per window searches for its first maximum; the last NaN of a window takes precedence.
//
// Problem: pool_with_places
// Device: cuda
//
// kw: entry  pool_with_places
// kw: dims   x: float32[B, C, H, W]
// kw: out    values: float32[B, C, (H - 1) // 2 + 1, (W - 1) // 2 + 1]
// kw: out    places: int64[B, C, (H - 1) // 2 + 1, (W - 1) // 2 + 1]
// kw: grid   cdiv((W - 1) // 2 + 1, 32), (H - 1) // 2 + 1, B * C
// kw: block  32
// kw: args   x, values, places, H, W

extern "C" __global__ void __launch_bounds__(32)
pool_with_places(const float* __restrict__ x, float* __restrict__ values, long long* __restrict__ places, int H,
                 int W) {
    const int rows = (H - 1) / 2 + 1, columns = (W - 1) / 2 + 1;
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y;
    if (column >= columns) return;
    const float* plane = x + (long long)blockIdx.z * H * W;
    long long place = -1;
    float best = -INFINITY;
    for (int i = 2 * row - 1; i < 2 * row + 2; ++i) {
        for (int j = 2 * column - 1; j < 2 * column + 2; ++j) {
            if (i < 0 || i >= H || j < 0 || j >= W) continue;
            const float value = plane[i * W + j];
            if (place < 0 || value > best || value != value) {
                best = value;
                place = i * W + j;
            }
        }
    }
    const long long at = ((long long)blockIdx.z * rows + row) * columns + column;
    values[at] = best;
    places[at] = place;
}
