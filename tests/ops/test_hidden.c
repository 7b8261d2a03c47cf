/* test_hidden.c - values hidden by a mask, length, label or document may be anything: NaN and
 * infinity change neither results nor gradients, and get the gradient that other numbers get. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "support/device.h"
#include "support/values.h"

enum { INPUTS = 3, MOST = 128 };

static tp_device *dev;
static tp_tape *tape;

static void open_tape(void)
{
    dev = device_open(NULL);
    tape = tp_tape_new(dev, &(tp_tape_opts){ .compute = device_real() });
}

static void close_tape(void)
{
    cr_expect(tp_ok(tape), "%s", tp_why(tape));
    tp_tape_free(tape);
    tp_device_close(dev);
}

TestSuite(hidden, .init = open_tape, .fini = close_tape, .timeout = 120);

/* The rows in `hidden` are hidden; a row spans the axes after the shape's leading ones. */
typedef struct hiding {
    const char *name;
    tp_tensor (*f)(tp_tape *T, const tp_tensor *x); /* the visible results */
    tp_shape in[INPUTS];
    int64_t rows[INPUTS]; /* of an input                                      */
    unsigned hidden;      /* bit r: row r of inputs with `rows` is hidden     */
    bool own;             /* hidden rows have results, which are ignored */
} hiding;

static tp_tensor bytes(tp_tape *T, tp_shape s, const uint8_t *v)
{
    return tp_from(T, TP_U8, s, v);
}

static tp_tensor ids(tp_tape *T, tp_shape s, const int64_t *v)
{
    return tp_from(T, TP_I64, s, v);
}

/* Two samples of four keys: rows 1 and 6, 7 are hidden. */
static const uint8_t visible[] = { 1, 0, 1, 1, 1, 1, 0, 0 };
enum { HIDDEN = 1 << 1 | 1 << 6 | 1 << 7 };

static tp_tensor mask_of(tp_tape *T)
{
    return bytes(T, TP_SHAPE(2, 4), visible);
}

static tp_tensor first_keys(tp_tape *T, const tp_tensor *x)
{
    return tp_attention(T, x[0], x[1], x[2], TP_NONE, TP_NONE,
                        (tp_attn_cfg){ .heads = 2, .keys = 2 });
}

static tp_tensor linear(tp_tape *T, const tp_tensor *x)
{
    return tp_linear_attention(T, x[0], x[1], x[2], TP_NONE, mask_of(T),
                               (tp_linear_attn_cfg){ .heads = 2, .normalise = true });
}

static tp_tensor linear_plain(tp_tape *T, const tp_tensor *x)
{
    return tp_linear_attention(T, x[0], x[1], x[2], TP_NONE, mask_of(T),
                               (tp_linear_attn_cfg){ .heads = 2 });
}

static tp_tensor features(tp_tape *T, const tp_tensor *x, tp_features kind)
{
    static const double w[] = { 0.3, -0.2, 0.7, 0.1, -0.4, 0.5 };
    return tp_linear_attention(T, x[0], x[1], x[2],
                               values_constant(T, device_real(), TP_SHAPE(3, 2), w), mask_of(T),
                               (tp_linear_attn_cfg){ .heads = 2, .features = kind });
}

static tp_tensor positive(tp_tape *T, const tp_tensor *x)
{
    return features(T, x, TP_FEATURES_POSITIVE);
}

static tp_tensor relu_features(tp_tape *T, const tp_tensor *x)
{
    return features(T, x, TP_FEATURES_RELU);
}

static tp_tensor project(tp_tape *T, const tp_tensor *x)
{
    return tp_chunk_project(T, x[0], x[1], mask_of(T), 2, 2, 1);
}

static tp_tensor project_kv(tp_tape *T, const tp_tensor *x)
{
    const tp_kv y = tp_chunk_project_kv(T, x[0], x[2], x[1], mask_of(T), 2, 2, 1);
    return tp_add(T, y.k, y.v);
}

static tp_tensor window(tp_tape *T, const tp_tensor *x)
{
    const tp_window_in in = { .q = x[0], .k = x[1], .v = x[2], .mask = mask_of(T) };
    return tp_window_attention_2d(
        T, in,
        (tp_window_attn_cfg){
            .heads = 2, .height = 1, .width = 4, .window = { 1, 2 }, .halo = { 0, 1 } });
}

static tp_tensor low_keys(tp_tape *T, const tp_tensor *x)
{
    const tp_tensor q = tp_full(T, tp_dtype_of(x[0]), TP_SHAPE(2, 4, 4), 0.25);
    const tp_window_in in = {
        .q = q, .k = q, .v = q, .low_k = x[0], .low_v = x[1], .low_mask = mask_of(T)
    };
    return tp_window_attention_2d(
        T, in, (tp_window_attn_cfg){ .heads = 2, .height = 1, .width = 4, .window = { 1, 2 } });
}

