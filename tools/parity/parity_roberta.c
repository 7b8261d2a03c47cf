/* parity_roberta.c - kinds of RoBERTa, Longformer and long-short RoBERTa: Longformer's attention,
 * whole models. */
#include <string.h>
#include <tapegrad/roberta.h>

#include "parity_case.h"

typedef struct text_model {
    tp_roberta m;
    tp_longformer_m attention;
} text_model;

/* ---- codes of tokens: 0 padding, 1 local, 2 global ---- */

/* Reads the nested list of global positions, [[0], [0, 5]], into codes of sequences of n tokens.
 * Every number must be a token of its sequence. */
static void read_globals(parity *p, uint8_t *code, int64_t B, int64_t n)
{
    const char *text = par_text(p, "globals"), *at = text;
    int64_t b = -1;
    int depth = 0;
    for (; text && *at && !p->failed; at++) {
        if (*at == '[') {
            b += ++depth == 2;
        } else if (*at == ']') {
            depth--;
        } else if (*at >= '0' && *at <= '9') {
            char *end;
            const long long i = strtoll(at, &end, 10);
            if (depth != 2 || b < 0 || b >= B || i >= n || code[b * n + i] != 1)
                par_fail(p, "metadata globals: %lld is not one more token of sequence %lld", i,
                         (long long)b);
            else
                code[b * n + i] = 2;
            at = end - 1;
        } else if (!strchr(", ", *at)) {
            depth = -1;
        }
        if (depth < 0 || depth > 2) break;
    }
    if (text && (depth != 0 || b != B - 1))
        par_fail(p,
                 "metadata globals = '%.80s' is not a list of positions for each of %lld sequences",
                 text, (long long)B);
}

/* Compares the numbers of real tokens with `lengths`. */
static void check_lengths(parity *p, const uint8_t *code, int64_t B, int64_t n)
{
    int64_t given;
    const int64_t *length = par_sizes(p, "lengths", 1, &given);
    if (given && given != B)
        par_fail(p, "metadata lengths: %lld numbers for %lld sequences", (long long)given,
                 (long long)B);
    for (int64_t b = 0; b < B && given == B && !p->failed; b++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) count += code[b * n + i] != 0;
        if (count != length[b])
            par_fail(p, "metadata lengths: sequence %lld has %lld tokens, not %lld", (long long)b,
                     (long long)count, (long long)length[b]);
    }
}

static tp_tensor mask_of(parity *p, const uint8_t *code, int64_t B, int64_t n)
{
    uint8_t *mask = par_alloc(p, B * n, 1);
    for (int64_t i = 0; mask && i < B * n; i++) mask[i] = code[i] != 0;
    return mask ? tp_from(p->T, TP_U8, TP_SHAPE(B, n), mask) : TP_NONE;
}

static bool ready(parity *p, tp_shape s, int64_t n)
{
    if (s.ndim < 2) par_fail(p, "there are no sequences [batch,tokens]");
    if (s.ndim >= 2 && s.dim[1] != n)
        par_fail(p, "sequences have %lld tokens", (long long)s.dim[1]);
    return par_ok(p);
}

/* ---- Longformer's attention ---- */

static void declare_attention(parity *p, void *self)
{
    static const char *const kinds[] = { "full", "longformer", "ls", NULL };
    text_model *t = self;
    const tp_shape x = par_shape(p, "input.x");
    par_same(p, "dim", x.ndim == 3 ? x.dim[2] : 0);
    par_same(p, "seq_len", x.ndim == 3 ? x.dim[1] : 0);
    par_fixed(p, "dropout", 0.0);
    par_fixed(p, "ls_window", 0.0);
    if (par_word(p, "attention_type", 1, kinds) != 1)
        par_fail(p, "metadata attention_type: this kind is Longformer's");
    const int64_t window = par_int(p, "longformer_window", PAR_NEEDED, 2, 1 << 20);
    const int64_t heads = par_int(p, "heads", PAR_NEEDED, 1, 1 << 20);
    if (x.ndim == 3 && x.dim[2] % heads)
        par_illegal(p, "metadata heads: %lld channels do not divide into %lld heads",
                    (long long)x.dim[2], (long long)heads);
    if (window % 2)
        par_illegal(p, "metadata longformer_window: %lld is not even", (long long)window);
    if (!par_ok(p)) return;
    const tp_roberta_cfg c = { .dim = x.dim[2], .heads = (int)heads, .window = window };
    tp_part_init(p->P, &tp_model_roberta, "longformer", &t->attention, "", &c);
}

