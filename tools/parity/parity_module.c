/* parity_module.c - the common run of module cases, from declaration to the comparison of gradients
 * and buffers.
 *
 *     declare -> load -> forward -> outputs -> loss -> gradients -> buffers
 *
 * The scalar that is differentiated is the sum over the outputs of sum(output * probe), unless the
 * kind has its own loss. Full-size classifiers also run in training mode if the file has the
 * results ("output.logits_train"). */
#include <math.h>
#include <string.h>

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
    if (!par_has_either(p, "grad", in->name)) return;
    const double *got = gradient_of(p, in);
    if (got) par_check_either(p, "grad", in->name, got, tp_numel(in->x), PAR_GRADIENT);
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
