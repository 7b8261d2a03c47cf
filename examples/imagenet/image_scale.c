/* image_scale.c - `imagenet scale`: time and memory of one attention by the side of its map, for
 * windows, edges and full attention (Zhang et al. 2021, Figures 5 to 7 and section 3.2).
 *
 * Queries, keys and values are parameters [B,g+N,C], so that backward has three gradients; nothing
 * else of a block is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costs/costs.h"
#include "image_commands.h"
#include "reports/lists.h"

#define EDGES "exact|mask|cyclic"
enum { WINDOWS = 7, EDGE_KINDS = 3, ATTENTIONS = 1 + WINDOWS * EDGE_KINDS };

/* ---- one attention ---- */

typedef struct world {
    bool full;
    tp_window_attn_cfg window; /* heads, map and global tokens of full attention, too */
    int64_t batch, dim;
    tp_tensor q, k, v;
} world;

static bool build(void *of, cost_world *w, char *why, size_t size)
{
    static const tp_init normal = { TP_INIT_NORMAL, 1, 0 };
    world *a = of;
    const int64_t rows = a->window.global + a->window.height * a->window.width;
    const tp_shape s = TP_SHAPE(a->batch, rows, a->dim);
    (void)why;
    (void)size;
    a->q = tp_param(w->P, "q", s, normal, 0);
    a->k = tp_param(w->P, "k", s, normal, 0);
    a->v = tp_param(w->P, "v", s, normal, 0);
    return tp_params_ok(w->P);
}

static tp_tensor take(void *of, cost_world *w)
{
    const world *a = of;
    tp_tape *T = w->T;
    const int64_t g = a->window.global;
    const tp_attn_cfg all = { .heads = a->window.heads };
    const tp_dtype dtype = tp_compute_dtype(T);
    const tp_tensor q = tp_cast(T, a->q, dtype), k = tp_cast(T, a->k, dtype);
    const tp_tensor v = tp_cast(T, a->v, dtype);
    if (a->full) return tp_sum(T, tp_attention(T, q, k, v, TP_NONE, TP_NONE, all), TP_ALL);
    const tp_window_in in = { .q = q, .k = k, .v = v };
    const tp_tensor local = tp_sum(T, tp_window_attention_2d(T, in, a->window), TP_ALL);
    if (g == 0) return local;
    const tp_tensor first = tp_slice(T, q, 1, 0, g); /* they attend to the whole map */
    return tp_add(T, local, tp_sum(T, tp_attention(T, first, k, v, TP_NONE, TP_NONE, all), TP_ALL));
}

static void drop(void *of, cost_world *w)
{
    (void)of;
    (void)w;
}

/* ---- the command ---- */

typedef struct scale_settings {
    tp_machine_settings machine;
    cost_settings cost;
    char *attentions, *maps, *windows, *edges;
    int64_t dim, heads, global, batch;
} scale_settings;

#define S scale_settings

static const tp_option options[] = {
    TP_HEADING("ATTENTIONS"),
    TP_STRING("attentions", S, attentions, "LIST", 0,
              "Of full and chunks: each token sees the whole map, or those near its chunk."),
    TP_STRING("maps", S, maps, "LIST", 0, "Tokens on a side of the map, separated by commas."),
    TP_STRING("windows", S, windows, "LIST", 0,
              "chunks: sides of windows, odd numbers: a window of 15 has chunks of 7 x 7 tokens, "
              "which see 7 tokens to each side."),
    TP_STRING("edges", S, edges, "LIST", 0,
              "chunks: what a token sees. mask: its chunk and the eight around it, as far as the "
              "map goes. exact: of these only its own window. cyclic: chunks wrap around the map's "
              "edges."),
    TP_INT("dim", S, dim, 1, 65536, 0, "Width of the tokens."),
    TP_INT("heads", S, heads, 1, 1024, 0, "Attention heads."),
    TP_INT("global", S, global, 0, 1024, 0,
           "Global tokens, which attend to the map and to which it attends."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Maps of a batch."),
    OPTIONS_COSTS(S, cost),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "imagenet scale",
    .summary = "measures time and memory of an attention by the size of its map",
    .synopsis = "[--attentions LIST] [--maps LIST] [--windows LIST] [--edges LIST] [flag ...]",
    .about =
        "Runs one attention of Vision Longformer on noise, forward and backward (a step) or only "
        "forward, and prints the median time and the peak memory, inputs and gradients included: "
        "Figures 5 to 7 of its paper. The memory is counted on a device that does not compute, "
        "exactly and also where a step would take too long. Models: imagenet analyze --what "
        "resolution.",
    .table = options,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    imagenet scale --picture maps.png\n"
            "    imagenet scale --attentions chunks --edges exact,mask,cyclic --picture edges.png\n"
            "    imagenet scale --attentions chunks --windows 9,15,21 --picture windows.png\n"
            "    imagenet scale --maps 40 --dim 768 --heads 12\n",
};

/* What a series measures. */
typedef struct attention {
    bool full;
    int64_t window; /* its side */
    tp_edge edge;
} attention;

static const char *edge_name(tp_edge edge)
{
    return edge == TP_EDGE_EXACT ? "exact" : edge == TP_EDGE_MASK ? "mask" : "cyclic";
}

static bool print(const scale_settings *s, const attention *a, const cost_series *y, char *why,
                  size_t size)
{
    const int64_t side = (int64_t)y->x[y->n - 1];
    char left[160];
    json_t *key =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:I}", "attention", a->full ? "full" : "chunks", "map",
                  (json_int_t)side, "dim", (json_int_t)s->dim, "batch", (json_int_t)s->batch,
                  "heads", (json_int_t)s->heads, "global", (json_int_t)s->global);
    if (key && !a->full &&
        (json_object_set_new(key, "window", json_integer(a->window)) != 0 ||
         json_object_set_new(key, "edge", json_string(edge_name(a->edge))) != 0)) {
        json_decref(key);
        key = NULL;
    }
    snprintf(left, sizeof left, "%-18.60s %5lld", y->name, (long long)side);
    return cost_print(y, &s->cost, left, key, why, size);
}

