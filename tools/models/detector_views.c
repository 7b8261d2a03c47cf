/* detector_views.c - prints detectors: the list next to the figures of ViL's paper, the parameters
 * of one, its layers.
 *
 * Like the published figures, these are for one image of 800 x 1333 pixels, padded to 800 x 1344,
 * and 80 categories. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/options.h>

#include "model_views.h"

enum { HEIGHT = 800, WIDTH = 1344, CATEGORIES = 80 };

bool detector_chosen(tp_detector_cfg *c, const char *name, const char *set, char *why, size_t size)
{
    char reason[512];
    if (!tp_detector_preset(c, name, CATEGORIES, TP_DETECTRON2, why, size)) return false;
    if (!set || tp_detector_change(c, set, NULL, reason, sizeof reason)) return true;
    snprintf(why, size, "--set: %s", reason);
    return false;
}

typedef struct facts {
    tp_detector_cfg cfg;
    tp_detector_plan plan;
    int64_t params;
    double macs, paper;
} facts;

/* memory: the plan has it, too. */
static bool facts_of(facts *f, const char *name, const char *set, bool memory, char *why,
                     size_t size)
{
    const tp_detector_plan_opts o = { .size = { HEIGHT, WIDTH }, .batch = memory };
    *f = (facts){ 0 };
    if (!detector_chosen(&f->cfg, name, set, why, size) ||
        !tp_detector_planned(&f->plan, &f->cfg, &o, why, size))
        return false;
    for (int k = 0; k < TP_DETECTOR_PARTS; k++) {
        f->params += (int64_t)f->plan.params[k];
        f->macs += f->plan.macs[k];
        f->paper += f->plan.paper[k];
    }
    return true;
}

/* The row of that name, or one without figures. */
static tp_detector_row row_of(const char *name)
{
    tp_detector_row row;
    for (int i = 0; tp_detector_at(i, &row); i++)
        if (strcmp(row.name, name) == 0) return row;
    return (tp_detector_row){ 0 };
}

bool is_detector(const char *name)
{
    return tp_detector_kind_of(name) != NULL;
}

/* ---- the list ---- */

static double mib(int64_t bytes)
{
    return (double)bytes / 1048576.0;
}

static void print_row(const tp_detector_row *row, const facts *f, bool memory)
{
    printf("%-37s %-21s %12lld", row->name, "800 x 1344", (long long)f->params);
    print_paper(row->params, 1, 1);
    printf(" %9.2f", f->paper / 1e9);
    print_paper(row->macs, 1, 1);
    printf(" %9.2f", f->macs / 1e9);
    if (memory) printf(" %9.1f %9.1f", mib(f->plan.detect_bytes), mib(f->plan.train_bytes));
    printf("\n");
}

static json_t *row_json(const tp_detector_row *row, const facts *f, bool memory)
{
    json_t *j =
        json_pack("{s:s, s:s, s:[ii], s:I, s:o, s:f, s:o, s:f}", "name", row->name, "family",
                  f->cfg.kind->title, "input", HEIGHT, WIDTH, "parameters", (json_int_t)f->params,
                  "paper_parameters", real_or_null(row->params * 1e6), "flops", f->paper,
                  "paper_flops", real_or_null(row->macs * 1e9), "macs", f->macs);
    if (!memory) return j;
    json_object_set_new(j, "detection_bytes", json_integer(f->plan.detect_bytes));
    json_object_set_new(j, "training_bytes", json_integer(f->plan.train_bytes));
    return j;
}

static void print_head(bool memory)
{
    printf("%-37s %-21s %12s %9s %9s %9s %9s", "detector", "input", "params", "paper, M", "GFLOPs",
           "paper", "GMACs");
    printf(memory ? " %9s %9s\n" : "\n", "detect", "train");
}

int detector_list(const list_opts *o, bool after, json_t *json, int *status)
{
    int n = 0;
    tp_detector_row row;
    for (int i = 0; tp_detector_at(i, &row); i++) {
        facts f;
        char why[1024];
        if (!is_listed(o, row.name, NULL, row.kind->title)) continue;
        if (n == 0 && after && !o->json) printf("\n");
        if (n++ == 0 && !o->json) print_head(o->memory);
        if (!facts_of(&f, row.name, NULL, o->memory, why, sizeof why)) {
            fprintf(stderr, "tp-models: %s: %s\n", row.name, why);
            *status = 1;
        } else if (o->json) {
            json_array_append_new(json, row_json(&row, &f, o->memory));
        } else {
            print_row(&row, &f, o->memory);
        }
    }
    return n;
}

