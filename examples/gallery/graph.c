/* graph.c - a graph network tells apart three ways in which graphs grow. */
#include <stdio.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { NODES = 24, EDGES = 2 * NODES, KINDS = 3, BATCH = 64, TESTS = 1000, WIDTH = 32, LAYERS = 3 };

/* ---- graphs ---- */

/* Graphs of equally many nodes and edges, side by side as one: edge e joins from[e] and to[e], in
 * both directions; node n belongs to graph of[n]. */
typedef struct graphs {
    int n;
    int32_t from[2 * TESTS * EDGES], to[2 * TESTS * EDGES], of[TESTS * NODES], kind[TESTS];
} graphs;

/* The two ends of edge k of a graph. Kind 0: any two nodes. Kind 1: a ring whose nodes also know
 * the next but one, with a tenth of the ends moved. Kind 2: each node in turn joins the ends of
 * earlier edges, so that nodes with many edges get more. */
static void draw_edge(int kind, int k, const int32_t *earlier, int32_t end[2], tp_random *r)
{
    end[0] = kind == 0 ? (int32_t)tp_random_below(r, NODES) : k / 2;
    end[1] = (int32_t)tp_random_below(r, NODES);
    if (kind == 1 && tp_random_uniform(r) > 0.1) end[1] = (k / 2 + 1 + k % 2) % NODES;
    if (kind == 2 && k > 0) end[1] = earlier[tp_random_below(r, 2 * k)];
}

static void draw_graphs(graphs *g, int n, tp_random *r)
{
    g->n = n;
    for (int i = 0; i < n; i++) {
        int32_t ends[2 * EDGES];
        g->kind[i] = (int32_t)tp_random_below(r, KINDS);
        for (int k = 0; k < NODES; k++) g->of[i * NODES + k] = i;
        for (int k = 0; k < EDGES; k++) {
            const int e = 2 * (i * EDGES + k);
            draw_edge(g->kind[i], k, ends, ends + 2 * k, r);
            g->from[e] = g->to[e + 1] = i * NODES + ends[2 * k];
            g->to[e] = g->from[e + 1] = i * NODES + ends[2 * k + 1];
        }
    }
}

/* ---- the model ---- */

typedef struct net {
    const char *path;
    tp_tensor start; /* [1,WIDTH]: all that a node knows at first */
    tp_linear_m own[LAYERS], others[LAYERS], out;
} net;

static void net_init(tp_params *P, net *m)
{
    static const char *const name[LAYERS] = { "layers.0", "layers.1", "layers.2" };
    m->path = tp_push(P, "net");
    m->start = tp_param(P, "start", TP_SHAPE(1, WIDTH), (tp_init){ TP_INIT_NORMAL, 1.0, 0.0 }, 0);
    for (int i = 0; i < LAYERS; i++) {
        tp_push(P, name[i]);
        tp_linear_init(P, &m->own[i], "own", WIDTH, WIDTH, true);
        tp_linear_init(P, &m->others[i], "others", WIDTH, WIDTH, false);
        tp_pop(P);
    }
    tp_linear_init(P, &m->out, "out", WIDTH, KINDS, true);
    tp_pop(P);
}

/* The rows of x [n,C] summed by their group [n] -> [groups,C] */
static tp_tensor sum_by(tp_tape *T, tp_tensor x, tp_tensor group, int64_t groups)
{
    const tp_tensor zero = tp_full(T, tp_dtype_of(x), TP_SHAPE(groups, tp_dim(x, -1)), 0);
    return tp_index_add(T, zero, 0, group, x);
}

/* In each layer a node sums what its neighbours say: -> logits [graphs,KINDS] */
static tp_tensor net_forward(tp_tape *T, const net *m, const graphs *g)
{
    const int64_t nodes = (int64_t)g->n * NODES, ends = (int64_t)g->n * EDGES * 2;
    tp_enter(T, m->path);
    const tp_tensor from = tp_from(T, TP_I32, TP_SHAPE(ends), g->from);
    const tp_tensor to = tp_from(T, TP_I32, TP_SHAPE(ends), g->to);
    const tp_tensor of = tp_from(T, TP_I32, TP_SHAPE(nodes), g->of);
    tp_tensor h = tp_expand(T, m->start, TP_SHAPE(nodes, WIDTH));
    for (int i = 0; i < LAYERS; i++) {
        const tp_tensor said = tp_linear_forward(T, &m->others[i], h); /* [nodes,WIDTH] */
        const tp_tensor heard = sum_by(T, tp_index_select(T, said, 0, from), to, nodes);
        h = tp_tanh(T, tp_add(T, tp_linear_forward(T, &m->own[i], h), tp_scale(T, heard, 0.25)));
    }
    return tp_leave(T, tp_linear_forward(T, &m->out, tp_segment_mean(T, h, of, g->n)));
}

/* ---- a run ---- */

static double run(const gallery *g)
{
    static graphs all;
    tp_random r = tp_random_stream(g->seed, "graphs", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        draw_graphs(&all, BATCH, &r);
        tp_reset(T);
        const tp_tensor kinds = tp_from(T, TP_I32, TP_SHAPE(BATCH), all.kind);
        const tp_tensor loss = tp_cross_entropy(T, net_forward(T, &m, &all), kinds, TP_MEAN);
        tp_backward(T, loss);
        tp_step(O, tp_lr_cosine(u, 20, g->steps, 5e-3, 0.0));
        if (gallery_reports(g, u)) printf("loss %.4f\n", tp_item(T, loss));
    }
    tp_train(T, false);
    tp_record(T, false);
    draw_graphs(&all, TESTS, &r);
    tp_reset(T);
    const tp_tensor kinds = tp_from(T, TP_I32, TP_SHAPE(TESTS), all.kind);
    const tp_tensor found = tp_argmax(T, net_forward(T, &m, &all), -1);
    const double right = tp_item(T, tp_mean(T, tp_eq(T, found, kinds), TP_ALL));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return 100.0 * right;
}

static const gallery_program program = {
    .name = "graph",
    .summary = "a graph network tells apart three ways in which graphs grow",
    .about = "Trains a network that passes messages along edges (index_select, index_add) on "
             "graphs of 24 nodes and 48 edges: random ones, rings with shortcuts, and graphs "
             "whose new nodes prefer nodes with many edges. Nodes have no features: what they "
             "learn of themselves comes from their neighbours. The result counts fresh graphs.",
    .steps = 300,
    .result = "graphs recognised",
    .unit = " %",
    .goal = 95.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
