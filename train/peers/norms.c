/* norms.c - statistics of batch norms over all processes. */
#include "tensor/backend.h"
#include "train/peers/inner.h"

static bool gather(void *env, const void *mine, size_t n, void *all)
{
    return tp_peers_gather(env, mine, n, all);
}

void tp_peers_batch_norm(tp_peers *G, tp_device *D)
{
    if (D) D->together = (tp_together){ tp_peers_count(G), G, gather };
}
