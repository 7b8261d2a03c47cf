/* parity_case.h - one case while it runs, shared by all kinds.
 *
 * These functions read all of a case and record what was read: a tensor that was not compared and a
 * configuration key that was not read are failures at the end. Only the first failure is kept;
 * after it nothing is compared and getters return safe values.
 *
 * A kind is a row of a table. Most kinds declare a module from the metadata and run it forward; the
 * rest (load, probe, backward, comparisons) is common (parity_module.c). Memory that these
 * functions allocate lives until the end of the case. */
#ifndef PARITY_CASE_H
#define PARITY_CASE_H

#include <jansson.h>

#include <tapegrad/image.h>
#include <tapegrad/model.h>

#include "parity.h"

typedef struct parity parity;

/* What the module of a row reads and gives. */
typedef enum par_in {
    PAR_IMAGES, /* images, "input.x" or called par_kind.x, [B,C,H,W] -> [B,H,W,C]             */
    PAR_MAP,    /* input.x [B,H*W,D] -> [B,H,W,D]; par_kind.keys hold H and W                 */
    PAR_GRID,   /* input.x [B,c+H*W,D] and a tensor [H,W,0]; par_kind.keys hold H, W and c    */
    PAR_SERIES, /* input.x [B,N,D]                                                            */
} par_in;
typedef enum par_out {
    PAR_SAME,     /* as it is                  */
    PAR_TOKENS,   /* [B,H,W,D] -> [B,H*W,D]    */
    PAR_CHANNELS, /* [B,H,W,D] -> [B,D,H,W]    */
    PAR_LOGITS,   /* as by par_classify        */
} par_out;

/* A kind of case. Most have a module. If it is a model of the library or a part of one, its row
 * says everything (parity_row.c): which keys of the metadata are which members of the
 * configuration, what the module reads, and what it gives. Functions add what a row cannot say, or
 * replace it. */
typedef struct par_kind {
    const char *kind; /* NULL ends a table */
    int variant;      /* for functions that serve several kinds */
    bool large;       /* a full-size model: runs in f32 unless asked otherwise            */
    bool own_loss;    /* compares output.loss itself, which is not what is differentiated */
    bool no_bf16;     /* has no limits for bf16, or a loss whose terms cancel             */
    bool (*too_coarse)(parity *p); /* has this case no limits for bf16? NULL: it has      */

    /* The module: the model, or its part of that name. The configuration of a part has cfg_size
     * bytes; if `of_model`, it begins with a pointer to the model's, and what follows describes the
     * model's. */
    const tp_model *model;
    const char *part;
    size_t cfg_size;
    bool of_model;
    /* The module's name in the parameters. NULL: the metadata's param_prefix, or none. */
    const char *name;
    /* Of the configuration. NULL: those by which checkpoints store the model. */
    const tp_model_member *members;
    /* "depths=depth split=split_size": members whose keys have another name. */
    const char *spelled;
    /* "patch=4 eps_norm=1e-5": keys of which the library has only that value. */
    const char *fixed;
    /* Members keep its values where the metadata lack them; a number that is 0 here is needed.
     * NULL: zeros. */
    const void *base;
    /* The base is the preset that the metadata name, by default this one; "": they must name one.
     * NULL: it is none. */
    const char *preset;
    /* Read and check what members cannot express, before and after declaration. */
    void (*check)(parity *p, void *cfg);
    void (*finish)(parity *p, void *self);
    par_in in;
    const char *x, *keys[3];
    par_out out;
    const char *y; /* the output's name; NULL: "y" */

    /* self: memory of that size, initially zero, which begins with the module; 0: it is the module.
     * declare: for kinds without `model`, declares a module in p->P. forward: inputs -> outputs, on
     * p->T. run: replaces all of it, for kinds without a module. */
    size_t size;
    void (*declare)(parity *p, void *self);
    void (*forward)(parity *p, void *self);
    void (*run)(parity *p);
} par_kind;

/* clang-format off */
#define PAR_MODULE(name, type, begin, run)                                                         \
    .kind = (name), .size = sizeof(type), .declare = (begin), .forward = (run)
/* A part of a model, with the type of its configuration, or of the model's, and their members. */
#define PAR_PART(name, its_model, its_part, type, ...)                                             \
    .kind = (name), .model = &(its_model), .part = (its_part), .cfg_size = sizeof(type),           \
    .members = (const tp_model_member[]){ __VA_ARGS__, { 0 } }
/* A whole model with other members than those of checkpoints. */
#define PAR_WHOLE(name, its_model, ...)                                                            \
    .kind = (name), .model = &(its_model), \
    .members = (const tp_model_member[]){ __VA_ARGS__, { 0 } }
