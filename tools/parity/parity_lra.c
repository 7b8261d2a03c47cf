/* parity_lra.c - kinds of the LRA encoders: attentions, whole models, pairs of documents. */
#include <math.h>
#include <string.h>
#include <tapegrad/lra.h>
#include <tapegrad/observe.h>

#include "parity_case.h"

/* ---- configurations ---- */

/* The attention that a key names before its dash; the number after it configures nothing. */
static tp_lra_kind kind_of(parity *p, const char *key)
{
    static const char *const names[] = { "lsta",    "softmax",  "linformer", "performer",
                                         "nystrom", "reformer", "linear",    "none" };
    static const bool numbered[] = { false, false, true, true, true, true, false, false };
    const char *text = par_text(p, key);
    if (!text) par_fail(p, "the metadata lack '%s'", key);
    for (int i = 0; text && i < (int)(sizeof names / sizeof *names); i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(text, names[i], n) != 0) continue;
        if (!text[n]) return (tp_lra_kind)i;
        if (numbered[i] && text[n] == '-' && text[n + 1] &&
            strspn(text + n + 1, "0123456789") == strlen(text + n + 1))
            return (tp_lra_kind)i;
    }
    if (text) par_fail(p, "metadata %s = '%.40s': the library has no such attention", key, text);
    return TP_LRA_NONE;
}

static void read_buckets(parity *p, int64_t buckets[2])
{
    int64_t n;
    const int64_t *b = par_sizes(p, "bucket_factors", 0, &n);
    if (n > 2) par_illegal(p, "metadata bucket_factors: the library has at most two factors");
    for (int64_t i = 0; i < n && i < 2; i++) buckets[i] = b[i];
}

/* The configuration of the attention that the key names. */
static tp_lra_attn_cfg lra_attention(parity *p, const char *key, int64_t dim, int64_t length)
{
    static const char *const projections[] = { "dynamic", "linformer", NULL };
    static const char *const modes[] = { "outputs", "values", NULL };
    static const char *const kernels[] = { "softmax", "relu", NULL };
    const int64_t most = TP_LRA_MAX_SIZE;
    tp_lra_attn_cfg c = { .kind = kind_of(p, key), .dim = dim, .length = length };

    c.heads = (int)par_int(p, "num_head", PAR_NEEDED, 1, most);
    if (dim % c.heads)
        par_illegal(p, "metadata num_head: %lld channels do not divide into %d heads",
                    (long long)dim, c.heads);
    par_same(p, "head_dim", dim / c.heads);
    const int64_t window = par_int(p, "window_size", 0, 0, most);
    const int64_t landmarks = par_int(p, "num_landmarks", 0, 0, most);
    const int64_t mixtures = par_int(p, "linformer_k", 256, 1, most);
    const int64_t features = par_int(p, "rp_dim", 256, 1, most);
    const int64_t conv = par_int(p, "conv_kernel_size", -1, -1, most);
    if (par_flag(p, "uses_window", c.kind == TP_LRA_LS && window > 0)) {
        if (c.kind != TP_LRA_LS || window == 0)
            par_illegal(p, "metadata uses_window = 1: this attention has no window");
        c.window = window;
    }
    c.rank = c.kind == TP_LRA_LINFORMER   ? mixtures
             : c.kind == TP_LRA_PERFORMER ? features
                                          : landmarks;
    c.conv = conv > 0 ? conv : 0;
    c.fixed = par_word(p, "proj", 0, projections) == 1;
    c.cls_values = par_word(p, "cls_mode", 0, modes) == 1;
    c.raw_kv = !par_flag(p, "dual_ln", true);
    c.relu = par_word(p, "performer_kernel", 0, kernels) == 1;
    par_fixed(p, "kernel_eps", c.relu ? 1e-3 : 1e-4);
    c.inverse_per_head = par_flag(p, "inv_per_head", false);
    c.rounds = (int)par_int(p, "num_hash", 2, 1, 1024);
    c.chunk = par_int(p, "chunk_length", 64, 1, most);
    par_fixed(p, "chunks_before", 1.0);
    par_fixed(p, "chunks_after", 0.0);
    read_buckets(p, c.buckets);
    return c;
}

/* ---- masks and lengths ---- */

/* A mask on the tape from numbers. If counted, the tokens are compared with `lengths`: of an
 * attention whose CLS is a token, `own` = 1, without it; of a model that puts a CLS before the ids,
 * a full sequence may also be one longer than its ids, over = 1. */