static void attend(parity *p, void *self)
{
    text_model *t = self;
    tp_shape s = { 0 };
    const int64_t *stored = par_integers(p, "input.attention", &s);
    if (!stored || !ready(p, s, s.ndim > 1 ? s.dim[1] : 0)) return;
    const int64_t B = s.dim[0], n = s.dim[1];
    uint8_t *code = par_alloc(p, B * n, 1);
    for (int64_t i = 0; code && i < B * n; i++) code[i] = stored[i] != 0;
    if (!code) return;
    read_globals(p, code, B, n);
    for (int64_t i = 0; i < B * n; i++)
        if (code[i] != stored[i])
            par_fail(p, "metadata globals: input.attention differs at %lld", (long long)i);
    check_lengths(p, code, B, n);
    if (!par_ok(p)) return;
    tp_longformer_in in = { .mask = mask_of(p, code, B, n),
                            .global = tp_roberta_global_tokens(p->T, code, B, n) };
    const tp_tensor x = par_take(p, "x");
    par_output(p, "y",
               tp_part_forward(p->T, &tp_model_roberta, "longformer", &t->attention, &in, x));
}

/* ---- models ---- */

static tp_roberta_cfg configuration(parity *p)
{
    static const char *const kinds[] = { "full", "longformer", "ls", NULL };
    static const char *const heads[] = { "cls", "mlm", NULL };
    const int64_t most = 1 << 20;
    tp_roberta_cfg c = { .kind = (tp_roberta_kind)par_word(p, "attention_type", 0, kinds) };
    const int named = par_word(p, "attention", (int)c.kind, kinds);
    if (named != (int)c.kind) par_fail(p, "metadata attention and attention_type differ");
    c.head = (tp_roberta_head)par_word(p, "head", 0, heads);
    c.layers = (int)par_int(p, "layers", PAR_NEEDED, 1, TP_ROBERTA_MAX_LAYERS);
    c.heads = (int)par_int(p, "heads", PAR_NEEDED, 1, most);
    c.dim = par_int(p, "hidden_size", PAR_NEEDED, 1, most);
    c.hidden = par_int(p, "intermediate", PAR_NEEDED, 1, most);
    c.vocab = par_int(p, "vocab_size", PAR_NEEDED, 5, 1 << 24);
    c.length = par_int(p, "max_position_embeddings", PAR_NEEDED, 3, most) - 2;
    c.classes = par_int(p, "num_labels", 2, 1, most);
    if (c.kind == TP_ROBERTA_LS) {
        c.window = par_int(p, "ls_window", PAR_NEEDED, 0, most);
        c.rank = par_int(p, "num_landmarks", PAR_NEEDED, 0, most);
    } else {
        par_fixed(p, "ls_window", 0.0);
        par_fixed(p, "num_landmarks", 0.0);
    }
    if (c.kind == TP_ROBERTA_LONGFORMER)
        c.window = par_int(p, "longformer_window", PAR_NEEDED, 2, most);
    else
        par_fixed(p, "longformer_window", 0.0);
    c.raw_kv = !par_flag(p, "dual_ln", true);
    par_fixed(p, "layer_norm_eps", 1e-5);
    par_fixed(p, "pad_token_id", TP_ROBERTA_PAD);
    par_fixed(p, "dropout", 0.0);
    return c;
}

static void declare_model(parity *p, void *self)
{
    text_model *t = self;
    const tp_roberta_cfg c = configuration(p);
    const tp_shape s = par_shape(p, "input.ids");
    par_same(p, "seq_len", s.ndim == 2 ? s.dim[1] : 0);
    if (par_given(p, "size")) {
        static const char *const sizes[] = { "base", "large", NULL };
        const bool large = par_word(p, "size", 0, sizes) == 1;
        par_same(p, "layers", large ? 24 : 12);
        par_same(p, "hidden_size", large ? 1024 : 768);
    }
    if (par_ok(p)) tp_model_roberta.init(p->P, &t->m, "", &c);
}

