/* conv2d_pass.c - one pass of a convolution: Y, or the part of dX at one remainder of positions by
 * the stride (tensor/geometry/conv2d.h). Weights are laid out for its products once per call. */
#include "cpu/conv/conv2d.h"
#include "cpu/kit/real.h"
#include "cpu/kit/transpose.h"
#include "tensor/bf16.h"

#ifndef TP_BASELINE
void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to);
#endif
#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
#define PAIRS true /* bf16 products, gemm_bf16.c */
void TP_KERNEL_FN(gemm_pack_bf16)(const tp_gemm_tile *t, real *to);
uint32_t *TP_KERNEL_FN(gemm_pairs_bf16)(const tp_gemm_tile *t, int64_t k, int64_t j, void *panels,
                                        int64_t *count);
#else
#define PAIRS false
#endif

static inline void pack(tp__conv2d_types y, tp_gemm_tile *t, void *to)
{
    (void)y;
#ifdef TP_BASELINE
    (void)t, (void)to;
#else
#if defined(__AVX512BW__) && TP_REAL == 32
    if (y.dtype == TP_BF16) {
        t->b_bf16 = true;
        t->amx = y.amx;
        TP_KERNEL_FN(gemm_pack_bf16)(t, to);
        return;
    }
#endif
    TP_KERNEL_FN(gemm_pack)(t, to);
#endif
}

typedef struct pass_job {
    tp__conv2d_pass p;
    tp__conv2d_cut t;
    tp__conv2d_types types;
    tp__conv2d_scratch room; /* of a thread */
    const char *from;
    char *w;      /* [groups][taps][from][to] */
    char *panels; /* or NULL: w packed, [groups][channels of a task][chunks] */
    const finish *finish;
    const tp_view *to;
    bool add;
    char *scratch; /* of all threads */
    size_t thread; /* bytes of one */
} pass_job;

/* Finishes n sums for channels from `channel` on and stores them from element `at` on. */
static void put_sums(const pass_job *s, int64_t at, int64_t channel, int64_t n, real *sums)
{
    real room[ROOM];
    finish_row(s->finish, at, channel, n, sums);
    if (s->add) {
        const real *before = read_row(s->to, s->to->data, at, n, room);
        for (int64_t k = 0; k < n; k++) sums[k] += before[k];
    }
    if (is_bf16(s->to))
        put_row(s->to, s->to->data, at, n, sums);
    else
        memcpy((real *)s->to->data + at, sums, (size_t)n * sizeof *sums);
}

/* Stores n channels of a tile's positions from `sums`. */
static void put_tile(const pass_job *s, const tile *a, int64_t channel, int64_t n, real *sums)
{
    for (int64_t b = 0; b < a->size[0]; b++)
        for (int64_t j = 0; j < a->size[1]; j++)
            for (int64_t i = 0; i < a->size[2]; i++, sums += n) {
                const int64_t at =
                    made_at(&s->p, a->first[0] + b, a->first[1] + j, a->first[2] + i);
                for (int64_t k = 0; k < n; k += ROOM)
                    put_sums(s, at + channel + k, channel + k, n - k < ROOM ? n - k : ROOM,
                             sums + k);
            }
}

/* Panels for a group's channels from j and rows of taps from `first` on. */
static char *panels_at(const pass_job *s, int64_t group, int64_t j, int64_t first)
{
    const int64_t task = (group * s->t.widths + j / s->t.width) * s->t.chunks + first / s->t.lines;
    const int64_t rows = task * tp__conv2d_deep(s->types, &s->t);
    return s->panels + (size_t)tp__gemm_panels(REAL, rows, s->t.width) * sizeof(real);
}

/* Weights of a group for rows of taps from `first` on and channels from j on. */
static char *weights_at(const pass_job *s, int64_t group, int64_t first, int64_t j)
{
    const tp__conv2d_pass *p = &s->p;
    const int64_t line = p->axis[1].taps * p->from;
    const int64_t at = (group * p->axis[0].taps + first) * line * p->to + j;
    return s->w + (size_t)at * tp__conv2d_size(s->types);
}