static tp_tensor mask_of(parity *p, const int64_t *real, tp_shape s, bool counted, int64_t own,
                         int64_t over)
{
    const int64_t n = par_numel(s);
    uint8_t *mask = par_alloc(p, n, sizeof *mask);
    int64_t given, count;
    const int64_t *length = par_sizes(p, "lengths", 1, &given);

    if (!mask || s.ndim != 2) return tp_raise(p->T, TP_E_SHAPE, "a mask must be [batch,tokens]");
    if (counted && given && given != s.dim[0])
        par_fail(p, "metadata lengths: %lld numbers for %lld sequences", (long long)given,
                 (long long)s.dim[0]);
    for (int64_t i = 0; i < n; i++) mask[i] = real[i] != 0;
    for (int64_t b = 0; counted && given && b < s.dim[0] && !p->failed; b++) {
        count = -own;
        for (int64_t i = 0; i < s.dim[1]; i++) count += mask[b * s.dim[1] + i];
        const bool full = count == s.dim[1] && length[b] == count + over;
        if (count != length[b] && !full)
            par_fail(p, "metadata lengths: sequence %lld has %lld tokens, not %lld", (long long)b,
                     (long long)count, (long long)length[b]);
    }
    return tp_from(p->T, TP_U8, s, mask);
}

static tp_tensor stored_mask(parity *p, const char *name, bool counted, int64_t own, int64_t over)
{
    tp_shape s = { 0 };
    const int64_t *real = par_integers(p, name, &s);
    if (!real) return tp_raise(p->T, TP_E_IO, "%s", p->r->why);
    return mask_of(p, real, s, counted, own, over);
}

/* ---- attentions ---- */

static void declare_attention(parity *p, void *self)
{
    const tp_shape x = par_shape(p, "input.x");
    const bool cls = par_has(p, "input.cls");
    const bool first = par_flag(p, "cls_from_seq", false);

    if (x.ndim != 3) {
        par_fail(p, "input.x must be [batch,tokens,width]");
        return;
    }
    par_same(p, "dim", x.dim[2]);
    par_same(p, "seq_len", x.dim[1] - first);
    if (par_flag(p, "use_cls", cls || first) != (cls || first))
        par_fail(p, "metadata use_cls: the case %s a CLS", cls || first ? "has" : "lacks");
    tp_lra_attn_cfg c = lra_attention(p, "attention", x.dim[2], x.dim[1]);
    c.cls_from_seq = first;
    if (first && c.kind != TP_LRA_LS)
        par_illegal(p, "metadata cls_from_seq: only long-short attention takes its CLS from x");
    if (!p->failed) tp_part_init(p->P, &tp_model_lra, "attn", self, "", &c);
}

/* Compares the order in which the op has sorted its tokens, its second result, with the stored
 * buckets [B,h,rounds,n]: tokens of a bucket keep their order. */
static void check_order(void *env, tp_tape *T, const tp_seen *s)
{
    parity *p = env;
    tp_shape shape;
    tp_tensor y[2];
    if (strcmp(s->op->name, "lsh_attention") != 0 || !par_has(p, "output.buckets")) return;
    const int64_t *bucket = par_integers(p, "output.buckets", &shape);
    if (!bucket || shape.ndim != 4) return;
    const int64_t lists = shape.dim[0] * shape.dim[1], n = shape.dim[2] * shape.dim[3];
    int32_t *got = par_alloc(p, lists * n, sizeof *got);
    tp_apply_n(T, s->op, s->attr, s->nx, s->x, 2, y);
    if (!got || !tp_ok(T) || tp_numel(y[1]) != lists * n ||
        !tp_read(T, y[1], got, (size_t)(lists * n) * sizeof *got)) {
        par_fail(p, "output.buckets: the op has sorted no entries like these");
        return;
    }
    for (int64_t l = 0; l < lists && !p->failed; l++)
        for (int64_t of = 0, at = 0; at < n && of < 1 << 20; of++)
            for (int64_t e = 0; e < n; e++)
                if (bucket[l * n + e] == of && got[l * n + at++] != e % shape.dim[3])
                    par_fail(p, "output.buckets: head %lld has another order at entry %lld",
                             (long long)l, (long long)at - 1);
}

