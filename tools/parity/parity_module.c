/* parity_module.c - the common run of module cases, from declaration to the comparison of gradients
 * and buffers.
 *
 *     declare -> load -> forward -> outputs -> loss -> gradients -> buffers
 *
 * The scalar that is differentiated is the sum over the outputs of sum(output * probe), unless the
 * kind has its own loss. Full-size classifiers also run in training mode if the file has the results
 * ("output.logits_train"). */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <tapegrad/vit.h>

#include "parity_case.h"

/* Dropout rates, which must be 0: the references drop nothing. */
static const char *const rates[] = { "dropout", "emb_dropout", "dropatt", "drop_path" };

void par_begin(parity *p)
{
    static const char *const modes[] = { "train", "eval", NULL };

    p->train = par_word(p, "mode", 0, modes) == 0;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) par_fixed(p, rates[i], 0.0);
    p->P = tp_params_new(p->o->D, &(tp_params_opts){ .dtype = p->real, .blank = true });
    p->T = tp_tape_new(p->o->D, &(tp_tape_opts){ .compute = p->o->compute, .train = p->train });
}

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

bool par_model(parity *p, const tp_model *model, const char *dflt, const int64_t image[2],
               tp_model_cfg *c)
{
    const char *given = par_model_name(p), *name = given ? given : dflt ? dflt : "";
    const tp_model_row *row = tp_model_find(name);
    char why[256];

    if (!row || (model ? tp_model_of(row) != model : tp_model_of(row)->input != TP_IMAGES)) {
        par_illegal(p, "metadata model = '%.40s': the library has no %s with that name", name,
                    model ? model->name : "model");
        return false;
    }
    if (!(image && sized_preset(p, row, image[0], c)) &&
        !tp_model_preset(c, row->name, why, sizeof why)) {
        par_illegal(p, "metadata model = '%.40s': %s", name, why);
        return false;
    }
    tp_common_cfg o = tp_model_get(c);
    for (int i = 0; i < 2 && image; i++) o.image[i] = image[i];
    o.drop_path = 0.0;
    tp_model_set(c, &o);
    return !p->failed;
}

/* ---- outputs and the scalar ---- */

/* The name of the output's probe, without "input."; NULL if it has none. */
static const char *probe_of(parity *p, const char *name)
{
    const char *full[] = { par_name(p, "probe.%s", name), par_name(p, "probe_%s", name),
                           p->outputs == 0 ? "probe" : NULL };

    for (int i = 0; i < 3; i++)
        if (full[i] && par_has(p, par_name(p, "input.%s", full[i]))) return full[i];
    return NULL;
}

bool par_wants(const parity *p, const char *name)
{
    static const char *const forms[] = { "output.%s", "input.probe.%s", "input.probe_%s" };
    char full[256];

    for (int i = 0; i < 3; i++) {
        snprintf(full, sizeof full, forms[i], name);
        if (par_has(p, full)) return true;
    }
    return false;
}

void par_output_tokens(parity *p, const char *name, tp_tensor map)
{
    const tp_shape s = TP_SHAPE(tp_dim(map, 0), tp_dim(map, 1) * tp_dim(map, 2), tp_dim(map, 3));
    par_output(p, name, tp_reshape(p->T, map, s));
}

/* ---- full-size models by name ---- */

