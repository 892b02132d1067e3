// Kernels of the emulator's tests: as they would be for a GPU. One source, so that it is compiled once.
constexpr int kTile = 32;

extern "C" __global__ void vector_add(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void sgemm_naive(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}

extern "C" __global__ void sgemm_coalesced(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum = fmaf(__ldg(&A[row * K + k]), __ldg(&B[k * N + col]), sum);
  C[row * N + col] = sum;
}

extern "C" __global__ void __launch_bounds__(kTile* kTile)
    sgemm_tiled(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
  __shared__ float As[kTile][kTile];
  __shared__ float Bs[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < K; k0 += kTile) {
    As[threadIdx.y][threadIdx.x] = row < M && k0 + threadIdx.x < K ? A[row * K + k0 + threadIdx.x] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K && col < N ? B[(k0 + threadIdx.y) * N + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}

// A tile of 8 by 8 results in the registers of a thread, vector loads, and A transposed on its way into shared memory.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN))
    sgemm_vectorized(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[BM * BK];
  __shared__ float Bs[BK * BN];
  const uint thread_col = threadIdx.x % (BN / TN), thread_row = threadIdx.x / (BN / TN);
  const uint row_a = threadIdx.x / (BK / 4), col_a = threadIdx.x % (BK / 4);
  const uint row_b = threadIdx.x / (BN / 4), col_b = threadIdx.x % (BN / 4);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;
  float results[TM * TN] = {0.0}, reg_m[TM] = {0.0}, reg_n[TN] = {0.0};
  for (uint k0 = 0; k0 < K; k0 += BK) {
    for (uint down = 0; down < BM; down += BM * BN / (TM * TN) / (BK / 4)) {
      float4 part = reinterpret_cast<const float4*>(&A[(row_a + down) * K + col_a * 4])[0];
      As[(col_a * 4 + 0) * BM + row_a + down] = part.x;
      As[(col_a * 4 + 1) * BM + row_a + down] = part.y;
      As[(col_a * 4 + 2) * BM + row_a + down] = part.z;
      As[(col_a * 4 + 3) * BM + row_a + down] = part.w;
    }
    for (uint down = 0; down < BK; down += BM * BN / (TM * TN) / (BN / 4))
      reinterpret_cast<float4*>(&Bs[(row_b + down) * BN + col_b * 4])[0] =
          reinterpret_cast<const float4*>(&B[(row_b + down) * N + col_b * 4])[0];
    __syncthreads();
    A += BK;
    B += BK * N;
    for (uint k = 0; k < BK; ++k) {
      for (uint i = 0; i < TM; ++i) reg_m[i] = As[k * BM + thread_row * TM + i];
      for (uint i = 0; i < TN; ++i) reg_n[i] = Bs[k * BN + thread_col * TN + i];
      for (uint m = 0; m < TM; ++m)
        for (uint n = 0; n < TN; ++n) results[m * TN + n] += reg_m[m] * reg_n[n];
    }
    __syncthreads();
  }
  for (uint m = 0; m < TM; m += 1) {
    for (uint n = 0; n < TN; n += 4) {
      float4* place = reinterpret_cast<float4*>(&C[(thread_row * TM + m) * N + thread_col * TN + n]);
      float4 old = *place;
      old.x = alpha * results[m * TN + n] + beta * old.x;
      old.y = alpha * results[m * TN + n + 1] + beta * old.y;
      old.z = alpha * results[m * TN + n + 2] + beta * old.z;
      old.w = alpha * results[m * TN + n + 3] + beta * old.w;
      *place = old;
    }
  }
}

extern "C" __global__ void copy_float4(const float* in, float* out, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(in)[i];
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int delta = warpSize / 2; delta > 0; delta /= 2) value += __shfl_down_sync(0xffffffff, value, delta);
  return value;
}

extern "C" __global__ void block_sum(const float* x, float* out, int n) {
  __shared__ float parts[32];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = warp_sum(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

extern "C" __global__ void reverse_dynamic(const float* in, float* out) {
  extern __shared__ __align__(16) float buffer[];
  buffer[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

template <int kWidth, bool kSwizzled>
__device__ void transpose(const float* in, float* out, int n) {
  __shared__ float tile[kTile][kWidth];
  const int x = threadIdx.x, y = threadIdx.y;
  tile[y][kSwizzled ? x ^ y : x] = in[(blockIdx.y * kTile + y) * n + blockIdx.x * kTile + x];
  __syncthreads();
  out[(blockIdx.x * kTile + y) * n + blockIdx.y * kTile + x] = tile[x][kSwizzled ? y ^ x : y];
}
extern "C" __global__ void transpose_conflicting(const float* in, float* out, int n) {
  transpose<32, false>(in, out, n);
}
extern "C" __global__ void transpose_padded(const float* in, float* out, int n) { transpose<33, false>(in, out, n); }
extern "C" __global__ void transpose_swizzled(const float* in, float* out, int n) { transpose<32, true>(in, out, n); }

// One value of each warp operation and atomic operation in each row of `out`, which is (11, 32).
extern "C" __global__ void lanes(const int* in, unsigned* out, unsigned* cells, float* real) {
  const int lane = threadIdx.x, value = in[lane];
  out[0 * 32 + lane] = __shfl_sync(0xffffffff, value, 5);
  out[1 * 32 + lane] = __shfl_up_sync(0xffffffff, value, 3);
  out[2 * 32 + lane] = __shfl_down_sync(0xffffffffu, value, 1, 8);
  out[3 * 32 + lane] = __shfl_xor_sync(0xffffffff, value, 16);
  out[4 * 32 + lane] = __ballot_sync(0xffffffff, value & 1);
  out[5 * 32 + lane] = __any_sync(0xffffffff, value == 77) * 2 + __all_sync(0xffffffff, value >= 0);
  if (lane < 16) out[6 * 32 + lane] = __shfl_xor_sync(0x0000ffff, value, 1);
  else out[6 * 32 + lane] = __shfl_xor_sync(0xffff0000, value, 2);
  __syncwarp();
  atomicMax(&cells[0], unsigned(value));
  atomicMin(&cells[1], unsigned(value));
  atomicCAS(&cells[2], 0u, 7u);
  atomicExch(&cells[3], 9u);
  atomicAdd(&cells[4], 1);
  atomicMax(reinterpret_cast<int*>(&cells[5]), -lane);
  atomicAdd(real, 0.5f);
  out[7 * 32 + lane] = __float_as_uint(__int_as_float(value));
  out[8 * 32 + lane] = min(value, 3) + max(1, lane) + min(2.5f, 1.0f);
  out[9 * 32 + lane] = __popc(value) + __clz(value);
  double wide = __shfl_xor_sync(0xffffffff, double(value) + 0.25, 1);
  out[10 * 32 + lane] = unsigned(wide * 4);
}

// A lane's inner loop is as long as its number, twice: a request of the k-th round has the lanes that still loop.
extern "C" __global__ void triangular(const float* in, float* out) {
  float sum = 0.0f;
  for (int again = 0; again < 2; ++again) {
    for (int k = 0; k <= (again ? 31 - threadIdx.x : threadIdx.x); ++k) sum += in[k];
    sum *= 2.0f;
  }
  out[threadIdx.x] = sum;
}

// Functions that lie behind the kernel in the machine code: one reads memory, one touches none.
template <class T>
__device__ T doubled(T x) {
  return x > T(0) ? x + x : x;
}
template <class T>
__device__ T element(const T* in) {
  return in[threadIdx.x];
}
extern "C" __global__ void divergent_calls(const float* in, float* out) {
  float sum = 0.0f;
  if (threadIdx.x < 16) sum += element(in);
  if (threadIdx.x < 8) sum = doubled(sum) + element(in) - 1.0f;
  if (threadIdx.x < 4) sum = doubled(sum) / 2.0f;
  out[threadIdx.x] = in[32 + threadIdx.x] + sum;
}

template <int kOffset, typename T>
__global__ void plus(const T* in, T* out, T more) {
  out[threadIdx.x] = in[threadIdx.x] + more + kOffset;
}

// ---- Wrong on purpose. The tests find the lines by their comments.
extern "C" __global__ void missing_barrier(const float* in, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];  // race: write
  out[threadIdx.x] = tile[63 - threadIdx.x];  // race: read
}

extern "C" __global__ void one_too_many(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    out[i] = in[0];  // overrun of out
}

extern "C" __global__ void one_too_many_shared(const float* in, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x + 1] = in[threadIdx.x];  // overrun of shared
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void one_too_many_dynamic(const float* in, float* out) {
  extern __shared__ float tile[];
  tile[threadIdx.x + 1] = in[threadIdx.x];  // overrun of dynamic
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void divergent_barrier(float* out) {
  if (threadIdx.x < 16) {
    __syncthreads();  // divergent
  }
  out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void divergent_shuffle(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffff, out[threadIdx.x], 1);  // half a warp
  else __syncthreads();
}

extern "C" __global__ void reads_unwritten(float* out) {
  __shared__ float tile[64];
  if (threadIdx.x < 32) tile[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
