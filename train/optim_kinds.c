/* optim_kinds.c - the library's optimisers, as rows of options, states and kernels, and the
 * registry of names, including a program's own. The enums index the options of a row. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/factored.h"
#include "tensor/geometry/segments.h"
#include "train/optim.h"

TP_KERNEL(sgd_step);
TP_KERNEL(adam_step);
TP_KERNEL(rmsprop_step);
TP_KERNEL(adagrad_step);
TP_KERNEL(lion_step);
TP_KERNEL(lamb_step);
TP_KERNEL(adafactor_step);
TP_KERNEL(muon_step);
TP_WORK(muon_work);
TP_KERNEL(schedulefree_step);
TP_KERNEL(schedulefree_average);

/* Initialisers of an option. An AVERAGE is in [0, 1). */
#define DECAY                  .name = "weight_decay", .high = HUGE_VAL, .help = "Weight decay"
#define AVERAGE(NAME, X, HELP) .name = NAME, .usual = X, .high = 1.0, .help = HELP
#define POSITIVE(NAME, X, ...) .name = NAME, .usual = X, .high = HUGE_VAL, __VA_ARGS__
#define FLAG(NAME, X)          .name = NAME, .usual = X, .high = 1.0, .closed = true, .flag = true

#define BETA1       AVERAGE("beta1", 0.9, "Decay of the first moment")
#define BETA2(X)    AVERAGE("beta2", X, "Decay of the second moment, or of lion's average")
#define EPS(X)      POSITIVE("eps", X, .help = "Epsilon", .flag_low = FLT_MIN)
#define MOMENTUM(X) AVERAGE("momentum", X, "Momentum")

/* Decay is added to the gradient. */
static void coupled(const double *option, tp_segment *s)
{
    (void)option;
    s->l2 = s->decay;
    s->rate = s->lr;
}

/* ---- SGD and QHM ---- */

enum { SGD_MOMENTUM = 1, SGD_NESTEROV };
enum { QHM_MOMENTUM = 1, QHM_NU };

static const char *sgd_check(const double *option)
{
    return option[SGD_NESTEROV] != 0.0 && option[SGD_MOMENTUM] == 0.0 ? "nesterov needs a momentum"
                                                                      : NULL;
}

static void sgd_constants(const double *option, double *k)
{
    const bool nesterov = option[SGD_NESTEROV] != 0.0;
    const double momentum = option[SGD_MOMENTUM];
    k[TP_SGD_MOMENTUM] = momentum;
    k[TP_SGD_GAIN] = 1.0;
    k[TP_SGD_OF_G] = nesterov ? 1.0 : 0.0;
    k[TP_SGD_OF_U] = nesterov ? momentum : 1.0;
}

static void qhm_constants(const double *option, double *k)
{
    const double momentum = option[QHM_MOMENTUM], nu = option[QHM_NU];
    k[TP_SGD_MOMENTUM] = momentum;
    k[TP_SGD_GAIN] = 1.0 - momentum;
    k[TP_SGD_OF_G] = 1.0 - nu;
    k[TP_SGD_OF_U] = nu;
}

static const tp_optim_kind sgd = {
    .name = "sgd",
    .options = { { DECAY },
                 { MOMENTUM(0.0) },
                 { FLAG("nesterov", 0.0), .help = "Nesterov momentum" } },
    .states = { { .name = "u", .only_with = "momentum" } },
    .check = sgd_check,
    .constants = sgd_constants,
    .numbers = coupled,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(sgd_step),
};

static const tp_optim_kind qhm = {
    .name = "qhm",
    .about = "quasi-hyperbolic momentum, whose average adds (1 - momentum) times each gradient.",
    .options = { { DECAY },
                 { MOMENTUM(0.9) },
                 { .name = "nu",
                   .usual = 1.0,
                   .high = 1.0,
                   .closed = true,
                   .help = "Weight of the average in a step; the gradient has the rest" } },
    .states = { { .name = "u", .only_with = "momentum" } },
    .constants = qhm_constants,
    .numbers = coupled,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(sgd_step),
};

/* ---- Adam and AdamW ---- */

enum { ADAM_BETA1 = 1, ADAM_BETA2, ADAM_EPS, ADAM_RAW_EPS, ADAM_DECAY_AFTER };

static void adam_constants(const double *option, double *k)
{
    k[TP_ADAM_BETA1] = option[ADAM_BETA1];
    k[TP_ADAM_BETA2] = option[ADAM_BETA2];
    k[TP_ADAM_EPS] = option[ADAM_EPS];
}