void par_declare_full(parity *p, void *self)
{
    par_full *f = self;
    const char *x = p->kind->x;
    int64_t size[2];
    tp_model_cfg c;
    par_image_size(p, x, size);
    if (!par_model(p, NULL, "", size, &c)) return;
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

/* ---- the scalar ---- */

void par_loss(parity *p, tp_tensor loss)
{
    p->loss = tp_given(p->loss) ? tp_add(p->T, p->loss, loss) : loss;
}

/* Adds the sum of the products of an output with its probe to the loss. */
static void weigh(parity *p, tp_tensor product)
{
    if (par_has(p, "output.loss") && !p->kind->own_loss)
        p->terms = hypot(p->terms, tp_item(p->T, par_norm(p->T, product)));
    par_loss(p, tp_sum(p->T, product, TP_ALL));
}

void par_output(parity *p, const char *name, tp_tensor x)
{
    par_check_tensor(p, par_name(p, "output.%s%s", name, p->suffix), x);
    const char *probe = p->suffix[0] ? NULL : probe_of(p, name);
    p->outputs++;
    if (!probe || !par_ok(p)) return;
    const tp_tensor weight = par_tensor(p, probe);
    if (tp_numel(weight) != tp_numel(x))
        par_fail(p, "input.%s and the output have different sizes", probe);
    else
        weigh(p, tp_mul(p->T, x, weight));
}

/* The class of each image. */
static tp_tensor labels(parity *p, int64_t B, int64_t classes)
{
    const int64_t one = par_int(p, "target_class", 1, -1, classes - 1);

    if (one >= 0) return tp_full(p->T, TP_I64, TP_SHAPE(B), (double)one);
    return par_tensor(p, "labels");
}

void par_classify(parity *p, tp_tensor logits)
{
    if (!par_ok(p)) return;
    const int64_t B = tp_dim(logits, 0), classes = tp_dim(logits, 1);

    par_same(p, "num_classes", classes);
    par_same(p, "classes", classes);
    par_output(p, "logits", logits);
    if (p->suffix[0]) return;
    const tp_tensor y = labels(p, B, classes);
    par_loss(p, tp_cross_entropy(p->T, logits, y, TP_MEAN));
}

/* ---- gradients ---- */

/* The gradient of an input as doubles, zeros if backward did not reach it. */
static const double *gradient_of(parity *p, const par_input *in)
{
    const tp_tensor g = tp_grad(p->T, in->x);

    if (tp_code_of(p->T) != TP_E_STATE) return par_read(p, g);
    tp_clear(p->T);
    return par_alloc(p, tp_numel(in->x), sizeof(double));
}

static void check_input(parity *p, const par_input *in)
{
    const char *whole = par_name(p, "grad.%s", in->name);
    const char *norm = par_name(p, "gradnorm.%s", in->name);
    const int64_t n = tp_numel(in->x);
    double squares = 0.0;

    if (!par_has(p, whole) && !par_has(p, norm)) return;
    const double *got = gradient_of(p, in);
    if (!got) return;
    for (int64_t i = 0; i < n; i++) squares += got[i] * got[i];
    par_check(p, whole, got, n, par_limit(p, PAR_GRADIENT));
    par_check_one(p, norm, sqrt(squares), par_limit(p, PAR_GRADIENT));
}

void par_differentiate(parity *p)
{
    if (!par_ok(p) || !tp_given(p->loss)) return;
    if (par_has(p, "output.loss") && !p->kind->own_loss)
        par_check_sum(p, "output.loss", tp_item(p->T, p->loss), p->terms, par_limit(p, PAR_OUTPUT));
    if (!par_has_any(p, "grad") || !par_ok(p)) return;
    tp_backward(p->T, p->loss);
    for (const par_input *in = p->input; in && par_ok(p); in = in->next) check_input(p, in);
    if (par_ok(p)) par_check_grads(p);
}

/* ---- all of it ---- */

static void forward(parity *p, void *self)
{
    if (p->kind->forward)
        p->kind->forward(p, self);
    else
        par_run_row(p, self);
}

/* Runs the same inputs in training mode, without gradients. */
static void run_again(parity *p, void *self)
{
    tp_reset(p->T);
    tp_train(p->T, true);
    tp_record(p->T, false);
    p->input = NULL;
    p->outputs = 0;
    p->loss = TP_NONE;
    p->suffix = "_train";
    forward(p, self);
}

void par_run_module(parity *p)
{
    const par_kind *k = p->kind;
    void *self = par_alloc(p, 1, par_module_size(k));

    par_begin(p);
    if (self && k->declare)
        k->declare(p, self);
    else if (self && k->model)
        par_declare_row(p, self);
    par_load(p);
    if (p->failed) return;
    forward(p, self);
    par_differentiate(p);
    const bool again = par_has(p, "output.logits_train");
    if ((p->train || !again) && par_ok(p)) par_check_buffers(p);
    if (!again || !par_ok(p)) return;
    run_again(p, self);
    if (!p->train && par_ok(p)) par_check_buffers(p);
}
