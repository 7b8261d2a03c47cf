/* recurrent.c - LSTMs and GRUs of several layers and one or two directions: a loop around tp_lstm
 * or tp_gru.
 *
 * Two directions' results are concatenated, which copies them; layer states are slices of one
 * tensor, which are views. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>
#include <tapegrad/tensor.h>

static int layers_of(const tp_rnn_cfg *cfg)
{
    return cfg->layers == 0 ? 1 : cfg->layers;
}

static int directions_of(const tp_rnn_cfg *cfg)
{
    return cfg->bidirectional ? 2 : 1;
}

/* ---- parameters ---- */

static bool check(tp_params *P, const tp_rnn_cfg *cfg, const char *what, const char *path)
{
    const char *wrong = NULL;
    if (cfg->in < 0 || cfg->in > INT32_MAX)
        wrong = "in must be in [0, 2^31)";
    else if (cfg->hidden < 1 || cfg->hidden > INT32_MAX / 4)
        wrong = "hidden must be in [1, 2^29)";
    else if (cfg->layers < 0 || cfg->layers > TP_RNN_LAYERS)
        wrong = "layers must be in [0, 8], where 0 means 1";
    else if (!(cfg->dropout >= 0.0 && cfg->dropout < 1.0))
        wrong = "dropout must be in [0, 1)";
    if (wrong) tp_params_raise(P, TP_E_VALUE, "%s '%s': %s", what, path ? path : "", wrong);
    return !wrong;
}

static tp_tensor parameter(tp_params *P, const char *what, int layer, bool reverse, tp_shape s,
                           tp_init init)
{
    char name[64];
    snprintf(name, sizeof name, "%s_l%d%s", what, layer, reverse ? "_reverse" : "");
    return tp_param(P, name, s, init, 0);
}

/* Declares the parameters of all layers, in PyTorch's order. */
static const char *declare(tp_params *P, const tp_rnn_cfg *cfg, const char *what, const char *name,
                           int64_t gates, tp_rnn_weights (*w)[2])
{
    const char *path = tp_push(P, name);
    if (check(P, cfg, what, path)) {
        const int64_t H = cfg->hidden, rows = gates * H;
        const tp_init uniform = { TP_INIT_UNIFORM, 1.0 / sqrt((double)H), 0.0 };
        for (int l = 0; l < layers_of(cfg); l++)
            for (int r = 0; r < directions_of(cfg); r++) {
                const int64_t in = l == 0 ? cfg->in : directions_of(cfg) * H;
                w[l][r].w_ih = parameter(P, "weight_ih", l, r, TP_SHAPE(rows, in), uniform);
                w[l][r].w_hh = parameter(P, "weight_hh", l, r, TP_SHAPE(rows, H), uniform);
                if (cfg->bias_free) continue;
                w[l][r].b_ih = parameter(P, "bias_ih", l, r, TP_SHAPE(rows), uniform);
                w[l][r].b_hh = parameter(P, "bias_hh", l, r, TP_SHAPE(rows), uniform);
            }
    }
    tp_pop(P);
    return path;
}

void tp_lstm_init(tp_params *P, tp_lstm_m *m, const char *name, tp_rnn_cfg cfg)
{
    if (!tp_params_want_module(P, m, "lstm")) return;
    *m = (tp_lstm_m){ .cfg = cfg };
    m->path = declare(P, &m->cfg, "lstm", name, 4, m->w);
}

void tp_gru_init(tp_params *P, tp_gru_m *m, const char *name, tp_rnn_cfg cfg)
{
    if (!tp_params_want_module(P, m, "gru")) return;
    *m = (tp_gru_m){ .cfg = cfg };
    m->path = declare(P, &m->cfg, "gru", name, 3, m->w);
}

/* ---- forward ---- */

/* Fails T unless s, a state of all layers, is [n,..,..] or absent. Released tensors have no shape:
 * their reader reports them. */