static void attend(parity *p, void *self)
{
    tp_lra_attn *m = self;
    const tp_tensor x = par_take(p, "x");
    const tp_tensor cls = par_has(p, "input.cls") ? par_take(p, "cls") : TP_NONE;

    if (par_has(p, "input.random_rotations")) m->rotations = par_tensor(p, "random_rotations");
    const tp_tensor mask = stored_mask(p, "input.mask", true, m->cfg.cls_from_seq, 0);
    tp_observe(p->T, check_order, p);
    const tp_tensor y =
        tp_part_forward(p->T, &tp_model_lra, "attn", m, (tp_tensor[]){ cls, mask }, x);
    tp_observe(p->T, NULL, NULL);
    par_output(p, "y", y);
}

/* ---- models ---- */

static tp_lra_pooling pooling_of(parity *p)
{
    static const char *const words[] = { "MEAN", "CLS", NULL };
    const bool pool = par_word(p, "pooling_mode", 0, words) == 1;
    const bool last = par_flag(p, "cls_last_layer", false), token = par_flag(p, "cls_token", false);

    if (pool + last + token > 1)
        par_illegal(
            p, "metadata pooling_mode, cls_token, cls_last_layer: a model has at most one CLS");
    return pool ? TP_LRA_CLS_POOL : last ? TP_LRA_CLS_LAST : token ? TP_LRA_CLS_TOKEN : TP_LRA_MEAN;
}

/* Declares the model of the metadata, a tp_lra. */
static void lra_declare(parity *p, void *self)
{
    const int64_t most = TP_LRA_MAX_SIZE;
    const int64_t dim = par_int(p, "transformer_dim", PAR_NEEDED, 1, most);
    const int64_t length = par_int(p, "max_seq_len", PAR_NEEDED, 1, most);
    const bool ls = kind_of(p, "attn_type") == TP_LRA_LS;
    tp_lra_cfg c = { .attn = lra_attention(p, "attn_type", dim, length),
                     .layers = (int)par_int(p, "num_layers", PAR_NEEDED, 1, TP_LRA_MAX_LAYERS),
                     .hidden = par_int(p, "transformer_hidden_dim", PAR_NEEDED, 1, most),
                     .vocab = par_int(p, "vocab_size", PAR_NEEDED, 1, most),
                     .classes = par_int(p, "num_classes", PAR_NEEDED, 1, most),
                     .pooling = pooling_of(p),
                     .tied = par_flag(p, "tied_weights", false),
                     .pair = par_flag(p, "retrieval", false) };
    const bool pooled = c.pooling == TP_LRA_CLS_POOL;
    const bool drops = c.attn.kind == TP_LRA_NYSTROM || c.attn.kind == TP_LRA_REFORMER;

    if (pooled && !drops) c.attn.length--; /* the official length counts the CLS */
    if (par_flag(p, "use_cls", pooled) != pooled)
        par_fail(p, "metadata use_cls: does not fit pooling_mode");
    if (par_flag(p, "cls_from_seq", pooled && ls) != (pooled && ls))
        par_fail(p, "metadata cls_from_seq: does not fit pooling_mode and attn_type");
    if (c.pair != par_has(p, "input.ids1") && !par_has(p, "input.ids"))
        par_fail(p, "metadata retrieval: the case has %s",
                 c.pair ? "one document" : "two documents");
    if (!p->failed) tp_model_lra.init(p->P, self, "", &c);
}

/* The mask of document i, stored or by its ids. */
static tp_tensor mask_of_document(parity *p, const tp_lra *m, int i)
{
    const char *mask = par_name(p, "input.mask%d", i);
    const int64_t pad = par_count(p, "pad_token_id", 0);
    const int64_t over = m->cfg.pooling == TP_LRA_CLS_POOL;
    tp_shape s = { 0 };

    if (par_has(p, mask)) return stored_mask(p, mask, i == 0, 0, over);
    const int64_t *id = par_integers(p, par_name(p, "input.ids%d", i), &s);
    int64_t *real = id ? par_alloc(p, par_numel(s), sizeof *real) : NULL;
    if (!real) return TP_NONE;
    for (int64_t k = 0; k < par_numel(s); k++) real[k] = id[k] != pad;
    return mask_of(p, real, s, i == 0, 0, over);
}

