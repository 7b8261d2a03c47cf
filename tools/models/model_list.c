/* model_list.c - prints the list of models next to the papers' figures, and one model's parameters.
 * Detectors are in detector_views.c. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>

#include "model_views.h"

/* ---- shared ---- */

int print_json(json_t *json)
{
    const int status = json && json_dumpf(json, stdout, JSON_INDENT(2)) == 0 ? 0 : 1;
    printf("\n");
    json_decref(json);
    return status;
}

json_t *shape_json(const tp_shape *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->ndim; i++) json_array_append_new(list, json_integer(s->dim[i]));
    return list;
}

/* ---- facts ---- */

static void describe_input(const tp_model_cfg *c, char *text, size_t size)
{
    const tp_common_cfg o = tp_model_get(c);
    if (c->model->input == TP_IMAGES)
        snprintf(text, size, "%lld x %lld", (long long)o.image[0], (long long)o.image[1]);
    else if (!c->model->carried)
        snprintf(text, size, "%s%lld tokens", o.pair ? "2 x " : "", (long long)o.length);
    else
        snprintf(text, size, "%lld tokens, %s %lld", (long long)o.cache, c->model->carried,
                 (long long)o.cache);
}

static tp_cost cost_of(tp_model_cfg c, tp_recompute recompute)
{
    tp_common_cfg o = tp_model_get(&c);
    o.recompute = recompute;
    tp_model_set(&c, &o);
    return tp_model_cost(&c, 0, 0);
}

bool model_chosen(tp_model_cfg *c, const char *name, const char *set, char *why, size_t size)
{
    char reason[512];
    if (!tp_model_preset(c, name, why, size)) return false;
    if (!set || tp_model_change(c, set, NULL, reason, sizeof reason)) return true;
    snprintf(why, size, "--set: %s", reason);
    return false;
}

bool model_facts_of(model_facts *f, const char *name, const char *set, tp_device *D, char *why,
                    size_t size)
{
    const tp_model_row *row = tp_model_find(name);
    if (!model_chosen(&f->cfg, name, set, why, size)) return false;
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &f->cfg);
    const tp_cost cost = cost_of(f->cfg, TP_RECOMPUTE_NONE);
    describe_input(&f->cfg, f->input, sizeof f->input);
    f->params = tp_params_count(P);
    f->flops = cost.paper + (row ? row->norm_cost : 0.0) * cost.norm + 2.0 * cost.batchnorm;
    f->beyond = cost.beyond;
    f->kept = cost.saved;
    f->kept_by_blocks = cost_of(f->cfg, TP_RECOMPUTE_BLOCK).saved;
    f->kept_bf16 = tp_model_saved_bytes(&f->cfg, 0, 0, TP_BF16);
    const bool done = tp_params_ok(P) && f->kept > 0 && f->kept_by_blocks > 0 && f->kept_bf16 > 0;
    if (!tp_params_ok(P))
        snprintf(why, size, "%s", tp_params_why(P));
    else if (!done)
        snprintf(
            why, size,
            "its costs cannot be counted: its forward pass fails at this size, or memory is out");
    tp_net_free(N);
    tp_params_free(P);
    return done;
}

/* ---- the list ---- */

void print_paper(double x, double unit, int digits)
{
    if (x > 0)
        printf(" %9.*f", digits, x / unit);
    else
        printf(" %9s", "-");
}

static void print_row(const tp_model_row *row, const model_facts *f)
{
    printf("%-34s %-24s %12lld", row->name, f->input, (long long)f->params);
    print_paper(row->params, 1e6, 1);
    printf(" %9.2f", f->flops / 1e9);
    print_paper(row->flops, 1e9, 2);
    printf(" %9.1f %9.1f %9.1f\n", f->kept / 1048576.0, f->kept_bf16 / 1048576.0,
           f->kept_by_blocks / 1048576.0);
}

json_t *real_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *words(const char *text)
{
    json_t *list = json_array();
    for (const char *at = text ? text : ""; *(at += strspn(at, " "));) {
        const size_t n = strcspn(at, " ");
        json_array_append_new(list, json_stringn(at, n));
        at += n;
    }
    return list;
}

static json_t *row_json(const tp_model_row *row, const model_facts *f)
{
    return json_pack(
        "{s:s, s:o, s:s, s:s, s:s, s:I, s:o, s:f, s:o, s:f, s:f, s:f}", "name", row->name, "also",
        words(row->also), "family", row->family, "model", tp_model_of(row)->name, "input", f->input,
        "parameters", (json_int_t)f->params, "paper_parameters", real_or_null(row->params), "flops",
        f->flops, "paper_flops", real_or_null(row->flops), "activation_bytes", f->kept,
        "activation_bytes_bf16", f->kept_bf16, "activation_bytes_recomputed", f->kept_by_blocks);
}