/* Bias correction. */
static void adam_numbers(const double *option, tp_segment *s)
{
    const double n = (double)s->updates;
    const double c1 = 1.0 - pow(option[ADAM_BETA1], n);
    const double c2 = sqrt(1.0 - pow(option[ADAM_BETA2], n));
    const bool raw = option[ADAM_RAW_EPS] != 0.0;
    s->l2 = s->decay;
    s->rate = raw ? s->lr * c2 / c1 : s->lr / c1;
    s->root = raw ? 1.0 : 1.0 / c2;
}

static void adamw_numbers(const double *option, tp_segment *s)
{
    const double decay = s->lr * s->decay;
    adam_numbers(option, s);
    s->l2 = 0.0;
    *(option[ADAM_DECAY_AFTER] != 0.0 ? &s->after : &s->before) = decay;
}

static const tp_optim_kind adam = {
    .name = "adam",
    .options = { { DECAY },
                 { BETA1 },
                 { BETA2(0.999) },
                 { EPS(1e-8) },
                 { FLAG("raw_eps", 0.0) },
                 { FLAG("decay_after", 0.0) } },
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = adam_constants,
    .numbers = adam_numbers,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(adam_step),
};

static const tp_optim_kind adamw = {
    .name = "adamw",
    .options = { { DECAY },
                 { BETA1 },
                 { BETA2(0.999) },
                 { EPS(1e-8) },
                 { FLAG("raw_eps", 0.0) },
                 { FLAG("decay_after", 0.0) } },
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = adam_constants,
    .numbers = adamw_numbers,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(adam_step),
};

static const tp_optim_kind adamw_vil = {
    .name = "adamw-vil",
    .stored = "adamw",
    .about = "AdamW with eps added before the bias correction, and weight decay applied after the "
             "update.",
    .options = { { DECAY },
                 { BETA1 },
                 { BETA2(0.999) },
                 { EPS(1e-8) },
                 { FLAG("raw_eps", 1.0) },
                 { FLAG("decay_after", 1.0) } },
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = adam_constants,
    .numbers = adamw_numbers,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(adam_step),
};

/* ---- RMSprop and Adagrad ---- */

enum { RMSPROP_ALPHA = 1, RMSPROP_EPS, RMSPROP_MOMENTUM };
enum { ADAGRAD_EPS = 1, ADAGRAD_LR_DECAY };

static void rmsprop_constants(const double *option, double *k)
{
    k[TP_RMSPROP_ALPHA] = option[RMSPROP_ALPHA];
    k[TP_RMSPROP_EPS] = option[RMSPROP_EPS];
    k[TP_RMSPROP_MOMENTUM] = option[RMSPROP_MOMENTUM];
}

static const tp_optim_kind rmsprop = {
    .name = "rmsprop",
    .options = { { DECAY },
                 { AVERAGE("alpha", 0.99, "Decay of the second moment") },
                 { EPS(1e-8) },
                 { MOMENTUM(0.0) },
                 { FLAG("centered", 0.0),
                   .help = "Divide by the standard deviation of the gradients" } },
    .states = { { .name = "v" },
                { .name = "u", .only_with = "momentum" },
                { .name = "a", .only_with = "centered" } },
    .constants = rmsprop_constants,
    .numbers = coupled,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(rmsprop_step),
};

static void adagrad_constants(const double *option, double *k)
{
    k[TP_ADAGRAD_EPS] = option[ADAGRAD_EPS];
}

static void adagrad_numbers(const double *option, tp_segment *s)
{
    coupled(option, s);
    s->rate /= 1.0 + (double)(s->updates - 1) * option[ADAGRAD_LR_DECAY];
}

static const tp_optim_kind adagrad = {
    .name = "adagrad",
    .options = { { DECAY },
                 { EPS(1e-10) },
                 { POSITIVE("lr_decay", 0.0,
                            .help = "Update n has the learning rate divided by 1 + (n - 1) times "
                                    "this") },
                 { POSITIVE("initial_accumulator", 0.0, .at_start = true) } },
    .states = { { .name = "v", .starts_at = "initial_accumulator" } },
    .counts = true,
    .constants = adagrad_constants,
    .numbers = adagrad_numbers,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(adagrad_step),
};

/* ---- Lion ---- */

enum { LION_BETA1 = 1, LION_BETA2 };