/* Sets the rotations of document i, one tensor for each layer. */
static void set_rotations(parity *p, tp_lra *m, int i)
{
    for (int l = 0; l < m->cfg.layers; l++) {
        const char *name = par_name(p, "random_rotations_%d", i * m->cfg.layers + l);
        if (!par_has(p, par_name(p, "input.%s", name)))
            name = par_name(p, "random_rotations_%d", l);
        if (par_has(p, par_name(p, "input.%s", name)))
            m->layer[l].attn.rotations = par_tensor(p, name);
    }
}

/* The encoder's result of document i. */
static tp_tensor encode_one(parity *p, tp_lra *m, int i)
{
    const tp_tensor ids = par_tensor(p, par_name(p, "ids%d", i)), mask = mask_of_document(p, m, i);
    const int64_t drops = m->cfg.attn.kind == TP_LRA_NYSTROM || m->cfg.attn.kind == TP_LRA_REFORMER;
    const int64_t more = m->cfg.pooling == TP_LRA_CLS_POOL && !drops;
    set_rotations(p, m, i);
    if (!par_ok(p)) return TP_NONE;
    if (i == 0) par_same(p, "seq_len", tp_dim(ids, 1) + more);
    return tp_lra_encode(p->T, m, ids, mask);
}

/* The pooled documents in a and b; the encoder's result of the first one is returned. */
static tp_tensor encode(parity *p, tp_lra *m, tp_tensor *a, tp_tensor *b)
{
    const tp_tensor x = encode_one(p, m, 0);
    *a = tp_lra_pool(p->T, m, x);
    *b = m->cfg.pair ? tp_lra_pool(p->T, m, encode_one(p, m, 1)) : TP_NONE;
    return x;
}

static void run_model(parity *p, void *self)
{
    tp_tensor a, b;
    const tp_tensor x = encode(p, self, &a, &b);
    if (!par_ok(p)) return;
    const tp_tensor logits = tp_lra_classify(p->T, self, a, b);
    par_output(p, "logits", logits);
    par_output(p, "encoder0", x);
    if (!par_wants(p, "loss_per_sample") || !par_ok(p)) return;
    const tp_tensor y = par_tensor(p, "labels");
    par_output(p, "loss_per_sample", tp_cross_entropy(p->T, logits, y, TP_EACH));
}

static void run_full(parity *p, void *self)
{
    tp_tensor a, b;
    encode(p, self, &a, &b);
    if (par_ok(p)) par_classify(p, tp_lra_classify(p->T, self, a, b));
}

/* Nystroem's inverse multiplies rounding errors; Reformer's hashes of rounded inputs differ. */
static bool too_coarse(parity *p)
{
    const char *alone = par_text(p, "attention"), *of_model = par_text(p, "attn_type");
    return (alone && strncmp(alone, "nystrom", 7) == 0) ||
           (of_model &&
            (strncmp(of_model, "nystrom", 7) == 0 || strncmp(of_model, "reformer", 8) == 0));
}

/* ---- training traces ---- */

enum { CONSTANT, ONECYCLE };

typedef struct trace {
    tp_lra *m;
    int schedule;
    int64_t steps, batches, B, n, pad;
    double lr, pct, div, final_div, beta1, beta1_max, beta1_min, clip;
    const int64_t *ids, *labels;               /* [batches,B,n], [batches,B] */
    double *loss, *accuracy, *rate, *momentum; /* [steps]                    */
} trace;

/* ---- settings ---- */

static void read_tensors(parity *p, trace *t)
{
    tp_shape ids = { 0 }, labels = { 0 };

    t->ids = par_integers(p, "input.ids", &ids);
    t->labels = par_integers(p, "input.labels", &labels);
    if (!t->ids || !t->labels) return;
    if (ids.ndim != 3 || ids.dim[0] < 1 || labels.ndim != 2 || ids.dim[0] != labels.dim[0] ||
        ids.dim[1] != labels.dim[1]) {
        par_fail(p, "input.ids must be [batches,batch,tokens], input.labels [batches,batch]");
        return;
    }
    t->batches = ids.dim[0];
    t->B = ids.dim[1];
    t->n = ids.dim[2];
    par_same(p, "num_batches", t->batches);
    par_same(p, "seq_len", t->n);
    par_fixed(p, "retrieval", 0.0);
}

