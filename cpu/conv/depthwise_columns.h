/* depthwise_columns.h - sums of a few columns of a depthwise convolution, and their contribution to
 * dw (cpu/conv/depthwise.c). A template, included once per vector length: LENGTH bytes, and names
 * NAME(f). */

#define EACH ((int64_t)(LENGTH / sizeof(real))) /* channels of a vector */

typedef real NAME(vec) __attribute__((vector_size(LENGTH)));
typedef NAME(vec) NAME(any) __attribute__((aligned(sizeof(real)), may_alias));

/* Prefetches the columns after these, which begin at x, `step` apart. */
TP_INLINE void NAME(fetch)(const real *x, int64_t step, int cols, int n)
{
    TP_UNROLL
    for (int y = 0; y < COLS; y++) {
        TP_UNROLL
        for (int i = 0; i < VECTORS; i++)
            if (y < cols && i < n) __builtin_prefetch(x + (cols + y) * step + i * EACH);
    }
}

/* The elements these columns are the first to read, channels from c on. */
TP_INLINE const real *NAME(last_tap)(const task *t, int64_t c)
{
    return t->from + c + (t->lines - 1) * t->line + (t->taps - 1) * t->hop;
}

/* Sums of `cols` columns, for n vectors of channels from c on; cols and n are constants. */
TP_INLINE void NAME(sum)(const task *t, int64_t c, int cols, int n)
{
    NAME(vec) sum[COLS][VECTORS];
    TP_UNROLL
    for (int y = 0; y < COLS; y++) {
        TP_UNROLL
        for (int i = 0; i < VECTORS; i++) {
            sum[y][i] = (NAME(vec)){ 0 };
            if (y >= cols || i >= n || !t->start) continue;
            sum[y][i] = *(const NAME(any) *)(t->start + c + y * t->begin + i * EACH);
        }
    }
    NAME(fetch)(NAME(last_tap)(t, c), t->move, cols, n);
    NAME(fetch)(t->to + c, t->step, cols, n);
    for (int64_t l = 0; l < t->lines; l++)
        for (int64_t k = 0; k < t->taps; k++) {
            const real *x = t->from + c + l * t->line + k * t->hop;
            const real *w = t->w + c + l * t->w_line + k * t->w_hop;
            TP_UNROLL
            for (int i = 0; i < VECTORS; i++) {
                if (i >= n) continue;
                NAME(vec) a = *(const NAME(any) *)(w + i * EACH);
                TP_HOLD(a);
                TP_UNROLL
                for (int y = 0; y < COLS; y++)
                    if (y < cols) sum[y][i] += a * *(const NAME(any) *)(x + y * t->move + i * EACH);
            }
        }
    TP_UNROLL
    for (int y = 0; y < COLS; y++) {
        TP_UNROLL
        for (int i = 0; i < VECTORS; i++)
            if (y < cols && i < n) *(NAME(any) *)(t->to + c + y * t->step + i * EACH) = sum[y][i];
    }
}

/* Adds these columns' contribution to dw and db. */
TP_INLINE void NAME(correlate)(const task *t, int64_t c, int cols, int n)
{
    NAME(vec) dy[COLS][VECTORS];
    NAME(fetch)(NAME(last_tap)(t, c), t->move, cols, n);
    NAME(fetch)(t->to + c, t->step, cols, n);
    TP_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        if (i >= n) continue;
        NAME(vec) sum = *(NAME(any) *)(t->db + c + i * EACH);
        TP_UNROLL
        for (int y = 0; y < COLS; y++)
            if (y < cols)
                sum += dy[y][i] = *(const NAME(any) *)(t->to + c + y * t->step + i * EACH);
        *(NAME(any) *)(t->db + c + i * EACH) = sum;
    }
    for (int64_t l = 0; l < t->lines; l++)
        for (int64_t k = 0; k < t->taps; k++) {
            const real *x = t->from + c + l * t->line + k * t->hop;
            real *dw = t->w + c + l * t->w_line + k * t->w_hop;
            TP_UNROLL
            for (int i = 0; i < VECTORS; i++) {
                if (i >= n) continue;
                NAME(vec) sum = *(NAME(any) *)(dw + i * EACH);
                TP_UNROLL
                for (int y = 0; y < COLS; y++)
                    if (y < cols)
                        sum += dy[y][i] * *(const NAME(any) *)(x + y * t->move + i * EACH);
                *(NAME(any) *)(dw + i * EACH) = sum;
            }
        }
}

#undef EACH
#undef LENGTH
#undef NAME