static void lion_constants(const double *option, double *k)
{
    k[TP_LION_BETA1] = option[LION_BETA1];
    k[TP_LION_BETA2] = option[LION_BETA2];
}

static void lion_numbers(const double *option, tp_segment *s)
{
    (void)option;
    s->rate = s->lr;
    s->before = s->lr * s->decay;
}

static const tp_optim_kind lion = {
    .name = "lion",
    .about = "usual with --beta2 0.99 and a rate 3 to 10 times lower than adamw's.",
    .options = { { DECAY }, { BETA1 }, { BETA2(0.99) } },
    .states = { { .name = "m" } },
    .constants = lion_constants,
    .numbers = lion_numbers,
    .elementwise = true,
    .recordable = true,
    .step = TP_KERNELS(lion_step),
};

/* ---- LAMB ---- */

enum { LAMB_BETA1 = 1, LAMB_BETA2, LAMB_EPS };

static void lamb_constants(const double *option, double *k)
{
    k[TP_LAMB_BETA1] = option[LAMB_BETA1];
    k[TP_LAMB_BETA2] = option[LAMB_BETA2];
    k[TP_LAMB_EPS] = option[LAMB_EPS];
}

static void lamb_numbers(const double *option, tp_segment *s)
{
    const double n = (double)s->updates;
    s->rate = s->lr;
    s->before = 1.0 / (1.0 - pow(option[LAMB_BETA1], n));
    s->root = 1.0 / sqrt(1.0 - pow(option[LAMB_BETA2], n));
    s->after = s->decay;
}

static size_t lamb_work(const tp_call *c)
{
    const tp_segments *s = c->attr;
    return (size_t)(2 * s->blocks + s->n) * sizeof(double);
}

static const tp_optim_kind lamb = {
    .name = "lamb",
    .options = { { DECAY }, { BETA1 }, { BETA2(0.999) }, { EPS(1e-6) } },
    .states = { { .name = "m" }, { .name = "v" } },
    .counts = true,
    .constants = lamb_constants,
    .numbers = lamb_numbers,
    .recordable = true,
    .step = TP_KERNELS(lamb_step),
    .work = TP_SAME_WORK(lamb_work),
};

/* ---- Adafactor ---- */

enum { ADAFACTOR_BETA2_DECAY = 1, ADAFACTOR_EPS1, ADAFACTOR_EPS2, ADAFACTOR_D };

static void adafactor_constants(const double *option, double *k)
{
    k[TP_ADAFACTOR_EPS1] = option[ADAFACTOR_EPS1];
    k[TP_ADAFACTOR_EPS2] = option[ADAFACTOR_EPS2];
    k[TP_ADAFACTOR_D] = option[ADAFACTOR_D];
}

static void adafactor_numbers(const double *option, tp_segment *s)
{
    const double n = (double)s->updates;
    s->rate = fmin(s->lr, 1.0 / sqrt(n));
    s->root = pow(n, option[ADAFACTOR_BETA2_DECAY]);
    s->before = s->lr * s->decay;
}

/* [..,R,C] has row means [..,R] and column means [..,C]. */
static tp_shape row_means(tp_shape of, bool taken)
{
    (void)taken;
    of.ndim -= 1;
    return of.ndim > 0 ? of : (tp_shape){ .ndim = -1 };
}

static tp_shape column_means(tp_shape of, bool taken)
{
    (void)taken;
    if (of.ndim < 2) return (tp_shape){ .ndim = -1 };
    of.dim[of.ndim - 2] = of.dim[of.ndim - 1];
    of.ndim -= 1;
    return of;
}

static tp_shape squares(tp_shape of, bool taken)
{
    (void)taken;
    return of.ndim < 2 ? of : (tp_shape){ .ndim = -1 };
}

static size_t adafactor_work(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    return (size_t)tp__factored_size(&a->s, c->y[1].numel, c->y[0].numel) * sizeof(double);
}

static const tp_optim_kind adafactor = {
    .name = "adafactor",
    .about = "PyTorch's, with moments of rows and columns; usual with a rate of 0.01.",
    .options = { { DECAY },
                 { .name = "beta2_decay", .usual = -0.8, .low = -HUGE_VAL, .closed = true },
                 { POSITIVE("eps1", FLT_EPSILON, .usual_f64 = DBL_EPSILON) },
                 { POSITIVE("eps2", 1e-3, .help = NULL) },
                 { .name = "d", .usual = 1.0, .low = 1.0, .high = HUGE_VAL } },
    .states = { { .name = "row", .shape = row_means },
                { .name = "col", .shape = column_means },
                { .name = "v", .shape = squares } },
    .counts = true,
    .constants = adafactor_constants,
    .numbers = adafactor_numbers,
    .recordable = true,
    .step = TP_KERNELS(adafactor_step),
    .work = TP_SAME_WORK(adafactor_work),
};