/* True if text contains part, ignoring case. */
static bool has(const char *text, const char *part)
{
    const size_t n = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) i++;
        if (i == n) return true;
    }
    return n == 0;
}

bool is_listed(const list_opts *o, const char *name, const char *also, const char *family)
{
    if (o->prefix && strncmp(name, o->prefix, strlen(o->prefix)) != 0) return false;
    return !o->filter || has(name, o->filter) || has(family, o->filter) ||
           (also && has(also, o->filter));
}

static int list_models(const list_opts *o, json_t *all, int *status)
{
    int n = 0;
    const tp_model_row *row;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (int i = 0; (row = tp_model_at(i)); i++) {
        model_facts f;
        char why[512];
        if (!is_listed(o, row->name, row->also, row->family)) continue;
        if (n++ == 0 && !o->json)
            printf("%-34s %-24s %12s %9s %9s %9s %9s %9s %9s\n", "model", "input", "params",
                   "paper, M", "GFLOPs", "paper", "MiB", "bf16", "recompute");
        if (!model_facts_of(&f, row->name, NULL, D, why, sizeof why)) {
            fprintf(stderr, "tp-models: %s: %s\n", row->name, why);
            *status = 1;
        } else if (o->json) {
            json_array_append_new(all, row_json(row, &f));
        } else {
            print_row(row, &f);
        }
    }
    tp_device_close(D);
    return n;
}

int model_list(const list_opts *o)
{
    int status = 0;
    json_t *all = json_array();
    int n = list_models(o, all, &status);
    n += detector_list(o, n > 0, all, &status);
    if (n == 0) {
        char why[600];
        snprintf(why, sizeof why, "no model's %s '%.400s'; run tp-models to list them all",
                 o->filter ? "name or family contains" : "name begins with",
                 o->filter ? o->filter : o->prefix);
        tp_command_complain("tp-models", why);
        json_decref(all);
        return 1;
    }
    if (o->json) return print_json(all) || status;
    json_decref(all);
    return status;
}

/* ---- one model's parameters ---- */

void print_params(tp_params *P)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        char shape[128];
        printf("%-44s %s", it.name, shape_text(&it.shape, shape, sizeof shape));
        if (it.alias_of) printf(" = %s", it.alias_of);
        if (it.buffer) printf(" buffer %s", tp_dtype_name(it.dtype));
        printf("\n");
    }
    printf("%lld parameters\n", (long long)tp_params_count(P));
}

int model_params(const char *name, const char *set)
{
    char why[1024];
    tp_model_cfg c;
    if (is_detector(name)) return detector_params(name, set);
    if (!model_chosen(&c, name, set, why, sizeof why)) {
        tp_command_complain("tp-models", why);
        return 1;
    }
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &c);
    print_params(P);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return 0;
}

/* ---- one model's members ---- */

static void print_members(const tp_model_member *members, const void *cfg, const char *prefix)
{
    char key[128], value[512], type[256];
    for (const tp_model_member *m = members; m->kind != TP_MEMBER_END; m++) {
        /* a backbone has no classes, and nothing else may be set */
        if (m->kind == TP_MEMBER_HIDDEN || (*prefix && m->common == TP_COMMON_OUTPUTS)) continue;
        snprintf(key, sizeof key, "%s%s", prefix, m->key);
        tp_model_member_get(m, cfg, value, sizeof value);
        tp_model_member_type(m, type, sizeof type);
        printf("%-26s %-32s %s\n", key, value, type);
    }
}

int model_members(const char *name, const char *set)
{
    char why[1024];
    tp_model_cfg c;
    tp_detector_cfg d;
    const bool detector = is_detector(name);
    if (!(detector ? detector_chosen(&d, name, set, why, sizeof why)
                   : model_chosen(&c, name, set, why, sizeof why))) {
        tp_command_complain("tp-models", why);
        return 1;
    }
    printf("%-26s %-32s %s\n", "member", "value", "takes");
    if (detector) {
        const tp_model_cfg *backbone = &tp_detector_parts_of(&d).backbone->model;
        print_members(d.kind->members, &d.at, "");
        print_members(backbone->model->members, &backbone->at, TP_BACKBONE_PREFIX);
    } else {
        print_members(c.model->members, &c.at, "");
    }
    return 0;
}