static void read_trace(parity *p, trace *t)
{
    static const char *const schedules[] = { "constant", "onecycle", NULL };

    t->steps = par_int(p, "steps", PAR_NEEDED, 1, 100000);
    t->pad = par_count(p, "pad_token_id", 0);
    t->schedule = par_word(p, "schedule", PAR_NEEDED, schedules);
    t->lr = par_num(p, "lr", PAR_NEEDED);
    t->pct = par_num(p, "pct_start", 0.3);
    t->div = par_num(p, "div_factor", 25.0);
    t->final_div = par_num(p, "final_div_factor", 1e4);
    t->beta1 = par_num(p, "beta1", 0.9);
    t->beta1_max = par_num(p, "beta1_max", t->beta1);
    t->beta1_min = par_num(p, "beta1_min", t->beta1);
    t->clip = par_num(p, "clip_norm", 0.0);
    if (t->lr < 0.0 || t->div <= 0.0 || t->final_div <= 0.0 || t->pct < 0.0 || t->pct > 1.0)
        par_illegal(p, "metadata lr, pct_start, div_factor, final_div_factor: no such cycle");
    if (t->clip < 0.0) par_illegal(p, "metadata clip_norm = %g is negative", t->clip);
    const bool starts = t->schedule == ONECYCLE && t->pct * (double)t->steps > 1.0;
    if (t->beta1 != (starts ? t->beta1_max : t->beta1_min))
        par_fail(p, "metadata beta1 = %g is not that of the first update", t->beta1);
    read_tensors(p, t);
    t->loss = par_alloc(p, t->steps, sizeof *t->loss);
    t->accuracy = par_alloc(p, t->steps, sizeof *t->accuracy);
    t->rate = par_alloc(p, t->steps, sizeof *t->rate);
    t->momentum = par_alloc(p, t->steps, sizeof *t->momentum);
}

/* NULL: failed. */
static tp_optim *optimiser(parity *p, const trace *t)
{
    static const char *const kinds[] = { "adamw", NULL };
    const double eps = par_num(p, "eps", 1e-8), beta2 = par_num(p, "beta2", 0.999);
    const double decay = par_num(p, "weight_decay", 0.0);

    par_word(p, "optimizer_type", 0, kinds);
    if (!(beta2 >= 0.0 && beta2 < 1.0) || eps < 0.0 || decay < 0.0)
        par_illegal(p, "metadata eps, beta2, weight_decay: impossible for Adam");
    if (p->failed) return NULL;
    return tp_adamw_new(p->P, &(tp_adam_opts){ .beta1 = par_nonzero(t->beta1),
                                               .beta2 = par_nonzero(beta2),
                                               .eps = par_nonzero(eps),
                                               .weight_decay = decay });
}

/* ---- updates ---- */

static tp_tensor forward(parity *p, const trace *t, int64_t batch)
{
    const tp_shape s = TP_SHAPE(t->B, t->n);
    const int64_t n = t->B * t->n, *ids = t->ids + batch * n;
    uint8_t *mask = par_alloc(p, n, sizeof *mask);
    for (int64_t i = 0; mask && i < n; i++) mask[i] = ids[i] != t->pad;
    if (!mask) return TP_NONE;
    const tp_tensor x =
        tp_lra_encode(p->T, t->m, tp_from(p->T, TP_I64, s, ids), tp_from(p->T, TP_U8, s, mask));
    return tp_lra_classify(p->T, t->m, tp_lra_pool(p->T, t->m, x), TP_NONE);
}

/* Share of rows whose largest logit is the label's. */
static double accuracy(parity *p, const trace *t, tp_tensor logits, const int64_t *label)
{
    const double *z = par_read(p, logits);
    const int64_t classes = t->m->cfg.classes;
    double right = 0.0;
    for (int64_t b = 0; z && b < t->B; b++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (z[b * classes + c] > z[b * classes + best]) best = c;
        right += best == label[b];
    }
    return right / (double)t->B;
}

/* Compares the norms of the gradients before the first update. */
static void check_gradients(parity *p)
{
    for (tp_param_info it = { 0 }; par_ok(p) && tp_next_param(p->P, &it);) {
        const char *name = par_name(p, "output.gradnorm0.%s", it.name);
        const int64_t n = par_numel(it.shape);
        double *g = par_has(p, name) && !it.buffer ? par_alloc(p, n, sizeof *g) : NULL,
               squares = 0.0;
        if (!g) continue;
        if (it.has_grad)
            par_params(p, tp_param_get_grad(p->P, it.tensor, TP_F64, g, (size_t)n * sizeof *g));
        for (int64_t i = 0; i < n; i++) squares += g[i] * g[i];
        const double norm = sqrt(squares);
        if (par_names(p, "zero_grads", it.name))
            par_check_abs(p, name, &norm, 1, p->real == TP_F64 ? 1e-12 : 1e-6);
        else
            par_check_one(p, name, norm, par_limit(p, PAR_GRADIENT));
    }
}