/* ---- Muon ---- */

/* The kernel's constants are the options. */
enum { MUON_MATCH_RMS = 4 };

/* Is the word, of n characters, one of an embedding or of an output layer? */
static bool is_outer(const char *word, size_t n)
{
    static const char *const whole[] = { "head", "heads", "classifier", "wte", "wpe", "pos" };
    static const char *const beginning[] = { "emb", "posit", "posemb", "posenc" };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strlen(whole[i]) == n && memcmp(word, whole[i], n) == 0) return true;
    for (size_t i = 0; i < sizeof beginning / sizeof *beginning; i++)
        if (strncmp(word, beginning[i], strlen(beginning[i])) == 0) return true;
    return false;
}

bool tp_muon_takes(const char *name, tp_shape s)
{
    if (!name || s.ndim != 2 || s.dim[0] < 2 || s.dim[1] < 2) return false;
    for (const char *word = name; *word;) {
        const size_t n = strcspn(word, "._");
        if (is_outer(word, n)) return false;
        word += n + (word[n] != '\0');
    }
    return true;
}

static void muon_numbers(const double *option, tp_segment *s)
{
    const double R = (double)s->rows, C = (double)s->cols, n = (double)s->updates;
    s->before = s->lr * s->decay;
    if (!s->taken) {
        s->rate = s->lr / (1.0 - pow(option[TP_MUON_BETA1], n));
        s->root = 1.0 / sqrt(1.0 - pow(option[TP_MUON_BETA2], n));
    } else if (option[MUON_MATCH_RMS] != 0.0) {
        s->rate = s->lr * 0.2 * sqrt(fmax(R, C));
    } else {
        s->rate = s->lr * sqrt(fmax(1.0, R / C));
    }
}

static tp_shape second_moment(tp_shape of, bool taken)
{
    if (taken) of.ndim = -1;
    return of;
}

static const tp_optim_kind muon = {
    .name = "muon",
    .about = "orthogonal updates of matrices; AdamW for vectors, embeddings and output layers, "
             "known by words of their names: embed, head, classifier, wte ...; usual with "
             "--momentum 0.95 --beta2 0.95.",
    .options = { { DECAY },
                 { MOMENTUM(0.95) },
                 { FLAG("nesterov", 1.0) },
                 { .name = "newton_schulz",
                   .usual = 5.0,
                   .low = 1.0,
                   .high = 20.0,
                   .closed = true,
                   .on_host = true,
                   .help = "Iterations of Newton and Schulz" },
                 { FLAG("match_rms", 1.0) },
                 { BETA1 },
                 { BETA2(0.95) },
                 { EPS(1e-8) } },
    .states = { { .name = "u" }, { .name = "v", .shape = second_moment } },
    .counts = true,
    .takes = tp_muon_takes,
    .numbers = muon_numbers,
    .recordable = true,
    .step = TP_KERNELS(muon_step),
    .work = TP_WORKS(muon_work),
};

/* ---- schedule-free AdamW ---- */

enum { FREE_BETA1 = 1, FREE_BETA2, FREE_EPS, FREE_R, FREE_LR_POWER };
enum { FREE_LARGEST_LR, FREE_WEIGHTS };

static const char *free_check(const double *option)
{
    return option[FREE_BETA1] > 0.0 ? NULL : "beta1 must be above 0, or no average could be found";
}

static void free_constants(const double *option, double *k)
{
    k[TP_FREE_BETA1] = option[FREE_BETA1];
    k[TP_FREE_BETA2] = option[FREE_BETA2];
    k[TP_FREE_EPS] = option[FREE_EPS];
}

static void free_advance(const double *option, double lr, int64_t n, double *sum, double *k)
{
    sum[FREE_LARGEST_LR] = fmax(sum[FREE_LARGEST_LR], lr);
    const double weight =
        pow((double)n, option[FREE_R]) * pow(sum[FREE_LARGEST_LR], option[FREE_LR_POWER]);
    sum[FREE_WEIGHTS] += weight;
    k[TP_FREE_C] = sum[FREE_WEIGHTS] > 0.0 ? weight / sum[FREE_WEIGHTS] : 0.0;
}