/* The encoder's result. */
static tp_tensor encode(parity *p, const tp_roberta *m)
{
    tp_shape s = { 0 };
    const int64_t *ids = par_integers(p, "input.ids", &s);
    if (!ids || !ready(p, s, s.ndim > 1 ? s.dim[1] : 0)) return TP_NONE;
    const int64_t B = s.dim[0], n = s.dim[1];
    uint8_t *code = par_alloc(p, B * n, 1);
    for (int64_t i = 0; code && i < B * n; i++) code[i] = ids[i] != TP_ROBERTA_PAD;
    if (!code) return TP_NONE;
    if (par_has(p, "input.mask")) {
        const int64_t *mask = par_integers(p, "input.mask", NULL);
        for (int64_t i = 0; mask && i < B * n; i++)
            if ((mask[i] != 0) != code[i])
                par_fail(p, "input.mask: the mask is not that of the padding");
    }
    check_lengths(p, code, B, n);
    tp_roberta_in in = { .ids = par_tensor(p, "ids") };
    if (m->cfg.kind == TP_ROBERTA_LONGFORMER) {
        read_globals(p, code, B, n);
        in.global = tp_roberta_global_tokens(p->T, code, B, n);
    }
    return par_ok(p) ? tp_roberta_encode(p->T, m, in) : TP_NONE;
}

static void check_loss_kind(parity *p)
{
    par_fixed(p, "ignore_index", -100.0);
    const char *kind = par_text(p, "output_loss");
    if (kind && strcmp(kind, "cross_entropy") != 0)
        par_fail(p, "metadata output_loss = '%.40s': the library only has cross_entropy here",
                 kind);
}

/* The mean cross entropy over the labels but those of -100, which is compared, not
 * differentiated. */
static void compare_loss(parity *p, tp_tensor logits, bool differentiate)
{
    tp_shape s = { 0 };
    check_loss_kind(p);
    if (!differentiate && !par_has(p, "output.loss")) return;
    const int64_t *stored = par_integers(p, "input.labels", &s);
    const int64_t n = stored ? par_numel(s) : 0;
    int32_t *label = par_alloc(p, n, sizeof *label);
    for (int64_t i = 0; label && i < n; i++) label[i] = stored[i] == -100 ? -1 : (int32_t)stored[i];
    if (!label || !par_ok(p)) return;
    const tp_tensor y = tp_from(p->T, TP_I32, TP_SHAPE(n), label);
    logits = tp_reshape(p->T, logits, TP_SHAPE(n, tp_dim(logits, -1)));
    const tp_tensor loss = tp_cross_entropy(p->T, logits, y, TP_MEAN);
    if (differentiate)
        par_loss(p, loss);
    else
        par_check_tensor(p, "output.loss", loss);
}

static void run_model(parity *p, void *self)
{
    text_model *t = self;
    const tp_tensor x = encode(p, &t->m);
    if (!par_ok(p)) return;
    const tp_tensor y = t->m.cfg.head == TP_ROBERTA_CLS
                            ? tp_roberta_classify(p->T, &t->m, x)
                            : tp_roberta_predict(p->T, &t->m, x, TP_NONE);
    par_output(p, "logits", y);
    par_check_tensor(p, "output.hidden", x);
    compare_loss(p, y, false);
}

static void run_full(parity *p, void *self)
{
    text_model *t = self;
    const tp_tensor x = encode(p, &t->m);
    if (!par_ok(p)) return;
    const int64_t tokens = par_int(p, "slice_tokens", 0, 0, 1 << 20),
                  words = par_int(p, "slice_vocab", 0, 0, 1 << 24);
    if (t->m.cfg.head == TP_ROBERTA_CLS) {
        check_loss_kind(p);
        if (tokens || words)
            par_fail(p, "metadata slice_tokens, slice_vocab: logits of a class are whole");
        par_classify(p, tp_roberta_classify(p->T, &t->m, x));
        return;
    }
    const tp_tensor y = tp_roberta_predict(p->T, &t->m, x, TP_NONE);
    if (tokens > tp_dim(y, 1) || words > tp_dim(y, 2) || tokens < 1 || words < 1) {
        par_fail(p, "metadata slice_tokens, slice_vocab: there are fewer logits");
        return;
    }
    par_fixed(p, "target_class", -1.0);
    par_output(p, "logits_slice", tp_slice(p->T, tp_slice(p->T, y, 1, 0, tokens), 2, 0, words));
    compare_loss(p, y, true);
}

const par_kind par_roberta_kinds[] = {
    { PAR_MODULE("roberta.longformer_attention", text_model, declare_attention, attend) },
    { PAR_MODULE("roberta.model", text_model, declare_model, run_model), .own_loss = true },
    { PAR_MODULE("roberta.full", text_model, declare_model, run_full), .large = true },
    { .kind = NULL },
};