/* ---- parameters ---- */

int detector_params(const char *name, const char *set)
{
    char why[1024];
    tp_detector_cfg c;
    tp_detector m;
    if (!detector_chosen(&c, name, set, why, sizeof why)) {
        tp_command_complain("tp-models", why);
        return 1;
    }
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_detector_init(P, &m, "", &c);
    print_params(P);
    tp_params_free(P);
    tp_device_close(D);
    return 0;
}

/* ---- a summary ---- */

typedef struct subject {
    tp_detector_cfg cfg;
    tp_detector m;
} subject;

static void declare(void *env, tp_params *P)
{
    subject *u = env;
    tp_detector_init(P, &u->m, "", &u->cfg);
}

/* Detection in one image. A dry device reads zeros, so nothing is found, and no masks are
 * computed. */
static tp_shape run_once(void *env, tp_tape *T)
{
    const subject *u = env;
    const int64_t size[1][2] = { { HEIGHT, WIDTH } };
    const tp_shape s = TP_SHAPE(1, HEIGHT, WIDTH, 3);
    const tp_detection_in in = { .images = tp_full(T, TP_F32, s, 0.0), .size = size };
    tp_detected found = { 0 };
    tp_detector_detect(T, &u->m, &in, &found);
    tp_detected_free(&found);
    return s;
}

static void print_totals(const model_tree *t, const facts *f, const tp_detector_row *row)
{
    char a[64];
    printf("input        %s, one image of 800 x 1333, padded; %d categories\n",
           shape_text(&t->input, a, sizeof a), CATEGORIES);
    printf("parameters   %s, %.1f MiB in f32", grouped_text(f->params, a, sizeof a),
           (double)f->params / 262144.0);
    if (row->params > 0) printf("; the paper prints %g M", row->params);
    if (t->frozen) printf("; %s are not trained", grouped_text(t->frozen, a, sizeof a));
    if (t->buffers) printf("; %s elements of buffers", grouped_text(t->buffers, a, sizeof a));
    printf("\nmult-adds    %s%s", scaled_text(t->at[0].macs, a, sizeof a),
           tp_detector_has_masks(&f->cfg) ? ", without masks" : "");
    printf("\nFLOPs        %s by the paper's count", scaled_text(f->paper, a, sizeof a));
    if (row->macs > 0) printf("; the paper prints %g G", row->macs);
    printf("\nmemory       %.1f MiB for detection, %.1f for a training step with AdamW; one image, "
           "f32\n",
           mib(f->plan.detect_bytes), mib(f->plan.train_bytes));
}

static int print_summary(const model_tree *t, const facts *f, const summary_opts *o)
{
    char title[200];
    snprintf(title, sizeof title, "%s: %s, 800 x 1344", o->name, f->cfg.kind->title);
    if (!tree_page_print(t, title, o->depth, o->fold)) return 1;
    const tp_detector_row row = o->set ? (tp_detector_row){ 0 } : row_of(o->name);
    print_totals(t, f, &row);
    return 0;
}

static int summary_json(const model_tree *t, const facts *f, int depth)
{
    json_t *j = layer_json(t, 0, depth);
    json_object_set_new(j, "family", json_string(f->cfg.kind->title));
    json_object_set_new(j, "input", shape_json(&t->input));
    json_object_set_new(j, "buffers", json_integer(t->buffers));
    json_object_set_new(j, "frozen", json_integer(t->frozen));
    json_object_set_new(j, "flops", json_real(f->paper));
    json_object_set_new(j, "detection_bytes", json_integer(f->plan.detect_bytes));
    json_object_set_new(j, "training_bytes", json_integer(f->plan.train_bytes));
    return print_json(j);
}

int detector_summary(const summary_opts *o)
{
    facts f;
    model_tree t = { 0 };
    char why[1024];
    int status = 1;
    bool done = facts_of(&f, o->name, o->set, true, why, sizeof why);
    if (done) {
        subject u = { .cfg = f.cfg };
        tp_detector_limit(&u.cfg, 1.0, 1);
        const tree_source s = {
            .name = o->name, .env = &u, .runs = 1, .declare = declare, .run = run_once
        };
        done = model_tree_build(&t, &s, why, sizeof why);
    }
    if (done)
        status = o->json ? summary_json(&t, &f, o->depth) : print_summary(&t, &f, o);
    else
        tp_command_complain("tp-models", why);
    model_tree_free(&t);
    return status;
}
