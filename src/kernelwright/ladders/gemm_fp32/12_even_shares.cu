// Every processor gets as much as any other: the tiles of the last wave are cut along K, and their parts added.
//
// rung: question   What does the last wave of tiles cost?
// rung: hypothesis 512 tiles on 132 processors take four waves, the last of 116; 32 tiles leave 100 processors without
// rung: hypothesis work. Cut into slabs, those of the last two waves are shared out evenly, one or two parts for each
// rung: hypothesis block; parts go through the L2, and a second kernel adds them in order, so that results repeat. It
// rung: hypothesis pays where the idle time is longer than about ten microseconds. 1.03 times faster at 4096, three
// rung: hypothesis times at 1024.
// rung: next       At 8192 the chip draws its 700 watts: fewer, larger or other operations, such as FP16 in three parts on
// rung: next       tensor cores, are what is left.
//
// kw: entry  gemm_even_shares
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: temp   parts: float32[2 * sms, 128 * 256]
// kw: let    tiles = cdiv(M, 128) * cdiv(N, 256)
// kw: let    cut = min(1, tiles % sms) * min(1, max(0, (sms - tiles % sms) * K - 74 * sms))
// kw: grid   sms
// kw: block  256
// kw: shared 2 * 16384 + 3 * 16 * 256 * 4
// kw: args   a, b, c, out, parts, M, N, K, alpha, beta
//
// kw: entry  add_parts
// kw: grid   32 * cut, tiles % sms + sms * min(1, tiles // sms)
// kw: block  256
// kw: args   parts, c, out, M, N, K, alpha, beta, sms

#define TILES 3  // of two to five the best here; without the division of work, four were

#include "lean_loop.cuh"

#define WORTH 74  // steps of k that the idle processors could do in the time that parts cost

// The first `cut` tiles are cut into slabs, of which every block gets as many as any other, give or take one; of the
// other tiles every block gets as many as any other.
struct Shares {
    int tiles, slabs, blocks, cut, each, more;
    __device__ Shares(const Product& p, int blocks) : blocks(blocks) {
        tiles = p.across() * p.down(), slabs = p.slabs();
        const int rest = tiles % blocks;
        cut = rest && (long long)(blocks - rest) * p.K > WORTH * blocks ? rest + (tiles > blocks ? blocks : 0) : 0;
        each = cut * slabs / blocks, more = cut * slabs % blocks;
    }
    __device__ int begin(int block) const { return block * each + min(block, more); }
    __device__ int block_of(int slab) const {
        const int longer = more * (each + 1);
        return slab < longer ? slab / (each + 1) : more + (slab - longer) / each;
    }
};

// The index-th piece of a block's work; where there is none, `last` is 0.
struct Piece {
    int tile, first, last;
    __device__ Piece(int index, const Shares& shares) {
        const int slabs = shares.slabs, begin = shares.begin(blockIdx.x), end = shares.begin(blockIdx.x + 1);
        const int pieces = end > begin ? (end - 1) / slabs - begin / slabs + 1 : 0;
        if (index < pieces) {
            tile = begin / slabs + index;
            first = index ? 0 : begin % slabs;
            last = min(slabs, end - tile * slabs);
        } else {
            tile = shares.cut + blockIdx.x + (index - pieces) * shares.blocks;
            first = 0;
            last = tile < shares.tiles ? slabs : 0;
        }
    }
};

// Where a thread keeps the fours of a part: that which begins a block's work, or that which ends it.
__device__ __forceinline__ float4* part(float* parts, int block, bool ends) {
    return reinterpret_cast<float4*>(parts) + (2 * block + ends) * (BM * BN / 4) + threadIdx.x;
}

template <bool wide>
__device__ __forceinline__ void compute(const Product& p, float* parts) {
    for (int index = 0;; ++index) {
        const Piece piece(index, Shares(p, gridDim.x));
        if (piece.last == 0) break;
        float sum[TM][TN] = {};
        multiply<wide>(p, piece.tile, piece.first, piece.last, sum);
        kw::hide_from_optimizer(index);  // the piece is worked out anew: kept, it would cost the loop registers
        const Piece done(index, Shares(p, gridDim.x));
        const bool whole = done.first == 0 && done.last == p.slabs();
        float4* const mine = part(parts, blockIdx.x, done.first == 0);
        const Place place(threadIdx.x);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const float4 held = make_float4(p.alpha * sum[i][j], p.alpha * sum[i][j + 1], p.alpha * sum[i][j + 2],
                                                p.alpha * sum[i][j + 3]);
                if (whole) {
                    store<wide>(p, p.first_row(done.tile) + place.row(i), p.first_column(done.tile) + place.column(j),
                                held);
                } else {
                    mine[(i * TN + j) / 4 * THREADS] = held;
                }
            }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_even_shares(const float* a, const float* b, const float* c, float* out, float* parts, int M, int N, int K,
                 float alpha, float beta) {
    const Product p = {a, b, c, out, M, N, K, alpha, beta};
    if (p.wide()) {
        compute<true>(p, parts);
    } else {
        compute<false>(p, parts);
    }
}

// A block adds one four of every thread's sums in a tile, in the order of the slabs.
extern "C" __global__ void __launch_bounds__(THREADS)
add_parts(float* parts, const float* c, float* out, int M, int N, int K, float alpha, float beta, int sms) {
    const Product p = {parts, parts, c, out, M, N, K, alpha, beta};
    const Shares shares(p, sms);
    const int tile = blockIdx.y, begin = tile * shares.slabs, end = begin + shares.slabs;
    if (tile >= shares.cut) return;
    int block = shares.block_of(begin);
    if (shares.begin(block + 1) >= end) return;  // it had the whole tile
    const int i = blockIdx.x * 4 / TN, j = blockIdx.x * 4 % TN;
    float4 sum = {};
    for (; shares.begin(block) < end; ++block) {
        const float4 held = part(parts, block, shares.begin(block) <= begin)[blockIdx.x * THREADS];
        sum.x += held.x;
        sum.y += held.y;
        sum.z += held.z;
        sum.w += held.w;
    }
    const Place place(threadIdx.x);
    const int row = p.first_row(tile) + place.row(i), column = p.first_column(tile) + place.column(j);
    if (N % 4 == 0 && (reinterpret_cast<unsigned long long>(c) | reinterpret_cast<unsigned long long>(out)) % 16 == 0) {
        store<true>(p, row, column, sum);
    } else {
        store<false>(p, row, column, sum);
    }
}
