/* span.c - what one token of a map attends to, block by block: tokens of its window directly, and
 * tokens of the whole map through the dynamic projection (Zhu et al. 2021): the weight of a projected
 * vector times the token's weight in it. For window, long-short and full attention. */
#include <string.h>

#include "analyze.h"

typedef struct spans {
    analysis *a;
    window_seen in; /* scores: of the block's projection */
    block_spans *found;
    bool failed;
} spans;

static bool wanted(const spans *s)
{
    const analysis *a = s->a;
    return (a->block < 0 || a->block == a->at) && a->at < DEPTH_MAX && !s->found->of[a->at].direct;
}

static void take(spans *s, bool done)
{
    s->found->blocks = (int)s->a->at + 1;
    if (!done) s->failed = true;
}

static void see_window(spans *s, tp_tape *T, const tp_seen *seen)
{
    host_array *const to[] = { &s->in.q,     &s->in.k,          NULL, &s->in.low_k, NULL,
                               &s->in.table, &s->in.global_bias };
    for (int i = 0; i < 7; i++)
        if (to[i] && !host_read(to[i], T, seen->x[i])) return;
    memcpy(&s->in.cfg, seen->attr, sizeof s->in.cfg);
    const int64_t row = (int64_t)(s->a->row * (double)s->in.cfg.height);
    const int64_t col = (int64_t)(s->a->col * (double)s->in.cfg.width);
    take(s, window_span(&s->found->of[s->a->at], &s->in, row, col));
}

/* True if the model's tp_attention ops attend over the whole map. */
static bool is_full(const analysis *a)
{
    const tp_vil *vil = classifier_as(a->f.m, &tp_model_vil);
    const tp_cvt *cvt = classifier_as(a->f.m, &tp_model_cvt);
    if (vil) return vil->block[a->at].attn.kind == TP_VIL_FULL;
    return cvt && !cvt->cfg.long_short;
}

static void see_full(spans *s, tp_tape *T, const tp_seen *seen)
{
    const int64_t front = analysis_front(&s->a->f.cfg, s->a->at);
    const int64_t N = tp_dim(seen->x[0], 1) - front;
    int64_t side = 0;
    host_array bias = { 0 };
    tp_attn_cfg cfg;
    if (N < 1) return; /* only global tokens */
    while ((side + 1) * (side + 1) <= N) side++;
    memcpy(&cfg, seen->attr, sizeof cfg);
    if (host_read(&s->in.q, T, seen->x[0]) && host_read(&s->in.k, T, seen->x[1]) &&
        host_read(&bias, T, seen->x[4])) {
        const int64_t row = (int64_t)(s->a->row * (double)side);
        const int64_t col = (int64_t)(s->a->col * (double)side);
        s->found->full[s->a->at] = true;
        take(s, full_span(&s->found->of[s->a->at], &s->in.q, &s->in.k, &bias, &cfg, front,
                          front + row * side + col));
    }
    host_free(&bias);
}

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    spans *s = env;
    const char *name = seen->op->name;
    if (analysis_ends_block(seen)) host_free(&s->in.scores);
    if (!wanted(s)) return;
    if (strcmp(name, "chunk_project_kv") == 0) host_read(&s->in.scores, T, seen->x[1]);
    if (strcmp(name, "window_attention_2d") == 0) see_window(s, T, seen);
    if (strcmp(name, "attention") == 0 && is_full(s->a)) see_full(s, T, seen);
}

static void print_span(FILE *f, int block, const span *s)
{
    const int64_t N = s->rows * s->cols, H = s->heads;
    for (int64_t h = -1; h < H; h++) {
        const double front = h < 0 ? analysis_mean(s->front, H, 1, 0) : s->front[h];
        fprintf(f, "%d\t%lld\t-1\t-1\t%.9g\t0\t%.9g\n", block, (long long)h, front, front);
        for (int64_t i = 0; i < N; i++) {
            const double direct = h < 0 ? analysis_mean(s->direct, H, N, i) : s->direct[h * N + i];
            const double through =
                h < 0 ? analysis_mean(s->through, H, N, i) : s->through[h * N + i];
            fprintf(f, "%d\t%lld\t%lld\t%lld\t%.9g\t%.9g\t%.9g\n", block, (long long)h,
                    (long long)(i / s->cols), (long long)(i % s->cols), direct, through,
                    direct + through);
        }
    }
}

static bool report(analysis *a, const block_spans *s)
{
    tsv t;
    if (!tsv_begin(&t, a, "block\thead\trow\tcol\tdirect\tthrough\ttotal")) return false;
    for (int b = 0; b < s->blocks; b++)
        if (s->of[b].direct) print_span(t.f, b, &s->of[b]);
    return tsv_end(&t, a, "span.tsv") && span_picture(a, s);
}

bool span_draw(analysis *a)
{
    static block_spans found;
    spans s = { .a = a, .found = &found };
    bool done = analysis_run_one(a, see, &s);
    if (done && s.failed)
        done = analysis_fail(a, "span: out of memory, or a kind of window that has no map");
    if (done && found.blocks == 0)
        done = analysis_none(a, "span", "attention over windows or the whole map");
    if (done && found.blocks > 0) done = report(a, &found);
    for (int b = 0; b < DEPTH_MAX; b++) span_free(&found.of[b]);
    host_array *const used[] = { &s.in.q,     &s.in.k,           &s.in.low_k,
                                 &s.in.table, &s.in.global_bias, &s.in.scores };
    for (int i = 0; i < 6; i++) host_free(used[i]);
    return done;
}