static void pass_task(const pass_job *s, const tile *a, int64_t group, int64_t j, int64_t n,
                      char *scratch)
{
    const tp__conv2d_pass *p = &s->p;
    const int64_t taps = p->axis[0].taps, line = p->axis[1].taps * p->from, Co = p->groups * p->to;
    const int64_t from = group * p->to + j; /* channel */
    const int64_t start = made_at(p, a->first[0], a->first[1], a->first[2]) + from;
    const bool direct = tp__conv2d_dense(p) && !tp__conv2d_rounds(s->types);
    const gathering e = gathering_of(s->types);
    const void **at =
        in_place(s->types, &s->t) ? (const void **)(void *)(scratch + s->room.rows) : NULL;
    real *sums = (real *)(void *)(scratch + s->room.sums);
    real *to = direct ? (real *)s->to->data + start : sums;
    tp_gemm_tile t = { .m = a->positions, .n = n, .a = scratch, .ldb = p->to, .c = to, .rows = at };
    t.ldc = direct ? Co : n;
    t.add = direct && s->add;
    t.work = scratch + s->room.product;
    for (int64_t first = 0; first < taps; first += s->t.lines, t.add = true) {
        const int64_t last = first + s->t.lines < taps ? first + s->t.lines : taps;
        gather_tile(p, a, first, last, e, s->from + (size_t)(group * p->from) * e.stored, scratch,
                    at);
        t.k = t.lda = (last - first) * line;
        t.b = weights_at(s, group, first, j);
        t.panels = s->panels ? panels_at(s, group, j, first) : NULL;
        multiply_in(s->types, &t);
    }
    if (!direct) put_tile(s, a, from, n, sums);
    for (int64_t r = 0; direct && r < a->positions; r++)
        finish_row(s->finish, start + r * Co, from, n, to + r * Co);
}

/* A task computes some channels of a group for a tile. */
static void pass_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const pass_job *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        const int64_t j = i % s->t.widths * s->t.width, left = s->p.to - j;
        const int64_t group = i / s->t.widths % s->p.groups;
        const tile a = tile_of(&s->p, &s->t, i / s->t.widths / s->p.groups);
        pass_task(s, &a, group, j, left < s->t.width ? left : s->t.width,
                  s->scratch + (size_t)thread * s->thread);
    }
}

static void run_pass(const tp_call *c, const pass_job *s)
{
    const double work = (double)s->t.positions * (double)s->t.width *
                        (double)(s->p.axis[0].taps * s->p.axis[1].taps * s->p.from);
    tp__parallel(c->dev, s->t.count * s->p.groups * s->t.widths, grain_of(work), pass_tasks, s);
}

/* ---- weights ---- */

typedef struct weight_job {
    const tp__conv2d *g;
    const pass_job *pass;
    const char *w; /* [co][ci of a group][taps] */
} weight_job;

/* The tap of the kernel that is the pass's tap t. */
static int64_t tap_of(const weight_job *s, int64_t t)
{
    const tp__conv2d_span *h = &s->pass->p.axis[0], *w = &s->pass->p.axis[1];
    return (h->tap + t / w->taps * h->next) * s->g->axis[1].taps + w->tap + t % w->taps * w->next;
}

/* Lays out input channels [a, end) of a group for the forward pass. Their taps share cache sets, so
 * pieces of many outputs are transposed through scratch. */
static void lay_forward(const weight_job *s, const real *from, int64_t a, int64_t end,
                        real *scratch, real *to)
{
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = p->axis[0].taps * p->axis[1].taps, size = p->from * taps;
    for (int64_t b = 0; b < p->to; b += TP_CONV_WIDTH) {
        const int64_t n = p->to - b < TP_CONV_WIDTH ? p->to - b : TP_CONV_WIDTH;
        transpose(from + b * size + a * taps, size, n, (end - a) * taps, scratch, n);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t k = a; k < end; k++)
                memcpy(to + (t * p->from + k) * p->to + b, scratch + ((k - a) * taps + t) * n,
                       (size_t)n * sizeof *to);
    }
}

