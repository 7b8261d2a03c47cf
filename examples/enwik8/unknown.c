/* unknown.c - see the header. */
#include "unknown.h"

#include <math.h>
#include <stdio.h>

enum { NONE = -2 /* not the -1 of positions without a target */, BITS_DROPPED = 8 };

unknown_bytes unknown_of(const tp_text *X, tp_part part)
{
    const tp_vocab *v = tp_text_vocab(X);
    unknown_bytes u = { .id = NONE };
    int64_t tokens;
    tp_text_ids(X, part, &tokens);
    for (int b = 0; b < 256; b++) {
        if (tp_vocab_knows(v, (uint8_t)b)) continue;
        u.bytes++;
        if (v->id[b] >= 0) u.id = v->id[b];
    }
    u.nats = u.bytes ? log(u.bytes) : 0;
    if (u.id == NONE && tokens > 0) u.share = (double)tp_text_unknown(X, part) / (double)tokens;
    return u;
}

int64_t unknown_in(const unknown_bytes *u, const int32_t *tokens, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += tokens[i] == u->id;
    return count;
}

double unknown_bpc(const unknown_bytes *u, double nats, int64_t tokens, int64_t unknown)
{
    const double dropped = u->share * (double)tokens, all = (double)tokens + dropped;
    return (nats + (double)unknown * u->nats) / all / log(2.0) + BITS_DROPPED * dropped / all;
}

void unknown_say(const unknown_bytes *u, int64_t count, const char *what, char *buf, size_t size)
{
    if (u->id == NONE)
        snprintf(
            buf, size,
            "%lld bytes of %s are not in the model's dictionary, which drops them; each counts "
            "%d bits",
            (long long)count, what, BITS_DROPPED);
    else
        snprintf(
            buf, size,
            "%lld bytes of %s are not in the model's dictionary; beside the bits of <unk> each "
            "counts %.2f for which of %d bytes it is",
            (long long)count, what, u->nats / log(2.0), u->bytes);
}