static bool measure(const scale_settings *s, const attention *a, cost_series *y,
                    const number_list *map, char *why, size_t size)
{
    const int64_t f = a->window / 2;
    for (int k = 0; k < map->n && !tp_stop_signal(); k++) {
        world w = { .full = a->full,
                    .window = { .heads = (int)s->heads,
                                .height = map->at[k],
                                .width = map->at[k],
                                .global = s->global,
                                .window = { f, f },
                                .halo = { f, f },
                                .edge = a->edge },
                    .batch = s->batch,
                    .dim = s->dim };
        const cost_step step = { &w, build, take, drop, .warm = 1 };
        if (!cost_measure(y, (double)map->at[k], &step, &s->machine, &s->cost, why, size))
            return false;
        if (!tp_stop_signal() && !print(s, a, y, why, size)) return false;
    }
    return true;
}

static bool draw(const scale_settings *s, const cost_series *y, int n, char *why, size_t size)
{
    char note[300];
    snprintf(note, sizeof note,
             "One attention on noise, %s: width %lld, heads %lld, global tokens %lld, batch of "
             "%lld.",
             s->machine.device, (long long)s->dim, (long long)s->heads, (long long)s->global,
             (long long)s->batch);
    return cost_draw(y, n, &s->cost,
                     (cost_picture){ "the side of the map", note, "side of the map, tokens" }, why,
                     size);
}

/* The attentions of the flags; returns how many, 0 with the reason in why. */
static int choose(const scale_settings *s, attention a[ATTENTIONS], char *why, size_t size)
{
    static const tp_edge edges[] = { TP_EDGE_EXACT, TP_EDGE_MASK, TP_EDGE_CYCLIC };
    choice_list kind = { .words = "full|chunks" }, edge = { .words = EDGES };
    number_list window = { 3, 999, .room = WINDOWS };
    int n = 0;
    if (!list_choices(&kind, "attentions", s->attentions, why, size) ||
        !list_numbers(&window, "windows", s->windows, why, size) ||
        !list_choices(&edge, "edges", s->edges, why, size))
        return 0;
    for (int i = 0; i < window.n; i++)
        if (window.at[i] % 2 == 0) {
            snprintf(why, size, "--windows: %lld is even; a window has a token in its middle",
                     (long long)window.at[i]);
            return 0;
        }
    for (int i = 0; i < kind.n; i++) {
        if (kind.at[i] == 0) a[n++] = (attention){ .full = true };
        for (int w = 0; w < window.n && kind.at[i] == 1; w++)
            for (int e = 0; e < edge.n; e++)
                a[n++] = (attention){ .window = window.at[w], .edge = edges[edge.at[e]] };
    }
    return n;
}

static bool run(void *settings, char *why, size_t size)
{
    const scale_settings *s = settings;
    static cost_series y[ATTENTIONS];
    attention a[ATTENTIONS];
    number_list map = { 1, 4096, .room = COST_SIZES };
    const int n = choose(s, a, why, size);
    if (n == 0 || !list_numbers(&map, "maps", s->maps, why, size)) return false;
    if (s->dim % s->heads != 0) {
        snprintf(why, size, "--dim %lld is not a multiple of --heads %lld", (long long)s->dim,
                 (long long)s->heads);
        return false;
    }
    tp_catch_signals();
    cost_print_heading(&s->cost, "attention            map");
    for (int i = 0; i < n; i++) {
        y[i].power = 4; /* of the side of the map, whose square is the number of tokens */
        if (a[i].full)
            snprintf(y[i].name, sizeof y[i].name, "full");
        else
            snprintf(y[i].name, sizeof y[i].name, "window %lld, %s", (long long)a[i].window,
                     edge_name(a[i].edge));
        if (!measure(s, &a[i], &y[i], &map, why, size)) return false;
    }
    return !s->cost.picture || tp_stop_signal() || draw(s, y, n, why, size);
}

int image_scale_main(int argc, char **argv)
{
    scale_settings s = {
        .machine = { .device = strdup("cpu") },
        .cost = COST_DEFAULTS,
        .attentions = strdup("full,chunks"),
        .maps = strdup("14,28,56,112"),
        .windows = strdup("15"),
        .edges = strdup("mask"),
        .dim = 96,
        .heads = 3,
        .global = 1,
        .batch = 1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
