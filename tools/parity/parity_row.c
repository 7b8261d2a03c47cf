/* parity_row.c - kinds fully described by their row: a model of the library or a part of it.
 *
 *     metadata -> members of the configuration -> module -> input in our layout -> output
 *
 * The epsilons of norms and the like are not settings: the library's must equal the reference's. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vit.h>

#include "parity_case.h"

/* ---- models of the table by name ---- */

/* A row of the table is for one image size; the names of other sizes differ in the final number, as
 * in "cvt_ls-21-224". */
static bool sized_preset(parity *p, const tp_model_row *row, int64_t side, tp_model_cfg *c)
{
    size_t stem = strlen(row->name);
    char why[256];

    while (stem > 0 && isdigit((unsigned char)row->name[stem - 1])) stem--;
    return stem > 0 && row->name[stem] && row->name[stem - 1] == '-' &&
           tp_model_preset(c, par_name(p, "%.*s%lld", (int)stem, row->name, (long long)side), why,
                           sizeof why);
}

/* The configuration of the table's model named by the key `preset` or `model` (dflt: the name if
 * both are absent), for images of that size (NULL: its own). model: NULL if it may be any of
 * images. False: failed. */
static bool find_model(parity *p, const tp_model *model, const char *dflt, const int64_t image[2],
                       tp_model_cfg *c)
{
    const char *given = par_model_name(p), *name = given ? given : dflt;
    const char *key = par_given(p, "preset") ? "preset" : "model";
    const tp_model_row *row = tp_model_find(name);
    char why[256];

    if (!row || (model ? tp_model_of(row) != model : tp_model_of(row)->input != TP_IMAGES)) {
        par_illegal(p, "metadata %s = '%.40s': the library has no %s with that name", key, name,
                    model ? model->name : "model");
        return false;
    }
    if (!(image && sized_preset(p, row, image[0], c)) &&
        !tp_model_preset(c, row->name, why, sizeof why)) {
        par_illegal(p, "metadata %s = '%.40s': %s", key, name, why);
        return false;
    }
    tp_common_cfg o = tp_model_get(c);
    for (int i = 0; i < 2 && image; i++) o.image[i] = image[i];
    o.drop_path = 0.0;
    tp_model_set(c, &o);
    return !p->failed;
}

/* ---- the configuration ---- */

static const char *x_of(const par_kind *k)
{
    return k->x ? k->x : "x";
}

