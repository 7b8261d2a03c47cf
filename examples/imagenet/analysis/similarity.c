/* similarity.c - the similarity of an image's tokens by depth (Zhu et al. 2021, Figure 6): after
 * each block, the mean cosine of all ordered pairs of map tokens, without class and global tokens,
 * averaged over images. */
#include <stdlib.h>

#include "analyze.h"

typedef struct sums {
    analysis *a;
    depth *d;
} sums;

/* y [B,N,D] or [B,H,W,D], the result of block i. */
static void add_block(sums *s, tp_tape *T, tp_tensor y, int64_t i)
{
    host_array h = { 0 };
    const int64_t D = tp_dim(y, -1), B = tp_dim(y, 0), front = analysis_front(&s->a->f.cfg, i);
    const int64_t all = D * B > 0 ? tp_numel(y) / (B * D) : 0, N = all - front;
    double *work = malloc((size_t)(D + 1) * sizeof *work);
    if (!work) tp_raise(T, TP_E_MEMORY, "out of host memory");
    if (work && host_read(&h, T, y))
        for (int64_t b = 0; b < B; b++)
            s->d->cosine[i] += mean_cosine(h.v + (b * all + front) * D, N, D, work);
    s->d->tokens[i] = N;
    s->d->number[i] = (double)i;
    s->d->blocks = i + 1;
    host_free(&h);
    free(work);
}

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    sums *s = env;
    if (analysis_ends_block(seen)) add_block(s, T, seen->y[0], s->a->at);
}

bool similarity_measure(analysis *a, depth *d)
{
    sums s = { a, d };
    *d = (depth){ 0 };
    if (!analysis_run(a, see, &s)) return false;
    for (int64_t i = 0; i < d->blocks; i++) d->cosine[i] /= (double)a->n;
    return true;
}

bool similarity_write(analysis *a, const depth *d)
{
    tsv t;
    if (!tsv_begin(&t, a, "block\ttokens\tcosine")) return false;
    for (int64_t i = 0; i < d->blocks; i++)
        fprintf(t.f, "%lld\t%lld\t%.9g\n", (long long)i, (long long)d->tokens[i], d->cosine[i]);
    return tsv_end(&t, a, "similarity.tsv");
}
