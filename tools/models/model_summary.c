/* model_summary.c - prints a model's layers as a tree, with shapes, parameters and multiply-adds,
 * and the totals. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>

#include "model_views.h"

/* ---- totals ---- */

static void print_totals(const model_tree *t, const model_facts *f, const tp_model_row *row)
{
    static const char *const samples[] = { "image", "segment after a full cache", "document" };
    char a[64], b[64];
    const bool pair = tp_model_get(&f->cfg).pair;
    printf("input        %s, one %s\n", shape_text(&t->input, a, sizeof a),
           pair ? "pair of documents" : samples[f->cfg.model->input]);
    printf("parameters   %s, %.1f MiB in f32", grouped_text(f->params, a, sizeof a),
           (double)f->params / 262144.0);
    if (row && row->params > 0)
        printf("; the paper prints %s", scaled_text(row->params, b, sizeof b));
    if (t->frozen) printf("; %s are not trained", grouped_text(t->frozen, a, sizeof a));
    if (t->buffers) printf("; %s elements of buffers", grouped_text(t->buffers, a, sizeof a));
    printf("\nmult-adds    %s", scaled_text(t->at[0].macs, a, sizeof a));
    if (f->beyond > 0)
        printf("; %s more with keys beyond the edges, which the official code has",
               scaled_text(f->beyond, b, sizeof b));
    printf("\nFLOPs        %s by the paper's count", scaled_text(f->flops, a, sizeof a));
    if (row && row->flops > 0)
        printf("; the paper prints %s", scaled_text(row->flops, b, sizeof b));
    printf("\nmemory       %.1f MiB a sample for backward, %.1f in bf16, %.1f with --recompute "
           "block\n",
           f->kept / 1048576.0, f->kept_bf16 / 1048576.0, f->kept_by_blocks / 1048576.0);
}

static const char *title_of(const summary_opts *o, const model_facts *f, const tp_model_row *row,
                            char *text, size_t size)
{
    const bool other = row && strcmp(row->name, o->name) != 0;
    snprintf(text, size, "%s%s%s: %s, %s", o->name, other ? " is " : "", other ? row->name : "",
             row ? row->family : f->cfg.model->name, f->input);
    return text;
}

/* ---- JSON ---- */

json_t *layer_json(const model_tree *t, int node, int depth)
{
    const layer *at = &t->at[node];
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(at->name));
    if (at->op && node) json_object_set_new(j, "op", json_string(at->op));
    if (at->ran) json_object_set_new(j, "output", shape_json(&at->output));
    json_object_set_new(j, "parameters", json_integer(at->params));
    json_object_set_new(j, "macs", json_real(at->macs));
    if (at->child < 0 || depth == 0) return j;
    json_t *layers = json_array();
    for (int i = at->child; i >= 0; i = t->at[i].next)
        json_array_append_new(layers, layer_json(t, i, depth - 1));
    json_object_set_new(j, "layers", layers);
    return j;
}

static int summary_json(const model_tree *t, const model_facts *f, const tp_model_row *row,
                        int depth)
{
    json_t *j = layer_json(t, 0, depth);
    json_object_set_new(j, "model", json_string(f->cfg.model->name));
    if (row) json_object_set_new(j, "family", json_string(row->family));
    json_object_set_new(j, "input", shape_json(&t->input));
    json_object_set_new(j, "buffers", json_integer(t->buffers));
    json_object_set_new(j, "frozen", json_integer(t->frozen));
    json_object_set_new(j, "flops", json_real(f->flops));
    json_object_set_new(j, "activation_bytes", json_real(f->kept));
    json_object_set_new(j, "activation_bytes_bf16", json_real(f->kept_bf16));
    json_object_set_new(j, "activation_bytes_recomputed", json_real(f->kept_by_blocks));
    return print_json(j);
}

/* ---- one sample, for the tree ---- */

typedef struct subject {
    const tp_model_cfg *cfg;
    tp_net *N;
    void *state;
} subject;

static void declare(void *env, tp_params *P)
{
    subject *u = env;
    u->N = tp_net_new(P, "", u->cfg);
    u->state = tp_net_state_new(u->N);
}

static tp_shape run_once(void *env, tp_tape *T)
{
    const subject *u = env;
    const tp_dtype dt = u->cfg->model->input == TP_IMAGES ? TP_F32 : TP_I32;
    const tp_shape s = tp_model_input_shape(u->cfg, 1, 0);
    tp_net_forward(T, u->N, u->state, tp_full(T, dt, s, 0.0));
    return s;
}

static void close_subject(void *env, tp_tape *T)
{
    subject *u = env;
    tp_net_state_free(u->N, T, u->state);
    tp_net_free(u->N);
}

/* A model with a cache computes two segments as long as the cache, the second after a full
 * cache. */
static bool build_tree(model_tree *t, const tp_model_cfg *c, const char *name, char *why,
                       size_t size)
{
    subject u = { .cfg = c };
    return model_tree_build(t,
                            &(tree_source){ .name = name,
                                            .env = &u,
                                            .runs = c->model->state_size ? 2 : 1,
                                            .declare = declare,
                                            .run = run_once,
                                            .close = close_subject },
                            why, size);
}

/* ---- all of it ---- */

static int print_summary(const model_tree *t, const model_facts *f, const tp_model_row *row,
                         const summary_opts *o)
{
    char title[400];
    if (!tree_page_print(t, title_of(o, f, row, title, sizeof title), o->depth, o->fold)) return 1;
    print_totals(t, f, row);
    return 0;
}

int model_summary(const summary_opts *o)
{
    if (is_detector(o->name)) return detector_summary(o);
    const tp_model_row *row = o->set ? NULL : tp_model_find(o->name);
    model_facts f;
    model_tree t = { 0 };
    char why[1024];
    int status = 1;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    if (model_facts_of(&f, o->name, o->set, D, why, sizeof why) &&
        build_tree(&t, &f.cfg, row ? row->name : o->name, why, sizeof why))
        status = o->json ? summary_json(&t, &f, row, o->depth) : print_summary(&t, &f, row, o);
    else
        tp_command_complain("tp-models", why);
    model_tree_free(&t);
    tp_device_close(D);
    return status;
}
