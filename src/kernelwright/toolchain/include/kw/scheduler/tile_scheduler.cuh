// Orders in which persistent blocks, or clusters, take the tiles of an output.
#pragma once

namespace kw {

struct TileIndex {
    int m, n, batch;
};

// Tile `index` of a batch of grids in bands of `group` rows, walked column by column within a band: tiles that run at
// the same time share their rows of A and columns of B in the L2.
__device__ __forceinline__ TileIndex grouped_raster(int index, int tiles_m, int tiles_n, int group) {
    const int tiles = tiles_m * tiles_n, batch = index / tiles, within = index - batch * tiles;
    const int band_tiles = group * tiles_n, band = within / band_tiles, first_m = band * group;
    const int rows = min(group, tiles_m - first_m), at = within - band * band_tiles;
    return {first_m + at % rows, at / rows, batch};
}

// Tile `index` along a Hilbert curve, generalised to rectangles: any number of consecutive tiles is a compact region.
// Source: github.com/jakubcerveny/gilbert. A rectangle has a corner (m, n), a side (am, an) along which the curve ends,
// and a side (bm, bn); each step descends into the part of the rectangle that holds the index.
__device__ __forceinline__ TileIndex hilbert_rectangle(int index, int tiles_m, int tiles_n) {
    int m = 0, n = 0;
    int am = tiles_m >= tiles_n ? tiles_m : 0, an = tiles_m >= tiles_n ? 0 : tiles_n;
    int bm = tiles_m >= tiles_n ? 0 : tiles_m, bn = tiles_m >= tiles_n ? tiles_n : 0;
    while (true) {
        const int a = abs(am + an), b = abs(bm + bn);
        const int step_am = (am > 0) - (am < 0), step_an = (an > 0) - (an < 0);
        const int step_bm = (bm > 0) - (bm < 0), step_bn = (bn > 0) - (bn < 0);
        if (b == 1) return {m + step_am * index, n + step_an * index, 0};
        if (a == 1) return {m + step_bm * index, n + step_bn * index, 0};
        int half_am = am >> 1, half_an = an >> 1, half_bm = bm >> 1, half_bn = bn >> 1;
        if (2 * a > 3 * b) {  // long: two parts, one after the other
            if ((half_am + half_an) & 1 && a > 2) half_am += step_am, half_an += step_an;
            const int first = abs(half_am + half_an) * b;
            if (index < first) {
                am = half_am, an = half_an;
            } else {
                index -= first;
                m += half_am, n += half_an, am -= half_am, an -= half_an;
            }
            continue;
        }
        if ((half_bm + half_bn) & 1 && b > 2) half_bm += step_bm, half_bn += step_bn;
        const int first = abs(half_bm + half_bn) * abs(half_am + half_an);
        const int second = first + a * abs(bm - half_bm + bn - half_bn);
        if (index < first) {  // along b, then the far side along a, then back along b
            const int old_m = half_am, old_n = half_an;
            am = half_bm, an = half_bn, bm = old_m, bn = old_n;
        } else if (index < second) {
            index -= first;
            m += half_bm, n += half_bn, bm -= half_bm, bn -= half_bn;
        } else {
            index -= second;
            m += am - step_am + half_bm - step_bm, n += an - step_an + half_bn - step_bn;
            const int rest_m = am - half_am, rest_n = an - half_an;
            am = -half_bm, an = -half_bn, bm = -rest_m, bn = -rest_n;
        }
    }
}

}  // namespace kw
