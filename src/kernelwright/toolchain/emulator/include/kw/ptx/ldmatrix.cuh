// kw/ptx/ldmatrix.cuh on the CPU: each lane reads or writes the row whose address it passes.

namespace kw {

inline void ldmatrix_x4(unsigned (&out)[4], const void* row, int line = __builtin_LINE()) {
    const uint4 own = *static_cast<const uint4*>(row);
    unsigned rows[32][4];
    kw_exchange(line, &own, sizeof own, rows);
    for (int matrix = 0; matrix < 4; ++matrix) out[matrix] = rows[matrix * 8 + kw_lane() / 4][kw_lane() % 4];
}

inline void ldmatrix_x4_trans(unsigned (&out)[4], const void* row, int line = __builtin_LINE()) {
    const uint4 own = *static_cast<const uint4*>(row);
    unsigned short rows[32][8];
    kw_exchange(line, &own, sizeof own, rows);
    const int column = kw_lane() / 4, first = kw_lane() % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix)
        out[matrix] = rows[matrix * 8 + first][column] | rows[matrix * 8 + first + 1][column] << 16;
}

inline void stmatrix_x4(void* row, const unsigned (&in)[4], int line = __builtin_LINE()) {
    unsigned fragments[32][4];
    kw_exchange(line, in, sizeof in, fragments);
    const int matrix = kw_lane() / 8, first = kw_lane() % 8 * 4;
    *static_cast<uint4*>(row) = {fragments[first][matrix], fragments[first + 1][matrix], fragments[first + 2][matrix],
                                 fragments[first + 3][matrix]};
}

inline void stmatrix_x4_trans(void* row, const unsigned (&in)[4], int line = __builtin_LINE()) {
    unsigned short fragments[32][4][2];
    kw_exchange(line, in, sizeof in, fragments);
    const int matrix = kw_lane() / 8, column = kw_lane() % 8;
    unsigned short own[8];
    for (int i = 0; i < 8; ++i) own[i] = fragments[i * 4 + column / 2][matrix][column % 2];
    memcpy(row, own, sizeof own);
}

}  // namespace kw
