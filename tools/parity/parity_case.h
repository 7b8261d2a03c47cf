/* parity_case.h - what the kinds of cases share: one case while it runs.
 *
 * Everything a case says is read through these functions. They note what was read, so that at the
 * end a tensor that nothing was compared with, or a key that configures and that nobody read, is a
 * failure. The first failure is kept; afterwards nothing is compared any more and getters return
 * values that are safe to go on with.
 *
 * A kind is an entry of a table: most declare a module from the metadata and run it forward, the
 * rest (load, probe, backward, comparisons) is the same for all (parity_module.c). What such
 * functions allocate lives until the end of the case. */
#ifndef PARITY_CASE_H
#define PARITY_CASE_H

#include <jansson.h>

#include <tapegrad/model.h>

#include "parity.h"

typedef struct parity parity;

typedef struct par_kind {
    const char *kind;                       /* NULL ends a table                               */
    size_t size;                            /* of the kind's own data, zeros at the beginning  */
    void (*declare)(parity *p, void *self); /* the module that the metadata describes, in p->P */
    void (*forward)(parity *p, void *self); /* inputs -> outputs, on p->T                      */
    void (*run)(parity *p);                 /* instead of both, where there is no such module  */
    int variant;                            /* for functions that serve several kinds          */
    bool large;   /* a model of full size: runs in f32 unless asked otherwise */
    bool no_bf16; /* no limits for bf16, or a loss whose terms cancel         */
} par_kind;
#define PAR_MODULE(name, type, begin, run)                                                         \
    .kind = (name), .size = sizeof(type), .declare = (begin), .forward = (run)
extern const par_kind par_lm_kinds[], par_lsla_kinds[], par_cvt_kinds[], par_vil_kinds[],
    par_optim_kinds[];

/* How a key was read, which says what other values the audit tries. */
typedef enum par_form {
    PAR_TEXT,
    PAR_NUMBERS,
    PAR_FLAG,
    PAR_WORD,
    PAR_NAMES,
    PAR_JSON,
    PAR_MODEL
} par_form;

typedef struct par_key {
    const char *key, *value;
    bool read;
    par_form form;
    const char *const *words; /* PAR_WORD: all legal ones, NULL at the end */
} par_key;

/* An input whose gradient is compared: "grad.NAME", "gradnorm.NAME", NAME being "input.x". */
typedef struct par_input {
    const char *name;
    tp_tensor x;
    struct par_input *next;
} par_input;

struct parity {
    const parity_opts *o;
    parity_result *r;
    tp_file *F;
    const par_kind *kind;
    tp_dtype real; /* of parameters and tables: f32 for bf16 */
    tp_params *P;
    tp_tape *T;
    par_key *key; /* the metadata, changed as asked */
    int keys;
    bool *seen;   /* of each tensor of F             */
    int compared; /* tensors                         */
    bool failed;
    bool train;             /* the case's mode                                     */
    int64_t dropped;        /* elements of P that the case's module does without   */
    par_input *input;       /* of this forward pass, the last one first            */
    tp_tensor loss;         /* so far: the kind's own, or the sum over the probes  */
    double terms;           /* L2 norm of the products with the probes             */
    int outputs;            /* of this forward pass                                */
    const char *suffix;     /* of outputs' names: "_train" in a second pass        */
    struct par_block *heap; /* what lives until the end of the case                */
    json_t *json;           /* objects of the metadata by key, unread members only */
};

/* ---- one case ---- parity.c */

/* Reads the file, finds the kind, runs it; as parity_run. par_close may follow any result. */
int par_run(parity *p, const char *path, const parity_opts *o, parity_result *r);
void par_release(parity *p); /* its tape and parameters only */
void par_close(parity *p);
/* The i-th kind of all tables; NULL past the last. */
const par_kind *par_kind_at(int i);

/* Notes a failure; the first one is kept. */
void par_fail(parity *p, const char *fmt, ...) TP_PRINTF(2, 3);
/* The same with the error of tape, parameters or file, if there is one. True: no failure so far. */
bool par_ok(parity *p);
/* n zeroed elements that live until the end of the case; NULL: failed. */
void *par_alloc(parity *p, int64_t n, size_t size);
/* A formatted name that lives as long; "" if there is no memory. */
const char *par_name(parity *p, const char *fmt, ...) TP_PRINTF(2, 3);

/* ---- metadata ---- parity_meta.c; absent keys have the given default */

enum { PAR_NEEDED = -9999 }; /* as a default: the key must be there */

bool par_given(const parity *p, const char *key); /* does not count as reading it */
bool par_is_prose(const parity *p, const char *key);
const char *par_text(parity *p, const char *key); /* NULL: absent */
const char *par_model_name(parity *p);            /* the key `model` */
int64_t par_int(parity *p, const char *key, int64_t dflt, int64_t least, int64_t most);
int64_t par_size(parity *p, const char *key, int64_t dflt);  /* 1 ... */
int64_t par_count(parity *p, const char *key, int64_t dflt); /* 0 ... */
bool par_flag(parity *p, const char *key, bool dflt);
double par_num(parity *p, const char *key, double dflt);
/* Which of the words (NULL at the end) the value is. */
int par_word(parity *p, const char *key, int dflt, const char *const *words);
/* A list of numbers separated by commas; n: how many (0: absent). Never NULL. */
const double *par_list(parity *p, const char *key, int64_t *n);
/* The same for whole numbers, at least `least`. */
const int64_t *par_sizes(parity *p, const char *key, int64_t least, int64_t *n);
/* A list of names with blanks between: is one in it? The next one from *at on (NULL: the first);
 * NULL at the end. */