#define PAR_ON_MAP(height, width) .in = PAR_MAP, .keys = { height, width }, .out = PAR_TOKENS

/* Members: a number from 1 on, one from 0 on, n numbers from 1 on, a real number, a flag, and its
 * opposite. */
#define PAR_WIDTH(x, wide, narrow) (sizeof(x) == 8 ? (wide) : (narrow))
#define PAR_OF(type, member) (((type *)0)->member)
#define PAR_SIZE(key, type, member)                                                                \
    { (key), PAR_WIDTH(PAR_OF(type, member), TP_MEMBER_INT64, TP_MEMBER_INT), \
      .at = offsetof(type, member) }
#define PAR_COUNT(key, type, member)                                                               \
    { (key), PAR_WIDTH(PAR_OF(type, member), TP_MEMBER_INT64, TP_MEMBER_INT), \
      .at = offsetof(type, member), .optional = true }
#define PAR_LIST(key, type, member, n)                                                             \
    { (key), PAR_WIDTH(PAR_OF(type, member)[0], TP_MEMBER_INT64S, TP_MEMBER_INTS), \
      .at = offsetof(type, member), .count = (n) }
#define PAR_REAL(key, type, member) { (key), TP_MEMBER_REAL, .at = offsetof(type, member) }
#define PAR_BOOL(key, type, member) { (key), TP_MEMBER_FLAG, .at = offsetof(type, member) }
#define PAR_NOT(key, type, member)  { (key), TP_MEMBER_NOT, .at = offsetof(type, member) }
/* clang-format on */

extern const par_kind par_lm_kinds[], par_lsla_kinds[], par_cvt_kinds[], par_vil_kinds[],
    par_lra_kinds[], par_optim_kinds[], par_baseline_kinds[], par_window_kinds[],
    par_roberta_kinds[], par_detection_kinds[], par_select_kinds[], par_scene_kinds[],
    par_pyramid_kinds[], par_retinanet_kinds[], par_rcnn_kinds[];

/* How a key was read, which decides the changes that the audit tries. */
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
    const char *const *words; /* PAR_WORD: all legal words, then NULL */
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
    par_key *key; /* the metadata, with o->change applied */
    int keys;
    bool *seen;   /* for each tensor of F            */
    int compared; /* number of compared tensors      */
    bool failed;
    bool train;             /* the case's mode                                       */
    int64_t dropped;        /* elements of P that the case's module lacks            */
    par_input *input;       /* inputs of this forward pass, last one first           */
    tp_tensor loss;         /* so far: the kind's own, or the sum over the probes    */
    double terms;           /* L2 norm of the products with the probes               */
    int outputs;            /* outputs of this forward pass                          */
    const char *suffix;     /* of output names: "_train" in a second pass            */
    struct par_block *heap; /* memory that lives until the end of the case           */
    json_t *json;           /* unread members of the metadata's JSON objects, by key */
};

/* ---- one case ---- parity.c */

/* Reads the file, finds the kind and runs it. Returns the result of parity_run. Call par_close
 * after any result. */
int par_run(parity *p, const char *path, const parity_opts *o, parity_result *r);
void par_release(parity *p); /* frees tape and parameters only */
void par_close(parity *p);
/* Tables (.tsv) are cases without metadata, in parity_tables.c. Their heading says what they hold;
 * every row is compared, exactly. */
bool par_is_table(const char *path);
int par_run_rows(parity_result *r, const char *path, const parity_opts *o);
/* The i-th kind of all tables; NULL past the last. */
const par_kind *par_kind_at(int i);

/* Fails the case; only the first reason is kept. */
void par_fail(parity *p, const char *fmt, ...) TP_PRINTF(2, 3);
/* The same for metadata that are impossible: a number out of range, an unknown word, what the
 * library refuses. */
void par_illegal(parity *p, const char *fmt, ...) TP_PRINTF(2, 3);
/* Fails the case with the reason of its parameters unless a call of theirs is done. */
void par_params(parity *p, bool done);
/* Fails the case if tape, parameters or file have failed. True if there is no failure so far. */
bool par_ok(parity *p);
/* n zeroed elements that live until the end of the case; NULL: failed. */
void *par_alloc(parity *p, int64_t n, size_t size);
/* A formatted name with the same lifetime, or a stem and a number; "" if out of memory. */
const char *par_name(parity *p, const char *fmt, ...) TP_PRINTF(2, 3);
const char *par_nth(parity *p, const char *stem, int64_t number);

/* ---- metadata ---- parity_meta.c; absent keys have the given default */

enum { PAR_NEEDED = -9999 }; /* as a default: the key is required */

