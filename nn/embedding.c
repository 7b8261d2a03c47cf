/* embedding.c - a table of rows looked up by id, by default N(0, 1) as in PyTorch. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

void tp_embedding_init(tp_params *P, tp_embedding_m *m, const char *name, int64_t n, int64_t dim)
{
    if (!tp_params_want_module(P, m, "embedding")) return;
    m->path = tp_push(P, name);
    m->weight =
        tp_param(P, "weight", TP_SHAPE(n, dim), (tp_init){ TP_INIT_NORMAL, 1.0, 0.0 }, TP_TABLE);
    tp_pop(P);
}

tp_tensor tp_embedding_forward(tp_tape *T, const tp_embedding_m *m, tp_tensor ids, double scale)
{
    if (!tp_want_module(T, m, "embedding")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp_embedding(T, m->weight, ids, scale));
}