static bool check_state(tp_tape *T, tp_tensor s, const char *op, const char *name, int n)
{
    if (!tp_given(s)) return true;
    if (tp_ndim(s) == 3 && tp_dim(s, 0) == n) return true;
    tp_detach(T, s);
    tp_raise_here(
        T, TP_E_SHAPE,
        "%s: the state %s must be [%d,B,hidden], one matrix for each layer and direction; "
        "it has %d axes, the first of size %lld",
        op, name, n, tp_ndim(s), (long long)tp_dim(s, 0));
    return false;
}

/* The state [B,H] of layer and direction k. */
static tp_tensor part(tp_tape *T, tp_tensor s, int k)
{
    if (!tp_given(s)) return TP_NONE;
    return tp_reshape(T, tp_slice(T, s, 0, k, 1), TP_SHAPE(tp_dim(s, 1), tp_dim(s, 2)));
}

/* State common to both modules. */
typedef struct network {
    const tp_rnn_cfg *cfg;
    const tp_rnn_weights (*w)[2];
    bool lstm;
    tp_lstm_state first;                                  /* of all layers */
    tp_tensor h[2 * TP_RNN_LAYERS], c[2 * TP_RNN_LAYERS]; /* last, of each */
} network;

static tp_tensor direction(tp_tape *T, network *n, int l, int r, tp_tensor x, tp_tensor lengths)
{
    const int k = l * directions_of(n->cfg) + r;
    tp_lstm_state s = { part(T, n->first.h, k), part(T, n->first.c, k) };
    const tp_tensor y = n->lstm ? tp_lstm(T, x, n->w[l][r], &s, lengths, r)
                                : tp_gru(T, x, n->w[l][r], &s.h, lengths, r);
    n->h[k] = s.h;
    n->c[k] = s.c;
    return y;
}

static tp_tensor run(tp_tape *T, network *n, tp_tensor x, tp_tensor lengths)
{
    const int layers = layers_of(n->cfg), directions = directions_of(n->cfg);
    const char *op = n->lstm ? "lstm" : "gru";
    if (!check_state(T, n->first.h, op, "h", layers * directions) ||
        !check_state(T, n->first.c, op, "c", layers * directions))
        return TP_NONE;
    for (int l = 0; l < layers; l++) {
        if (l > 0 && n->cfg->dropout > 0.0) x = tp_dropout(T, x, n->cfg->dropout);
        tp_tensor y = direction(T, n, l, 0, x, lengths);
        if (directions == 2) y = tp_concat(T, -1, y, direction(T, n, l, 1, x, lengths));
        x = y;
    }
    return x;
}

tp_tensor tp_lstm_forward(tp_tape *T, const tp_lstm_m *m, tp_tensor x, tp_lstm_state *state,
                          tp_tensor lengths)
{
    if (!tp_want_module(T, m, "lstm")) return TP_NONE;
    network n = { .cfg = &m->cfg, .w = m->w, .lstm = true };
    if (state) n.first = *state;
    tp_enter(T, m->path);
    const tp_tensor y = run(T, &n, x, lengths);
    const int count = layers_of(&m->cfg) * directions_of(&m->cfg);
    if (!state) return tp_leave(T, y);
    const tp_tensor results[] = { y, tp_stack_n(T, 0, count, n.h), tp_stack_n(T, 0, count, n.c) };
    tp_leave_n(T, 3, results);
    *state = (tp_lstm_state){ results[1], results[2] };
    return y;
}

tp_tensor tp_gru_forward(tp_tape *T, const tp_gru_m *m, tp_tensor x, tp_tensor *h,
                         tp_tensor lengths)
{
    if (!tp_want_module(T, m, "gru")) return TP_NONE;
    network n = { .cfg = &m->cfg, .w = m->w };
    if (h) n.first.h = *h;
    tp_enter(T, m->path);
    const tp_tensor y = run(T, &n, x, lengths);
    if (!h) return tp_leave(T, y);
    const int count = layers_of(&m->cfg) * directions_of(&m->cfg);
    const tp_tensor results[] = { y, tp_stack_n(T, 0, count, n.h) };
    tp_leave_n(T, 2, results);
    *h = results[1];
    return y;
}