bool par_names(parity *p, const char *key, const char *name);
const char *par_next_name(parity *p, const char *key, const char **at);
/* A JSON object, {} if the key is absent; NULL: failed. Its members are taken out with
 * par_json_num; what remains at the end of the case is a failure. */
json_t *par_json(parity *p, const char *key);
double par_json_num(parity *p, const char *key, json_t *object, const char *member, double dflt);

/* For options of optimisers where 0 stands for the default. */
static inline double par_nonzero(double x)
{
    return x == 0.0 ? 1e-300 : x;
}

/* Fails if the file gives another value than the one that tensors or the library have. */
void par_same(parity *p, const char *key, int64_t actual);
void par_fixed(parity *p, const char *key, double actual);

/* ---- tensors of the file ---- parity_tensors.c */

bool par_has(const parity *p, const char *name);
bool par_has_any(const parity *p, const char *prefix);
/* How many of PREFIX0, PREFIX1, ... there are. */
int64_t par_series(const parity *p, const char *prefix);
/* One axis of size 0 where there is no such tensor. */
tp_shape par_shape(const parity *p, const char *name);
int64_t par_numel(tp_shape s);
void par_saw(parity *p, const char *name); /* counts as compared */
/* Contents; never NULL unless failed. shape may be NULL. */
double *par_values(parity *p, const char *name, tp_shape *shape);
int64_t *par_integers(parity *p, const char *name, tp_shape *shape);

/* "input.NAME" on the tape, floating tensors in the compute dtype, integers as they are. par_take:
 * wants a gradient, which is compared afterwards. */
tp_tensor par_tensor(parity *p, const char *name);
tp_tensor par_take(parity *p, const char *name);
/* Images "input.NAME" [B,C,H,W], or where it is not stored made by the fill rule from input_fill
 * and input_shape; channels last [B,H,W,C]. */
tp_tensor par_images(parity *p, const char *name);
void par_image_size(parity *p, const char *name, int64_t size[2]); /* height, width */
tp_tensor par_channels_last(tp_tape *T, tp_tensor x);              /* [B,C,H,W] -> [B,H,W,C] */
tp_tensor par_channels_first(tp_tape *T, tp_tensor x);             /* [B,H,W,C] -> [B,C,H,W] */
/* A matrix in p->real, rounded on the host: not every device knows f64. */
tp_tensor par_matrix(parity *p, int64_t rows, int64_t columns, const double *x);
/* x as doubles, which live until the end of the case; NULL: failed. */
double *par_read(parity *p, tp_tensor x);

/* The fill rule: element i of the uniform numbers in [0,1) for the name with that hash. */
uint64_t par_hash(const char *name);
double par_uniform(uint64_t hash, int64_t i);

/* ---- parameters ---- parity_params.c */

/* Every parameter and buffer of p->P from "param.*" and "buffer.*", or by the fill rule on their
 * names; counts of parameters that the metadata state are compared. */
void par_load(parity *p);
/* All "grad.*" and "gradnorm.*" of parameters. One that backward did not reach has zeros. */
void par_check_grads(parity *p);
/* All "output.buffer.*" and "output.buffernorm.*". */
void par_check_buffers(parity *p);

/* ---- comparing ---- parity_compare.c: relative to the largest magnitude of the reference, within
 * the limits of the cases' README; tensors of zeros and those named in `zero_grads` absolutely.
 * Gradients in bf16 are compared by their norms, with a limit of our own: rounding takes values
 * over the kink of ReLU, which moves single elements far and norms by up to 1e-1, on the CPU as on
 * a GPU. What the file does not have is not compared. */
typedef enum par_class { PAR_OUTPUT, PAR_GRADIENT } par_class;
double par_limit(const parity *p, par_class c);
/* For what is computed in double whatever the precision: the rounding of the stored tensor. */
double par_exact(const parity *p, const char *name);
bool par_zero_in_theory(parity *p, const char *name);

void par_check(parity *p, const char *name, const double *got, int64_t n, double limit);
void par_check_abs(parity *p, const char *name, const double *got, int64_t n, double limit);
void par_check_one(parity *p, const char *name, double got, double limit);
/* A sum of terms with that L2 norm. In f32 and bf16 the limit is relative to the norm where the sum
 * is smaller: terms that cancel leave their rounding behind. */
void par_check_sum(parity *p, const char *name, double got, double terms, double limit);
void par_check_integers(parity *p, const char *name, const int64_t *got, int64_t n);
void par_check_tensor(parity *p, const char *name, tp_tensor x); /* an output, by its full name */
tp_tensor par_norm(tp_tape *T, tp_tensor x);                     /* L2, a scalar */

/* ---- cases of modules ---- parity_module.c */

void par_run_module(parity *p);

/* p->P and p->T, for the mode and precision of the case. */
void par_begin(parity *p);
/* The configuration of the model that the key `model` names in the library's table, made for images
 * of that size; dflt: its name where there is no such key. False: failed. */
bool par_model(parity *p, const tp_model *model, const char *dflt, const int64_t image[2],
               tp_model_cfg *c);

/* An output: compared with "output.NAME", and multiplied with its probe ("input.probe.NAME",
 * "input.probe_NAME"; the first output of a pass also with "input.probe"). */
void par_output(parity *p, const char *name, tp_tensor x);
/* Does the file ask for it, as a result or by a probe? */
bool par_wants(const parity *p, const char *name);
/* A scalar that is differentiated instead of the probes; several are added. */
void par_loss(parity *p, tp_tensor loss);
/* Logits [B,classes] of a classifier of full size: an output, whose loss is the mean cross entropy
 * with one class for all images (target_class, 1), or with -1 with input.labels. */
void par_classify(parity *p, tp_tensor logits);
/* Compares "output.loss", differentiates it, compares all gradients. */
void par_differentiate(parity *p);

#endif