bool par_given(const parity *p, const char *key); /* does not count as reading it */
bool par_is_prose(const parity *p, const char *key);
const char *par_text(parity *p, const char *key); /* NULL: absent */
const char *par_model_name(parity *p);            /* the key `preset`, or `model` */
int64_t par_int(parity *p, const char *key, int64_t dflt, int64_t least, int64_t most);
int64_t par_size(parity *p, const char *key, int64_t dflt);  /* >= 1 */
int64_t par_count(parity *p, const char *key, int64_t dflt); /* >= 0 */
bool par_flag(parity *p, const char *key, bool dflt);
double par_num(parity *p, const char *key, double dflt);
/* The index of the value among the words, which end with NULL. */
int par_word(parity *p, const char *key, int dflt, const char *const *words);
/* A comma-separated list of n numbers (0: absent). Never NULL. */
const double *par_list(parity *p, const char *key, int64_t *n);
/* The same for whole numbers, at least `least`. */
const int64_t *par_sizes(parity *p, const char *key, int64_t least, int64_t *n);
/* Lists of one number for each stage. *n: how many stages there are, 0 if this list decides it. The
 * list must be there, with at most `most` numbers of at least `least`. */
void par_stages(parity *p, const char *key, int64_t least, int most, int64_t *x, int *n);
void par_stage_ints(parity *p, const char *key, int least, int most, int *x, int *n);
/* Height and width. par_square: or one number for both. */
void par_sides(parity *p, const char *key, int64_t sides[2]);
void par_square(parity *p, const char *key, int64_t sides[2]);
/* A space-separated list of names. par_names: true if it contains the name. par_next_name: the next
 * name from *at on (NULL: the first), NULL at the end. */
bool par_names(parity *p, const char *key, const char *name);
const char *par_next_name(parity *p, const char *key, const char **at);
/* A JSON object, {} if the key is absent; NULL: failed. par_json_num removes a member; members that
 * remain at the end of the case are a failure. */
json_t *par_json(parity *p, const char *key);
double par_json_num(parity *p, const char *key, json_t *object, const char *member, double dflt);
/* A list of equally long lists of numbers, [rows,columns]. Never NULL. */
const double *par_nested(parity *p, const char *key, int64_t *rows, int64_t *columns);

/* For options of optimisers in which 0 means the default. */
static inline double par_nonzero(double x)
{
    return x == 0.0 ? 1e-300 : x;
}

/* Fails if the value differs from the actual one: of the tensors (same) or the library (fixed). */
void par_same(parity *p, const char *key, int64_t actual);
void par_fixed(parity *p, const char *key, double actual);

/* ---- tensors of the file ---- parity_tensors.c */

bool par_has(const parity *p, const char *name);
bool par_has_any(const parity *p, const char *prefix);
/* The number of tensors PREFIX0, PREFIX1, ... */
int64_t par_series(const parity *p, const char *prefix);
/* One axis of size 0 if there is no such tensor. */
tp_shape par_shape(const parity *p, const char *name);
int64_t par_numel(tp_shape s);
/* Contents; never NULL unless failed. shape may be NULL. */
double *par_values(parity *p, const char *name, tp_shape *shape);
int64_t *par_integers(parity *p, const char *name, tp_shape *shape);
float *par_floats(parity *p, const char *name, tp_shape *shape); /* shape is needed */

/* Reads exactly n integers; NULL: failed. */
int64_t *par_integers_of(parity *p, const char *name, int64_t n);
/* The same from 0 to most. */
int *par_categories(parity *p, const char *name, int64_t n, int64_t most);

/* "input.NAME" on the tape: floats in the compute dtype, integers unchanged. par_take: with a
 * gradient, which is compared afterwards. */
tp_tensor par_tensor(parity *p, const char *name);
tp_tensor par_take(parity *p, const char *name);
/* Images "input.NAME" [B,C,H,W], or filled according to input_fill and input_shape if they are not
 * stored; returned channels last, [B,H,W,C]. */
tp_tensor par_images(parity *p, const char *name);
void par_image_size(parity *p, const char *name, int64_t size[2]); /* height, width */
tp_tensor par_channels_last(tp_tape *T, tp_tensor x);              /* [B,C,H,W] -> [B,H,W,C] */
tp_tensor par_channels_first(tp_tape *T, tp_tensor x);             /* [B,H,W,C] -> [B,C,H,W] */
/* A matrix in p->real, rounded on the host because not every device supports f64. */
tp_tensor par_matrix(parity *p, int64_t rows, int64_t columns, const double *x);
/* x as doubles that live until the end of the case; NULL: failed. */
double *par_read(parity *p, tp_tensor x);

/* The fill rule: uniform number i in [0,1) for the name with that hash. */
uint64_t par_hash(const char *name);
double par_uniform(uint64_t hash, int64_t i);

/* ---- parameters ---- parity_params.c */

