/* train_collect.c - bytes of all processes of a run, such as the detections of a validation. */
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

/* Places the processes' bytes, of sizes n [ranks], one after another in `all`. They travel in
 * pieces, so that a transport's messages stay short. */
static bool collect(tp_trainer *r, const char *mine, const uint64_t *n, char *all)
{
    enum { PIECE = 1 << 20 };
    const int ranks = r->run.ranks, rank = r->run.rank;
    uint64_t most = 0;
    char *piece = malloc((size_t)(ranks + 1) * PIECE), *own = piece ? piece + ranks * PIECE : NULL;
    for (int k = 0; k < ranks; k++) most = n[k] > most ? n[k] : most;
    bool done = tp__run_everywhere(r, piece && all) && piece;
    for (uint64_t at = 0; done && at < most; at += PIECE) {
        const size_t size = most - at < PIECE ? (size_t)(most - at) : PIECE;
        memset(own, 0, size);
        if (at < n[rank]) memcpy(own, mine + at, n[rank] - at < size ? n[rank] - at : size);
        done = tp_peers_gather(r->peers, own, size, piece);
        char *to = all;
        for (int k = 0; done && k < ranks; to += n[k++])
            if (at < n[k])
                memcpy(to + at, piece + (size_t)k * size, n[k] - at < size ? n[k] - at : size);
    }
    free(piece);
    return done;
}

bool tp_run_collect(tp_run *R, const void *mine, size_t n, void **all, size_t *bytes)
{
    tp_trainer *r = R ? tp__run_of(R) : NULL;
    if (!all || !bytes) return false;
    *all = NULL;
    *bytes = n;
    if (!r) return false;
    const bool joined = tp__run_together(r);
    if (!joined && r->parted) return false;
    const int ranks = joined ? r->run.ranks : 1;
    const uint64_t own = n;
    uint64_t *sizes = calloc((size_t)ranks, sizeof *sizes);
    bool done = (!joined || tp__run_everywhere(r, sizes != NULL)) && sizes;
    if (done && joined) done = tp_peers_gather(r->peers, &own, sizeof own, sizes);
    for (int k = 0, first = 1; done && joined && k < ranks; k++, first = 0)
        *bytes = (first ? 0 : *bytes) + (size_t)sizes[k];
    if (done) *all = malloc(*bytes + 1);
    if (done && !joined && *all && n > 0) memcpy(*all, mine, n);
    done = done && (joined ? collect(r, mine, sizes, *all) : *all != NULL);
    free(sizes);
    if (done) return true;
    free(*all);
    *all = NULL;
    if (r->peers && !tp_peers_ok(r->peers)) return tp__run_fail(r, "%s", tp_peers_why(r->peers));
    return tp__run_fail(r, "out of memory for what the processes collect");
}
