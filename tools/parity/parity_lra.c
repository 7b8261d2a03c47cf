/* parity_lra.c - kinds of the LRA encoders: attentions, whole models, pairs of documents. */
#include <string.h>
#include <tapegrad/lra.h>
#include <tapegrad/observe.h>

#include "parity_lra.h"

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

tp_lra_attn_cfg lra_attention(parity *p, const char *key, int64_t dim, int64_t length)
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

/* A mask on the tape from numbers. If counted, the tokens are compared with `lengths`: of an attention whose CLS
 * is a token, `own` = 1, without it; of a model that puts a CLS before the ids, a full sequence may also be one
 * longer than its ids, over = 1. */
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

/* Compares the order in which the op has sorted its tokens, its second result, with the stored buckets
 * [B,h,rounds,n]: tokens of a bucket keep their order. */
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

void lra_declare(parity *p, void *self)
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