/* Loads every parameter and buffer of p->P from "param.*" and "buffer.*", or fills it by the rule
 * for its name. Compares the metadata's counts of parameters. */
void par_load(parity *p);
/* Values of a parameter; get gives new memory, NULL: failed. */
void par_set(parity *p, tp_tensor w, const double *x);
double *par_get(parity *p, tp_tensor w);
/* Compares all "grad.*" and "gradnorm.*" of parameters; one that backward did not reach has
 * zeros. */
void par_check_grads(parity *p);
/* Compares all "output.buffer.*" and "output.buffernorm.*". */
void par_check_buffers(parity *p);

/* ---- comparing ---- parity_compare.c
 *
 * Errors are relative to the largest magnitude of the reference, within the limits of the cases'
 * README; for tensors of zeros and those named in `zero_grads` they are absolute. bf16 gradients
 * are compared by their norms, with a limit of our own: rounding moves values across the kink of
 * ReLU, which changes single elements a lot and norms by up to 1e-1, on the CPU and on a GPU.
 * Tensors that the file lacks are not compared. */
typedef enum par_class { PAR_OUTPUT, PAR_GRADIENT } par_class;
double par_limit(const parity *p, par_class c);
/* For values that are always computed in double: the rounding of the stored tensor. */
double par_exact(const parity *p, const char *name);
bool par_zero_in_theory(parity *p, const char *name);

void par_check(parity *p, const char *name, const double *got, int64_t n, double limit);
void par_check_abs(parity *p, const char *name, const double *got, int64_t n, double limit);
void par_check_one(parity *p, const char *name, double got, double limit);
/* Does the file have "STEM.NAME" or the L2 norm "STEMnorm.NAME"? Compares with both and returns the
 * norm. */
bool par_has_either(parity *p, const char *stem, const char *name);
double par_check_either(parity *p, const char *stem, const char *name, const double *got, int64_t n,
                        par_class c);
/* A sum of terms with that L2 norm. In f32 and bf16 the limit is relative to the norm if the sum is
 * smaller, because terms that cancel leave rounding errors. */
void par_check_sum(parity *p, const char *name, double got, double terms, double limit);
void par_check_integers(parity *p, const char *name, const int64_t *got, int64_t n);
void par_check_ints(parity *p, const char *name, const int *got, int64_t n);
void par_check_bytes(parity *p, const char *name, const uint8_t *got, int64_t n);
void par_check_tensor(parity *p, const char *name, tp_tensor x); /* an output, by its full name */
tp_tensor par_norm(tp_tape *T, tp_tensor x);                     /* L2, a scalar */

/* ---- cases of modules ---- parity_module.c */

void par_run_module(parity *p);

/* Creates p->P and p->T for the mode and precision of the case. */
void par_begin(parity *p);
/* Compares an output with "output.NAME" and multiplies it with its probe ("input.probe.NAME",
 * "input.probe_NAME"; for the first output of a pass also "input.probe"). */
void par_output(parity *p, const char *name, tp_tensor x);
/* True if the file has this output or a probe for it. */
bool par_wants(const parity *p, const char *name);
/* Adds a scalar that is differentiated instead of the probes. */
void par_loss(parity *p, tp_tensor loss);
/* Logits [B,classes] of a full-size classifier: an output whose loss is the mean cross entropy with
 * one class for all images (target_class, default 1), or with input.labels if that is -1. */
void par_classify(parity *p, tp_tensor logits);
/* Compares "output.loss", differentiates the loss and compares all gradients. */
void par_differentiate(parity *p);

/* ---- kinds that are a row ---- parity_row.c */

size_t par_module_size(const par_kind *k);
void par_declare_row(parity *p, void *self);
void par_run_row(parity *p, void *self);

/* Any model of the table with its module behind it: a kind of full-size classifiers. */
typedef struct par_full {
    const tp_model *model;
    void *module;
} par_full;
void par_declare_full(parity *p, void *self);
void par_run_full(parity *p, void *self);

/* ---- images ---- parity_images.c, parity_metrics.c; kinds that several families have */

/* Fills image with the tensor `name` [H,W,3], and compares an image with one. */
void par_read_image(parity *p, const char *name, tp_image *image);
void par_check_image(parity *p, const char *name, const tp_image *image);
/* Compares floats [B,H,W,C] with the tensor, whose channels come first. s: that tensor's shape
 * without B: C, H, W. */
void par_check_pixels(parity *p, const char *name, const float *x, int64_t B, const int64_t s[3],
                      double limit);
/* Three numbers of the metadata, one for each channel. */
void par_three(parity *p, const char *key, double least, double most, float x[3]);

void par_run_images(parity *p);
void par_run_mixing(parity *p);
void par_run_metrics(parity *p); /* parity_metrics.c */

#endif