/* The value of NAME in "NAME=value NAME=value"; NULL: it has none. */
static const char *value_of(parity *p, const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return par_name(p, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
    return NULL;
}

static int64_t whole(parity *p, const tp_model_member *m, const char *key, int64_t x)
{
    return par_int(p, key, x ? x : PAR_NEEDED, !m->optional, INT32_MAX);
}

static void read_list(parity *p, const tp_model_member *m, const char *key, void *cfg)
{
    void *at = (char *)cfg + m->at;
    int *length = m->length ? (int *)(void *)((char *)cfg + m->length) : NULL;
    int n = length ? *length : m->count;
    const bool ints = m->kind == TP_MEMBER_INTS;
    if (!par_given(p, key) && (ints ? *(int *)at : *(int64_t *)at)) return;
    if (ints)
        par_stage_ints(p, key, !m->optional, m->count, at, &n);
    else
        par_stages(p, key, !m->optional, m->count, at, &n);
    if (length) *length = n;
}

static void read_member(parity *p, const tp_model_member *m, const char *key, void *cfg)
{
    void *at = (char *)cfg + m->at;
    switch (m->kind) {
    case TP_MEMBER_INT64: *(int64_t *)at = whole(p, m, key, *(int64_t *)at); break;
    case TP_MEMBER_INT: *(int *)at = (int)whole(p, m, key, *(int *)at); break;
    case TP_MEMBER_REAL:
    case TP_MEMBER_RATE:
        *(double *)at = par_num(p, key, *(double *)at != 0.0 ? *(double *)at : (double)PAR_NEEDED);
        break;
    case TP_MEMBER_FLAG: *(bool *)at = par_flag(p, key, *(bool *)at); break;
    case TP_MEMBER_NOT: *(bool *)at = !par_flag(p, key, !*(bool *)at); break;
    case TP_MEMBER_WORD: *(int *)at = par_word(p, key, *(int *)at, m->words); break;
    case TP_MEMBER_CHOICE: *(bool *)at = par_word(p, key, *(bool *)at, m->words) == 1; break;
    case TP_MEMBER_INTS:
    case TP_MEMBER_INT64S: read_list(p, m, key, cfg); break;
    case TP_MEMBER_SIDES: par_image_size(p, x_of(p->kind), at); break;
    case TP_MEMBER_REALS: /* only in detectors, which have no rows */
    case TP_MEMBER_TEXT:
    case TP_MEMBER_HIDDEN:
    case TP_MEMBER_END: break;
    }
}

/* Reads all members but the rates of dropout, which are 0 (par_begin). Lists with a value for each
 * stage replace those of the base, whatever their length. */
static void read_members(parity *p, void *cfg)
{
    const par_kind *k = p->kind;
    const tp_model_member *all = k->members ? k->members : k->model->members, *m;
    for (int pass = 0; pass < 2; pass++)
        for (m = all; m->kind != TP_MEMBER_END; m++) {
            const char *spelled = m->key ? value_of(p, k->spelled, m->key) : NULL;
            const char *key = spelled ? spelled : m->key;
            if (m->common == TP_COMMON_DROPOUT || m->common == TP_COMMON_DROP_PATH) continue;
            if (pass == 1)
                read_member(p, m, key, cfg);
            else if (m->length && par_given(p, key))
                *(int *)(void *)((char *)cfg + m->length) = 0;
        }
}

/* Compares keys with one value in the library, a number or a word. */
static void check_fixed(parity *p)
{
    for (const char *at = p->kind->fixed; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        const char *key = par_name(p, "%.*s", (int)strcspn(at, "="), at);
        const char *value = value_of(p, at, key), **words = par_alloc(p, 2, sizeof *words);
        char *end;
        if (!words || !value || !par_given(p, key)) continue;
        const double x = strtod(value, &end);
        words[0] = value;
        if (*end)
            par_word(p, key, 0, (const char *const *)words);
        else
            par_fixed(p, key, x);
    }
}

/* The configuration before the metadata are read. False: failed. */
static bool read_base(parity *p, void *cfg)
{
    const par_kind *k = p->kind;
    tp_model_cfg named;
    int64_t image[2];
    if (k->base) memcpy(cfg, k->base, k->part && !k->of_model ? k->cfg_size : k->model->cfg_size);
    if (!k->preset) return true;
    if (k->in == PAR_IMAGES) par_image_size(p, x_of(k), image);
    if (!find_model(p, k->model, k->preset, k->in == PAR_IMAGES ? image : NULL, &named))
        return false;
    memcpy(cfg, &named.at, k->model->cfg_size);
    return true;
}

/* ---- the module ---- */

/* The name of the module. The metadata's param_prefix adds a dot. */
static const char *name_of(parity *p)
{
    if (p->kind->name) return p->kind->name;
    const char *prefix = par_text(p, "param_prefix");
    const size_t n = prefix ? strlen(prefix) : 0;
    if (n > 0 && prefix[n - 1] != '.')
        par_fail(p, "metadata param_prefix = '%.40s' does not end with a dot", prefix);
    return n > 0 ? par_name(p, "%.*s", (int)n - 1, prefix) : "";
}

static const tp_model_part *part_of(const par_kind *k)
{
    const tp_model_part *part = k->model->parts;
    while (part->name && strcmp(part->name, k->part) != 0) part++;
    return part;
}

size_t par_module_size(const par_kind *k)
{
    if (k->size || !k->model) return k->size;
    return k->part ? part_of(k)->size : k->model->size;
}

void par_declare_row(parity *p, void *self)
{
    const par_kind *k = p->kind;
    void *cfg = par_alloc(p, 1, TP_MODEL_CFG_BYTES);
    if (!cfg || !read_base(p, cfg)) return;
    read_members(p, cfg);
    check_fixed(p);
    if (k->check) k->check(p, cfg);
    const char *name = name_of(p);
    if (p->failed) return;
    const void *around[TP_MODEL_CFG_BYTES / sizeof(void *)] = { cfg };
    if (k->part)
        tp_part_init(p->P, k->model, k->part, self, name, k->of_model ? (const void *)around : cfg);
    else
        k->model->init(p->P, self, name, cfg);
    if (k->finish && par_ok(p)) k->finish(p, self);
}

/* Reads the input; *with: the module's other inputs. */
static tp_tensor take_input(parity *p, tp_tensor *grid, void **with)
{
    const par_kind *k = p->kind;
    if (k->in == PAR_IMAGES) return par_images(p, x_of(k));
    const bool map = k->in == PAR_MAP || k->in == PAR_GRID;
    const int64_t H = map ? par_size(p, k->keys[0], PAR_NEEDED) : 0,
                  W = map ? par_size(p, k->keys[1], PAR_NEEDED) : 0;
    const tp_tensor x = par_take(p, "x");
    if (!par_ok(p)) return x;
    if (k->in == PAR_MAP) return tp_reshape(p->T, x, TP_SHAPE(tp_dim(x, 0), H, W, tp_dim(x, 2)));
    par_same(p, map ? k->keys[2] : "tokens", tp_dim(x, 1) - H * W);
    if (map) *grid = tp_full(p->T, TP_F32, TP_SHAPE(H, W, 0), 0.0);
    if (map) *with = grid;
    return x;
}

void par_run_row(parity *p, void *self)
{
    const par_kind *k = p->kind;
    const char *name = k->y ? k->y : "y";
    void *with = NULL;
    tp_tensor grid;
    const tp_tensor x = take_input(p, &grid, &with);
    if (!par_ok(p)) return;
    const tp_tensor y = k->part ? tp_part_forward(p->T, k->model, k->part, self, with, x)
                                : k->model->forward(p->T, self, NULL, x);
    switch (k->out) {
    case PAR_SAME: par_output(p, name, y); break;
    case PAR_TOKENS:
        par_output(p, name, tp_reshape(p->T, y, TP_SHAPE(tp_dim(y, 0), -1, tp_dim(y, 3))));
        break;
    case PAR_CHANNELS: par_output(p, name, par_channels_first(p->T, y)); break;
    case PAR_LOGITS: par_classify(p, y); break;
    }
}

/* ---- full-size models by name ---- */

void par_declare_full(parity *p, void *self)
{
    par_full *f = self;
    const char *x = p->kind->x;
    int64_t size[2];
    tp_model_cfg c;
    par_image_size(p, x, size);
    if (!find_model(p, NULL, "", size, &c)) return;
    tp_common_cfg o = tp_model_get(&c);
    o.outputs = par_size(p, "classes", o.outputs);
    tp_model_set(&c, &o);
    par_same(p, "distilled", c.model == &tp_model_vit && ((const tp_vit_cfg *)&c.at)->distilled);
    par_same(p, "logits_train_stored", par_has(p, "output.logits_train"));
    f->model = c.model;
    f->module = par_alloc(p, 1, c.model->size);
    if (!p->failed) c.model->init(p->P, f->module, "", &c.at);
    if (par_ok(p) && p->kind->finish) p->kind->finish(p, f);
}

void par_run_full(parity *p, void *self)
{
    const par_full *f = self;
    const tp_tensor images = par_images(p, p->kind->x);
    if (par_ok(p)) par_classify(p, f->model->forward(p->T, f->module, NULL, images));
}