/* lay_forward for bf16 channels that lay_pairs does not take: an odd number, as in images. */
static void lay_forward_bf16(const weight_job *s, const uint16_t *from, int64_t a, int64_t end,
                             uint16_t *to)
{
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = p->axis[0].taps * p->axis[1].taps, size = p->from * taps;
    for (int64_t t = 0; t < taps; t++)
        for (int64_t k = a; k < end; k++)
            for (int64_t i = 0; i < p->to; i++)
                to[(t * p->from + k) * p->to + i] = from[i * size + k * taps + t];
}

/* Lays out channels [a, end) of dY for a pass of dX; the weights of each are contiguous. */
#define LAY_BACK(type, name)                                                                       \
    static void name(const weight_job *s, const type *from, int64_t a, int64_t end, type *to)      \
    {                                                                                              \
        const tp__conv2d_pass *p = &s->pass->p;                                                    \
        const int64_t taps = s->g->axis[0].taps * s->g->axis[1].taps;                              \
        for (int64_t k = a; k < end; k++)                                                          \
            for (int64_t t = 0; t < p->axis[0].taps * p->axis[1].taps; t++) {                      \
                const type *w = from + k * p->to * taps + tap_of(s, t);                            \
                type *row = to + (t * p->from + k) * p->to;                                        \
                for (int64_t i = 0; i < p->to; i++) row[i] = w[i * taps];                          \
            }                                                                                      \
    }
LAY_BACK(real, lay_back)
LAY_BACK(uint16_t, lay_back_bf16)

static void lay_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const weight_job *s = ctx;
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = s->g->axis[0].taps * s->g->axis[1].taps;
    const int64_t of_group = s->g->co / p->groups * (s->g->ci / p->groups) * taps;
    const int64_t tasks = tp__ceil_div(p->from, TP_CONV_LAID), laid = tp__conv2d_weights(p);
    const size_t size = tp__conv2d_size(s->pass->types);
    void *scratch = s->pass->scratch + (size_t)thread * s->pass->thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t group = i / tasks, a = i % tasks * TP_CONV_LAID;
        const int64_t last = a + TP_CONV_LAID < p->from ? a + TP_CONV_LAID : p->from;
        const void *from = s->w + (size_t)(group * of_group) * size;
        void *to = s->pass->w + (size_t)(group * (laid / p->groups)) * size;
        const bool bf16 = s->pass->types.dtype == TP_BF16;
        if (p->back && bf16)
            lay_back_bf16(s, from, a, last, to);
        else if (p->back)
            lay_back(s, from, a, last, to);
        else if (bf16)
            lay_forward_bf16(s, from, a, last, to);
        else
            lay_forward(s, from, a, last, scratch, to);
    }
}

typedef struct widen_job {
    const tp_device *D;
    const uint16_t *from;
    float *to;
} widen_job;

static void widen_weights(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const widen_job *s = ctx;
    (void)thread;
    tp__widen_rows(s->D, s->from + begin, 0, s->to + begin, 0, 1, end - begin);
}

/* wide: memory for weights widened to f32. */
static void lay_weights(const tp_call *c, const tp__conv2d *g, const pass_job *pass, void *wide)
{
    const weight_job s = { g, pass, pass->types.widens ? wide : c->x[1].data };
    const widen_job widen = { c->dev, c->x[1].data, wide };
    if (pass->types.widens) tp__parallel(c->dev, c->x[1].numel, 1 << 16, widen_weights, &widen);
    const tp__conv2d_pass *p = &pass->p;
    const int64_t work = TP_CONV_LAID * p->to * p->axis[0].taps * p->axis[1].taps;
    tp__parallel(c->dev, p->groups * tp__ceil_div(p->from, TP_CONV_LAID), 16384 / (work + 1),
                 lay_tasks, &s);
}

/* A task packs the weights of a chunk of taps for the channels of a task of the pass. */
static void pack_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const pass_job *s = ctx;
    const tp__conv2d_pass *p = &s->p;
    const int64_t taps = p->axis[0].taps, line = p->axis[1].taps * p->from;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % s->t.chunks * s->t.lines, j = i / s->t.chunks % s->t.widths;
        const int64_t group = i / s->t.chunks / s->t.widths, at = j * s->t.width;
        tp_gemm_tile t = { .b = weights_at(s, group, first, at), .ldb = p->to };
        t.n = p->to - at < s->t.width ? p->to - at : s->t.width;
        t.k = (taps - first < s->t.lines ? taps - first : s->t.lines) * line;
        pack(s->types, &t, panels_at(s, group, at, first));
    }
}

