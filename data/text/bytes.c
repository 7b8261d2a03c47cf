/* bytes.c - batches of contiguous streams from one long sequence of token ids.
 *
 *     ids        | block 0 | block 1 | ... | block nb-1 |    blocks of M tokens, the last shorter
 *     stream b   blocks b*k .. b*k + k-1, k = nb / B         the remainder is dropped
 *     step s     block s mod k of every stream, [B,M]
 *
 * The target of a token is the next token. In the official code the last token of a block has none;
 * with all_targets it is the first token of the next block. The last block is padded with <pad>,
 * which is never a target. */
#include <stdio.h>
#include <stdlib.h>

#include <tapegrad/data.h>

enum { PAD = 1, NOT_COUNTED = -1, WHY = 1200 };

struct tp_bytes {
    const int16_t *ids;
    int64_t length, batch, tokens, blocks; /* blocks: of each stream */
    int64_t position;
    int32_t pad; /* the token after the last one; txl has no <pad>, and perhaps a single symbol */
    bool all_targets;
    int32_t *x, *y; /* [B,M], for tp_bytes_next */
    char why[WHY];
};

static tp_bytes no_memory = { .why = "batches: out of memory" };

static void check(tp_bytes *S, const tp_text *X, tp_part part)
{
    static const char *const split[] = { "training", "validation", "test" };
    const long long n = S->length, B = S->batch, M = S->tokens;
    if (!tp_text_ok(X))
        snprintf(S->why, WHY, "%s", tp_text_why(X));
    else if (B < 1 || M < 1 || B > INT32_MAX / M)
        snprintf(S->why, WHY, "batches: %lld streams of %lld tokens are out of range", B, M);
    else if (n < 2 || (n - 1) / M + 1 < B)
        snprintf(S->why, WHY,
                 "batches: the %s text has %lld tokens, too few for %lld streams of %lld: give a "
                 "longer text, fewer streams or shorter segments",
                 split[part], n, B, M);
}

tp_bytes *tp_bytes_new(const tp_text *X, tp_part part, const tp_bytes_opts *o)
{
    if (!X) return NULL;
    tp_bytes *S = calloc(1, sizeof *S);
    if (!S) return &no_memory;
    S->ids = tp_text_ids(X, part, &S->length);
    S->batch = o->batch;
    S->tokens = o->tokens;
    S->all_targets = o->all_targets;
    check(S, X, part);
    S->pad = tp_text_ok(X) && tp_text_vocab(X)->size > PAD ? PAD : 0;
    if (S->why[0]) return S;
    S->blocks = ((S->length - 1) / S->tokens + 1) / S->batch;
    const size_t cells = (size_t)(S->batch * S->tokens);
    S->x = malloc(cells * sizeof *S->x);
    S->y = malloc(cells * sizeof *S->y);
    if (!S->x || !S->y)
        snprintf(S->why, WHY, "batches: out of memory for %lld streams of %lld tokens",
                 (long long)S->batch, (long long)S->tokens);
    return S;
}

void tp_bytes_free(tp_bytes *S)
{
    if (!S || S == &no_memory) return;
    free(S->x);
    free(S->y);
    free(S);
}

bool tp_bytes_ok(const tp_bytes *S)
{
    if (!S) return false;
    return !S->why[0];
}
const char *tp_bytes_why(const tp_bytes *S)
{
    if (!S) return "bytes: NULL was given in place of a reader";
    return S->why;
}
int64_t tp_bytes_steps(const tp_bytes *S)
{
    if (!S) return 0;
    return S->blocks;
}
int64_t tp_bytes_position(const tp_bytes *S)
{
    if (!S) return 0;
    return S->position;
}

void tp_bytes_seek(tp_bytes *S, int64_t position)
{
    if (!S) return;
    const int64_t most = INT64_C(1) << 60; /* positions must not overflow 64 bits */
    if (S == &no_memory) return;
    S->position = position < 0 ? 0 : position > most ? most : position;
}

bool tp_bytes_next_host(tp_bytes *S, int32_t *x, int32_t *y)
{
    if (!S) return false;
    if (!tp_bytes_ok(S)) return false;
    const int64_t M = S->tokens, step = S->position++ % S->blocks;
    for (int64_t b = 0; b < S->batch; b++) {
        const int64_t first = (b * S->blocks + step) * M;
        for (int64_t t = 0; t < M; t++, x++, y++) {
            const int64_t at = first + t;
            const bool target = at + 1 < S->length && (S->all_targets || t + 1 < M);
            *x = at < S->length ? S->ids[at] : S->pad;
            *y = target ? S->ids[at + 1] : NOT_COUNTED;
        }
    }
    return true;
}

void tp_bytes_next(tp_bytes *S, tp_tape *T, tp_tensor *x, tp_tensor *y)
{
    if (!S) {
        tp_raise_here(T, TP_E_STATE, "bytes_next: NULL was given in place of a text");
        return;
    }
    if (!tp_bytes_ok(S)) {
        *x = *y = tp_raise(T, TP_E_VALUE, "%s", S->why);
        return;
    }
    tp_bytes_next_host(S, S->x, S->y);
    *x = tp_from(T, TP_I32, TP_SHAPE(S->batch, S->tokens), S->x);
    *y = tp_from(T, TP_I32, TP_SHAPE(S->batch, S->tokens), S->y);
}