static void free_numbers(const double *option, tp_segment *s)
{
    s->rate = s->lr;
    s->root = 1.0 / sqrt(1.0 - pow(option[FREE_BETA2], (double)s->updates));
    s->after = s->decay;
}

static const tp_optim_kind schedulefree = {
    .name = "schedulefree",
    .about = "AdamW that averages its steps in place of a schedule; validates with the averages.",
    .options = { { DECAY },
                 { AVERAGE("beta1", 0.9, "Decay of the first moment"), .at_start = true },
                 { BETA2(0.999) },
                 { EPS(1e-8) },
                 { POSITIVE("r", 0.0, .help = NULL) },
                 { POSITIVE("lr_power", 2.0, .help = NULL) } },
    .states = { { .name = "e" }, { .name = "v" } },
    .counts = true,
    .elementwise = true,
    .check = free_check,
    .constants = free_constants,
    .sums = { "largest_lr", "weights" },
    .advance = free_advance,
    .numbers = free_numbers,
    .recordable = true,
    .step = TP_KERNELS(schedulefree_step),
    .average = TP_KERNELS(schedulefree_average),
};

const tp_optim_kind *const tp__optim_kinds[] = {
    &adamw, &adam, &sgd,       &qhm,  &adamw_vil,    &rmsprop, &adagrad,
    &lion,  &lamb, &adafactor, &muon, &schedulefree, NULL,
};

/* ---- names ---- */

/* Filled from the front; a set slot never changes. */
static _Atomic(const tp_optim_kind *) registered[TP_OPTIM_KINDS];

const tp_optim_kind *tp_optim_kind_at(int i)
{
    if (i < 0) return NULL;
    for (const tp_optim_kind *const *k = tp__optim_kinds; *k; k++)
        if (i-- == 0) return *k;
    return i < TP_OPTIM_KINDS ? atomic_load(&registered[i]) : NULL;
}

int tp_optim_find(const char *name)
{
    const tp_optim_kind *k;
    for (int i = 0; name && (k = tp_optim_kind_at(i)); i++)
        if (strcmp(k->name, name) == 0) return i;
    return -1;
}

bool tp_optim_register(const tp_optim_kind *kind)
{
    if (!kind || !kind->name) return false;
    const tp_optim_kind *other = tp_optim_kind_at(tp_optim_find(kind->name));
    for (int i = 0; !other && i < TP_OPTIM_KINDS; i++) {
        const tp_optim_kind *present = NULL;
        if (atomic_compare_exchange_strong(&registered[i], &present, kind)) return true;
        if (strcmp(present->name, kind->name) == 0) other = present;
    }
    return other == kind;
}

/* ---- typed options ---- */

tp_optim *tp_sgd_new(tp_params *P, const tp_sgd_opts *o)
{
    static const tp_sgd_opts usual = { 0 };
    if (!o) o = &usual;
    const tp_optim_value values[] = { { "momentum", o->momentum },
                                      { "weight_decay", o->weight_decay },
                                      { "nesterov", o->nesterov },
                                      { NULL, 0.0 } };
    return tp_optim_new(P, "sgd",
                        &(tp_optim_opts){ .values = values, .factors = o->factors, .env = o->env });
}

static tp_optim *by_adam(tp_params *P, const char *name, const tp_adam_opts *o)
{
    static const tp_adam_opts usual = { 0 };
    if (!o) o = &usual;
    tp_optim_value values[7] = { { "weight_decay", o->weight_decay },
                                 { "raw_eps", o->raw_eps },
                                 { "decay_after", o->decay_after } };
    int n = 3;
    if (o->beta1 != 0.0) values[n++] = (tp_optim_value){ "beta1", o->beta1 };
    if (o->beta2 != 0.0) values[n++] = (tp_optim_value){ "beta2", o->beta2 };
    if (o->eps != 0.0) values[n++] = (tp_optim_value){ "eps", o->eps };
    return tp_optim_new(P, name,
                        &(tp_optim_opts){ .values = values, .factors = o->factors, .env = o->env });
}

tp_optim *tp_adam_new(tp_params *P, const tp_adam_opts *o)
{
    return by_adam(P, "adam", o);
}

tp_optim *tp_adamw_new(tp_params *P, const tp_adamw_opts *o)
{
    return by_adam(P, "adamw", o);
}