/* ---- weights in bf16, packed directly ---- */

#if PAIRS
typedef uint32_t __attribute__((may_alias)) word; /* two elements, moved as a float */

/* Writes 64 pairs of half words, the low or high ones of x and of y. */
static inline void join(const word *x, bool high_x, const word *y, bool high_y, uint32_t *to)
{
    const int down = high_x ? 16 : 0, up = high_y ? 0 : 16;
    for (int i = 0; i < TP_CONV_WIDTH; i++)
        to[i] = (x[i] >> down & 0xffffu) | (y[i] << up & 0xffff0000u);
}

/* Where the pairs of a panel of `columns`, from column `b` of task j on, go: an iterator over
 * channel pairs of a tap of the pass. */
typedef struct place {
    tp_gemm_tile t;
    char *panels;
    int64_t b, k, left;
    uint32_t *at;
} place;

static place place_of(const pass_job *s, int64_t group, int64_t j, int64_t b, int64_t tap,
                      int64_t a)
{
    const tp__conv2d_pass *p = &s->p;
    const int64_t row = tap / p->axis[1].taps, first = row / s->t.lines * s->t.lines;
    const int64_t lines = tp__least(p->axis[0].taps - first, s->t.lines), at = j * s->t.width;
    const tp_gemm_tile t = { .n = tp__least(p->to - at, s->t.width),
                             .k = lines * p->axis[1].taps * p->from,
                             .amx = s->types.amx };
    return (place){ t, panels_at(s, group, at, first),
                    b, (tap - first * p->axis[1].taps) * p->from + a,
                    0, NULL };
}

static inline uint32_t *next_place(place *l)
{
    if (l->left == 0) l->at = TP_KERNEL_FN(gemm_pairs_bf16)(&l->t, l->k, l->b, l->panels, &l->left);
    uint32_t *to = l->at;
    l->at += TP_CONV_WIDTH;
    l->k += 2;
    l->left--;
    return to;
}

/* Packs channels [a, end) of a group for `n` outputs from column b of task j on, for the forward
 * pass. An output's weights are words of two elements; a pair of channels has as many words as
 * taps. */
static void pairs_forward(const weight_job *s, const uint16_t *from, int64_t group, int64_t a,
                          int64_t end, int64_t j, int64_t b, int64_t n, word *scratch)
{
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = p->axis[0].taps * p->axis[1].taps, size = p->from * taps;
    const uint16_t *w = from + (j * s->pass->t.width + b) * size + a * taps;
    transpose((const real *)(const void *)w, size / 2, n, (end - a) * taps / 2, (real *)scratch,
              TP_CONV_WIDTH);
    for (int64_t t = 0; t < taps; t++) {
        place l = place_of(s->pass, group, j, b, t, a);
        for (int64_t e = t; e < (end - a) * taps; e += 2 * taps)
            join(scratch + e / 2 * TP_CONV_WIDTH, e % 2, scratch + (e + taps) / 2 * TP_CONV_WIDTH,
                 (e + taps) % 2, next_place(&l));
    }
}

/* The same for a pass of dX; [a, end) are channels of dY: pairs of weight rows, transposed. */
static void pairs_back(const weight_job *s, const uint16_t *from, int64_t group, int64_t a,
                       int64_t end, int64_t j, int64_t b, int64_t n, word *scratch)
{
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = s->g->axis[0].taps * s->g->axis[1].taps, count = n * taps;
    const int64_t size = p->to * taps;
    /* Squares read past the pairs. */
    word *turned = scratch + TP_CONV_WIDTH * taps + TP_CONV_WIDTH;
    for (int64_t k = a; k < end; k += 2) {
        const uint16_t *x = from + k * size + (j * s->pass->t.width + b) * taps, *y = x + size;
        for (int64_t e = 0; e < count; e++) scratch[e] = x[e] | (uint32_t)y[e] << 16;
        for (int64_t i = 0; i < n; i += TP_VECTOR / (int64_t)sizeof(word))
            for (int64_t t = 0; t < taps; t += TP_VECTOR / (int64_t)sizeof(word))
                transpose_square((const real *)scratch + i * taps + t, NULL, taps,
                                 (real *)turned + t * TP_CONV_WIDTH + i, TP_CONV_WIDTH);
        for (int64_t t = 0; t < p->axis[0].taps * p->axis[1].taps; t++) {
            place l = place_of(s->pass, group, j, b, t, k);
            memcpy(next_place(&l), turned + tap_of(s, t) * TP_CONV_WIDTH,
                   TP_CONV_WIDTH * sizeof *turned);
        }
    }
}