static void update(parity *p, trace *t, int64_t s, tp_optim *O)
{
    const int64_t batch = s % t->batches, *label = t->labels + batch * t->B;
    const double start = t->lr / t->div;
    const bool cycle = t->schedule == ONECYCLE;

    tp_reset(p->T);
    const tp_tensor logits = forward(p, t, batch);
    const tp_tensor y = tp_from(p->T, TP_I64, TP_SHAPE(t->B), label);
    const tp_tensor loss = tp_cross_entropy(p->T, logits, y, TP_MEAN);
    t->loss[s] = tp_item(p->T, loss);
    t->accuracy[s] = accuracy(p, t, logits, label);
    tp_backward(p->T, loss);
    if (s == 0) check_gradients(p);
    if (t->clip > 0.0) tp_clip_grad_norm(p->P, t->clip);
    t->rate[s] =
        cycle ? tp_cycle_linear(s, t->steps, t->pct, start, t->lr, start / t->final_div) : t->lr;
    t->momentum[s] =
        cycle ? tp_cycle_linear(s, t->steps, t->pct, t->beta1_max, t->beta1_min, t->beta1_max)
              : t->beta1;
    tp_optim_set(O, "beta1", t->momentum[s]);
    tp_step(O, t->rate[s]);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
    par_ok(p);
}

/* ---- comparing ---- */

static void check_weights(parity *p)
{
    for (tp_param_info it = { 0 }; par_ok(p) && tp_next_param(p->P, &it);) {
        const int64_t n = par_numel(it.shape);
        double *x = it.buffer ? NULL : par_alloc(p, n, sizeof *x), squares = 0.0;
        if (!x || !tp_param_get(p->P, it.tensor, TP_F64, x, (size_t)n * sizeof *x)) continue;
        for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
        par_check_one(p, par_name(p, "output.paramnorm.%s", it.name), sqrt(squares),
                      par_limit(p, PAR_OUTPUT));
        par_check(p, par_name(p, "output.param.%s", it.name), x, n, par_limit(p, PAR_GRADIENT));
    }
}

static void lra_run_trace(parity *p)
{
    trace t = { .m = par_alloc(p, 1, sizeof *t.m), .batches = 1 };

    par_begin(p);
    if (!t.m) return;
    lra_declare(p, t.m);
    read_trace(p, &t);
    par_load(p);
    tp_optim *O = p->failed ? NULL : optimiser(p, &t);
    if (!O) return;
    for (int64_t s = 0; s < t.steps && !p->failed; s++) update(p, &t, s, O);
    if (!p->failed) {
        const double limit = par_limit(p, PAR_OUTPUT);
        par_check(p, "output.loss", t.loss, t.steps, limit);
        par_check(p, "output.accuracy", t.accuracy, t.steps, limit);
        par_check(p, "output.lr", t.rate, t.steps, par_exact(p, "output.lr"));
        par_check(p, "output.beta1", t.momentum, t.steps, par_exact(p, "output.beta1"));
        check_weights(p);
    }
    tp_optim_free(O);
}

/* no_bf16: differences of two documents cancel. */
const par_kind par_lra_kinds[] = {
    { PAR_MODULE("lra.ls_attention", tp_lra_attn, declare_attention, attend) },
    { PAR_MODULE("lra.attention", tp_lra_attn, declare_attention, attend),
      .too_coarse = too_coarse },
    { PAR_MODULE("lra.encoder", tp_lra, lra_declare, run_model), .too_coarse = too_coarse },
    { PAR_MODULE("lra.retrieval", tp_lra, lra_declare, run_model), .no_bf16 = true },
    { PAR_MODULE("lra.full", tp_lra, lra_declare, run_full), .large = true,
      .too_coarse = too_coarse },
    { .kind = "lra.trace", .run = lra_run_trace, .no_bf16 = true },
    { .kind = NULL },
};