/* The second document is hidden from the first; only the first counts. */
static tp_tensor packed_attention(tp_tape *T, const tp_tensor *x)
{
    static const int64_t at[] = { 0, 3, 8 };
    const tp_packed of = { ids(T, TP_SHAPE(3), at), 5 };
    return tp_slice(
        T, tp_packed_attention(T, x[0], x[1], x[2], of, of, (tp_attn_cfg){ .heads = 2 }), 0, 0, 3);
}

static tp_tensor packed_project(tp_tape *T, const tp_tensor *x)
{
    static const int64_t at[] = { 0, 3, 8 };
    const tp_kv y =
        tp_packed_project_kv(T, x[0], x[2], x[1], (tp_packed){ ids(T, TP_SHAPE(3), at), 5 }, 2, 1);
    return tp_slice(T, tp_add(T, y.k, y.v), 0, 0, 1);
}

static tp_tensor packed_sum(tp_tape *T, const tp_tensor *x)
{
    static const int64_t at[] = { 0, 3, 8 };
    return tp_slice(T, tp_packed_sum(T, x[0], (tp_packed){ ids(T, TP_SHAPE(3), at), 5 }), 0, 0, 1);
}

/* ---- labels ---- */

static const int64_t labels[] = { 0, -1, 2, 1, 0, 3, -1, -1 };

static tp_tensor cross_entropy(tp_tape *T, const tp_tensor *x)
{
    return tp_cross_entropy_smooth(T, x[0], ids(T, TP_SHAPE(8), labels), 0.1, TP_MEAN);
}

static tp_tensor cross_entropy_each(tp_tape *T, const tp_tensor *x)
{
    return tp_cross_entropy(T, x[0], ids(T, TP_SHAPE(8), labels), TP_EACH);
}

static tp_tensor nll(tp_tape *T, const tp_tensor *x)
{
    return tp_nll(T, x[0], ids(T, TP_SHAPE(8), labels), TP_MEAN);
}

static tp_tensor focal(tp_tape *T, const tp_tensor *x)
{
    return tp_focal(T, x[0], ids(T, TP_SHAPE(8), labels), 0.25, 2, TP_MEAN);
}

/* ---- lengths ---- */

static tp_tensor lstm(tp_tape *T, const tp_tensor *x)
{
    static const int64_t n[] = { 4, 2 };
    return tp_lstm(T, x[0], (tp_rnn_weights){ x[1], x[2], TP_NONE, TP_NONE }, NULL,
                   ids(T, TP_SHAPE(2), n), false);
}

static tp_tensor lstm_back(tp_tape *T, const tp_tensor *x)
{
    static const int64_t n[] = { 4, 2 };
    return tp_lstm(T, x[0], (tp_rnn_weights){ x[1], x[2], TP_NONE, TP_NONE }, NULL,
                   ids(T, TP_SHAPE(2), n), true);
}

static tp_tensor gru(tp_tape *T, const tp_tensor *x)
{
    static const int64_t n[] = { 4, 2 };
    return tp_gru(T, x[0], (tp_rnn_weights){ x[1], x[2], TP_NONE, TP_NONE }, NULL,
                  ids(T, TP_SHAPE(2), n), false);
}

static tp_tensor ctc(tp_tape *T, const tp_tensor *x)
{
    static const int64_t n[] = { 4, 2 }, target[] = { 1, 2, 3, 0 }, m[] = { 2, 1 };
    return tp_ctc(T, x[0], ids(T, TP_SHAPE(2, 2), target), ids(T, TP_SHAPE(2), n),
                  ids(T, TP_SHAPE(2), m), (tp_ctc_cfg){ 0 }, TP_SUM);
}

/* ---- choices ---- */

static tp_tensor chosen(tp_tape *T, const tp_tensor *x)
{
    return tp_where(T, bytes(T, TP_SHAPE(8, 1), visible), x[0], 2);
}

static tp_tensor filled(tp_tape *T, const tp_tensor *x)
{
    const tp_tensor hidden = tp_logical_not(T, bytes(T, TP_SHAPE(8, 1), visible));
    return tp_masked_fill(T, x[0], hidden, 0);
}

static tp_tensor taken(tp_tape *T, const tp_tensor *x)
{
    static const int64_t at[] = { 0, 2, 3, 4, 5 };
    return tp_add(T, tp_index_select(T, x[0], 0, ids(T, TP_SHAPE(5), at)),
                  tp_embedding(T, x[0], ids(T, TP_SHAPE(5), at), 1));
}

static tp_tensor triangle(tp_tape *T, const tp_tensor *x)
{
    return tp_tril(T, tp_reshape(T, x[0], TP_SHAPE(8, 4)), -8);
}

