// kw/ptx/ldmatrix.cuh on the CPU: each lane reads or writes the row whose address it passes.

namespace kw {

union MatrixRows {
    unsigned words[32][4];
    unsigned short elements[32][8];
};

inline void ldmatrix_rows(MatrixRows& rows, const void* row, int line) {
    const uint4 own = *static_cast<const uint4*>(row);
    kw_exchange(line, &own.x, 4, rows.words[0]);
}

inline void ldmatrix_x4(unsigned (&out)[4], const void* row, int line = __builtin_LINE()) {
    MatrixRows rows;
    ldmatrix_rows(rows, row, line);
    for (int matrix = 0; matrix < 4; ++matrix) out[matrix] = rows.words[matrix * 8 + kw_lane() / 4][kw_lane() % 4];
}

inline void ldmatrix_x4_trans(unsigned (&out)[4], const void* row, int line = __builtin_LINE()) {
    MatrixRows rows;
    ldmatrix_rows(rows, row, line);
    const int column = kw_lane() / 4, first = kw_lane() % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix)
        out[matrix] =
            rows.elements[matrix * 8 + first][column] | rows.elements[matrix * 8 + first + 1][column] << 16;
}

inline void stmatrix_x4(void* row, const unsigned (&in)[4], int line = __builtin_LINE()) {
    unsigned lanes[32][4];
    kw_exchange(line, in, 4, lanes[0]);
    const int matrix = kw_lane() / 8, first = kw_lane() % 8 * 4;
    *static_cast<uint4*>(row) = {lanes[first][matrix], lanes[first + 1][matrix], lanes[first + 2][matrix],
                                 lanes[first + 3][matrix]};
}

inline void stmatrix_x4_trans(void* row, const unsigned (&in)[4], int line = __builtin_LINE()) {
    unsigned lanes[32][4], own[4];
    kw_exchange(line, in, 4, lanes[0]);
    const int matrix = kw_lane() / 8, column = kw_lane() % 8, half = column % 2 * 16;
    for (int i = 0; i < 4; ++i) {
        const unsigned low = lanes[i * 8 + column / 2][matrix], high = lanes[i * 8 + 4 + column / 2][matrix];
        own[i] = (low >> half & 0xffff) | (high >> half & 0xffff) << 16;
    }
    *static_cast<uint4*>(row) = {own[0], own[1], own[2], own[3]};
}

}  // namespace kw