static void pair_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const weight_job *s = ctx;
    const tp__conv2d_pass *p = &s->pass->p;
    const tp__conv2d_cut *t = &s->pass->t;
    const int64_t taps = s->g->axis[0].taps * s->g->axis[1].taps;
    const int64_t tasks = tp__ceil_div(p->from, TP_CONV_LAID);
    word *scratch = (word *)(void *)(s->pass->scratch + (size_t)thread * s->pass->thread);
    for (int64_t i = begin; i < end; i++) {
        const int64_t group = i / tasks, a = i % tasks * TP_CONV_LAID;
        const int64_t last = tp__least(a + TP_CONV_LAID, p->from);
        const uint16_t *from =
            (const uint16_t *)(const void *)s->w + group * p->from * p->to * taps;
        for (int64_t j = 0; j < t->widths; j++) {
            const int64_t n = tp__least(p->to - j * t->width, t->width);
            for (int64_t b = 0; b < n; b += TP_CONV_WIDTH)
                (p->back ? pairs_back : pairs_forward)(s, from, group, a, last, j, b,
                                                       tp__least(n - b, TP_CONV_WIDTH), scratch);
        }
    }
}
#endif

/* Packs bf16 weights without laying them out first, if channels come in pairs. */
static bool pack_pairs(const tp_call *c, const tp__conv2d *g, const pass_job *pass)
{
    const weight_job s = { g, pass, c->x[1].data };
    if (pass->types.dtype != TP_BF16 || pass->p.from % 2 != 0 ||
        (uintptr_t)s.w % sizeof(float) != 0)
        return false;
#if PAIRS
    const int64_t work = TP_CONV_LAID * pass->p.to * g->axis[0].taps * g->axis[1].taps;
    tp__parallel(c->dev, pass->p.groups * tp__ceil_div(pass->p.from, TP_CONV_LAID),
                 16384 / (work + 1), pair_tasks, &s);
#endif
    return PAIRS;
}

/* Lays out a pass's weights and packs them for its products. */
static void prepare(const tp_call *c, const tp__conv2d *g, pass_job *s, const tp__conv2d_room *room)
{
    if (OWN_PRODUCT) s->panels = (char *)c->work + room->panels;
    if (pack_pairs(c, g, s)) return;
    lay_weights(c, g, s, (char *)c->work + room->wide);
    if (!OWN_PRODUCT) return;
    tp__parallel(c->dev, s->p.groups * s->t.widths * s->t.chunks, 1, pack_tasks, s);
}

void TP_KERNEL_FN(conv2d_pass)(const tp_call *c, const tp__conv2d *g, const tp__conv2d_pass *p,
                               const tp_view *from, const finish *f, const tp_view *to, bool add);
void TP_KERNEL_FN(conv2d_pass)(const tp_call *c, const tp__conv2d *g, const tp__conv2d_pass *p,
                               const tp_view *from, const finish *f, const tp_view *to, bool add)
{
    const tp__conv2d_types types = types_of(c);
    const tp__conv2d_room room = tp__conv2d_room_of(types, g, p->back, c->dev->threads);
    pass_job s = { .p = *p,
                   .t = tp__conv2d_cut_of(p),
                   .types = types,
                   .from = from->data,
                   .w = c->work,
                   .finish = f,
                   .to = to,
                   .add = add,
                   .scratch = (char *)c->work + room.threads,
                   .thread = room.thread };
    s.room = tp__conv2d_scratch_of(types, p, &s.t);
    prepare(c, g, &s, &room);
    run_pass(c, &s);
}