/* clang-format off */
#define ROWS(n) { 3, { 2, 4, n } }
#define FLAT(n) { 2, { 8, n } }
static const hiding hidings[] = {
    { "keys", first_keys, { ROWS(4), ROWS(4), ROWS(4) }, { 0, 8, 8 }, 0xcc, false },
    { "linear attention", linear, { ROWS(4), ROWS(4), ROWS(4) }, { 0, 8, 8 }, HIDDEN, false },
    { "linear attention, not normalised", linear_plain, { ROWS(4), ROWS(4), ROWS(4) }, { 0, 8, 8 },
      HIDDEN, false },
    { "positive features", positive, { ROWS(4), ROWS(4), ROWS(4) }, { 0, 8, 8 }, HIDDEN, false },
    { "relu features", relu_features, { ROWS(4), ROWS(4), ROWS(4) }, { 0, 8, 8 }, HIDDEN, false },
    { "chunk_project", project, { ROWS(4), ROWS(2) }, { 8, 8 }, HIDDEN, false },
    { "chunk_project_kv", project_kv, { ROWS(4), ROWS(2), ROWS(4) }, { 8, 8, 8 }, HIDDEN, false },
    { "window attention", window, { ROWS(4), ROWS(4), ROWS(4) }, { 8, 8, 8 }, HIDDEN, false },
    { "low keys", low_keys, { ROWS(4), ROWS(4) }, { 8, 8 }, HIDDEN, false },
    { "packed attention", packed_attention, { FLAT(4), FLAT(4), FLAT(4) }, { 8, 8, 8 }, 0xf8,
      true },
    { "packed_project_kv", packed_project, { FLAT(4), FLAT(2), FLAT(4) }, { 8, 8, 8 }, 0xf8, true },
    { "packed_sum", packed_sum, { FLAT(4) }, { 8 }, 0xf8, false },
    { "cross_entropy", cross_entropy, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "cross_entropy, each", cross_entropy_each, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "nll", nll, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "focal", focal, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "lstm", lstm, { ROWS(3), { 2, { 8, 3 } }, { 2, { 8, 2 } } }, { 8, 0, 0 }, 0xc0, false },
    { "lstm, reverse", lstm_back, { ROWS(3), { 2, { 8, 3 } }, { 2, { 8, 2 } } }, { 8, 0, 0 }, 0xc0,
      false },
    { "gru", gru, { ROWS(3), { 2, { 6, 3 } }, { 2, { 6, 2 } } }, { 8, 0, 0 }, 0xc0, false },
    { "ctc", ctc, { ROWS(4) }, { 8 }, 0xc0, false },
    { "where", chosen, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "masked_fill", filled, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "index_select, embedding", taken, { FLAT(4) }, { 8 }, HIDDEN, false },
    { "tril", triangle, { FLAT(4) }, { 8 }, 0xff, false },
};
/* clang-format on */

typedef struct outcome {
    double y[MOST], dx[INPUTS][MOST];
    int64_t ny, nx[INPUTS];
} outcome;

static void run(const hiding *k, double what, outcome *o)
{
    tp_tensor x[INPUTS];
    tp_reset(tape);
    for (int i = 0; i < INPUTS; i++) {
        double v[MOST];
        x[i] = TP_NONE;
        o->nx[i] = 0;
        if (k->in[i].ndim == 0) continue;
        int64_t n = 1;
        for (int d = 0; d < k->in[i].ndim; d++) n *= k->in[i].dim[d];
        cr_assert_leq(n, MOST);
        values_random(v, n, (uint64_t)(10 + i));
        for (int64_t e = 0; k->rows[i] > 0 && e < n; e++)
            if (k->hidden >> (e * k->rows[i] / n) & 1u) v[e] = what;
        x[i] = values_input(tape, device_real(), k->in[i], v);
        o->nx[i] = n;
    }
    const tp_tensor y = k->f(tape, x);
    cr_assert(tp_ok(tape), "%s: %s", k->name, tp_why(tape));
    o->ny = tp_numel(y);
    cr_assert_leq(o->ny, MOST);
    values_read(tape, y, o->y);
    tp_backward(tape, tp_sum(tape, y, TP_ALL));
    for (int i = 0; i < INPUTS; i++)
        if (o->nx[i] > 0) values_read(tape, tp_grad(tape, x[i]), o->dx[i]);
    cr_assert(tp_ok(tape), "%s: %s", k->name, tp_why(tape));
}

static void compare(const hiding *k, double what)
{
    static outcome usual, odd;
    run(k, 0.25, &usual);
    run(k, what, &odd);
    for (int64_t e = 0; e < usual.ny; e++)
        cr_expect_float_eq(odd.y[e], usual.y[e], 1e-6, "%s, %g: y[%d] is %g, not %g", k->name, what,
                           (int)e, odd.y[e], usual.y[e]);
    for (int i = 0; i < INPUTS; i++)
        for (int64_t e = 0; e < usual.nx[i]; e++) {
            if (k->own && k->hidden >> (e * k->rows[i] / usual.nx[i]) & 1u) continue;
            cr_expect_float_eq(odd.dx[i][e], usual.dx[i][e], 1e-6,
                               "%s, %g: element %d of the gradient of input %d is %g, not %g",
                               k->name, what, (int)e, i, odd.dx[i][e], usual.dx[i][e]);
        }
}

Test(hidden, holds_anything)
{
    for (size_t i = 0; i < sizeof hidings / sizeof *hidings; i++) {
        compare(&hidings[i], NAN);
        compare(&hidings[i], INFINITY);
    }
}
