/* loader_order.c - which images the batches of an epoch have. */
#include "loader.h"

static void swap(int64_t *a, int64_t *b)
{
    const int64_t t = *a;
    *a = *b;
    *b = t;
}

/* Entry i is image * repeats + repetition. */
static void make_order(tp_loader *L, int64_t epoch)
{
    const int64_t count = tp_image_set_count(L->X), r = L->o.repeats;
    if (L->order_of == epoch) return;
    for (int64_t i = 0; i < count; i++) L->order[i] = i;
    if (L->o.train) {
        tp_random random = tp_random_stream(L->o.seed, "order", 0, (uint64_t)epoch);
        for (int64_t i = count - 1; i > 0; i--)
            swap(&L->order[i], &L->order[tp_random_below(&random, i + 1)]);
    }
    for (int64_t i = count - 1; r > 1 && i >= 0;
         i--) /* backwards: entries are read before they are overwritten */
        for (int64_t k = r - 1; k >= 0; k--)
            if (i * r + k < count) L->order[i * r + k] = L->order[i] * r + k;
    L->order_of = epoch;
}

bool tp__loader_schedule(tp_loader *L)
{
    const int64_t B = L->o.batch, steps = tp_loader_steps(L);
    if (L->step >= steps) {
        if (!L->o.train) return false;
        L->epoch++;
        L->step = 0;
    }
    tp_loader_slot *s = &L->ring[L->scheduled % L->o.ahead];
    make_order(L, L->epoch);
    s->epoch = L->epoch;
    s->step = L->step;
    s->n = B < L->length - L->step * B ? B : L->length - L->step * B;
    s->given = s->done = 0;
    for (int64_t i = 0; i < s->n; i++) {
        s->place[i] = L->step * B + i;
        s->index[i] = L->order[s->place[i]];
        s->bad[i] = false;
    }
    L->step++;
    L->scheduled++;
    return true;
}
