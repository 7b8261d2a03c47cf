/* optim_kind.h - for writing optimisers. Not part of tapegrad.h; unstable until 1.0.
 *
 * An optimiser is one constant tp_optim_kind: its options, its state, and a kernel for each backend
 * that updates all parameters in one call. tp_optim_register adds it to the library's own.
 * tp_optim_new does the rest: factors, frozen parameters, errors, tp_optim_set, checkpoints; and
 * training programs get its flags. */
#ifndef TAPEGRAD_OPTIM_KIND_H
#define TAPEGRAD_OPTIM_KIND_H

#include <tapegrad/op.h>
#include <tapegrad/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_OPTIM_OPTIONS = 8, TP_OPTIM_STATES = 3, TP_OPTIM_SUMS = 2 };

/* The gradient of one parameter, or of a stretch of it if the kind is elementwise and processes
 * divide the moments (peers.h); its range in the blocks of values and states, and its numbers of a
 * step. */
typedef struct tp_segment {
    void *grad;        /* numel elements of the values' dtype, on the device */
    int64_t at, numel; /* first element in the block of values; elements, at least one */
    int64_t block;     /* number of its first block of 4096 elements (library kernels) */
    /* first element in each state; the same in all states of the parameter's shape */
    int64_t own[TP_OPTIM_STATES];
    /* the parameter's last two sizes: numel / (rows * cols) matrices; 1 if absent */
    int64_t rows, cols;
    int ndim;         /* axes of the parameter */
    bool taken;       /* what tp_optim_kind.takes said */
    int64_t updates;  /* of this parameter, including this one */
    double lr, decay; /* learning rate and weight decay, times the parameter's factors */
    double l2, rate, root, before, after; /* tp_optim_kind.numbers computes these */
} tp_segment;

typedef struct tp_segments {
    tp_segment *at;
    int64_t n, blocks;
} tp_segments;

/* Element i, 0 <= i < numel, of the gradient of a segment of call c, in any dtype: tp_ld for
 * gradients, on the CPU. */
TP_API double tp_optim_grad(const tp_call *c, const tp_segment *s, int64_t i);

/* What c->attr points to. */
typedef struct tp_optim_attr {
    tp_segments s;              /* parameters that have a gradient and at least one element, or the
                                   stretches of them that this process updates */
    double scale;               /* factor on the gradients (tp_grad_scale) */
    double k[TP_OPTIM_OPTIONS]; /* the options, or results of tp_optim_kind.constants */
    /* on a GPU, in its memory: this struct, and its segments right behind it. NULL on the CPU */
    const struct tp_optim_attr *there;
} tp_optim_attr;

typedef struct tp_optim_option {
    const char *name; /* NULL ends the table */
    double usual;     /* its value if none is given */
    double usual_f64; /* the same over parameters in f64, if not 0 */
    double low, high; /* low <= value < high */
    bool closed;      /* low <= value <= high */
    bool flag;        /* 0 or 1 */
    bool at_start;    /* read only when the optimiser is created: tp_optim_set refuses it */
    bool on_host;     /* decides which kernels run: a recording with another value is dropped */
    /* Of its flag in training programs, "Weight decay", without a full stop; NULL: no flag. Options
     * of one name share the flag of the first. */
    const char *help;
    /* least value of the flag, if not `low`: without an epsilon, a step of 0 may be 0 / 0 */
    double flag_low;
} tp_optim_option;

typedef struct tp_optim_state {
    const char *name;      /* in checkpoints: "optim.NAME.PARAMETER"; NULL ends the table */
    const char *only_with; /* exists only while this option is not 0; NULL: always */
    const char *starts_at; /* the option that holds its initial value; NULL: 0 */
    /* its shape for a parameter of that shape, ndim -1 for none; NULL: the parameter's. taken: what
     * tp_optim_kind.takes said */
    tp_shape (*shape)(tp_shape of, bool taken);
} tp_optim_state;

/* An option named "weight_decay" is multiplied by each parameter's factor and passed as
 * tp_segment.decay. A kernel is called with no x and y = { values, states .. }, flat views of the
 * whole blocks, in which it may write only the segments' elements; the segments give the gradients.
 * A state that does not exist has no data. On the CPU all floats have the type c->real. The kind
 * must live as long as the process once it is registered. */
typedef struct tp_optim_kind {
    const char *name;   /* in tp_optim_new, --optimizer, messages and profiles */
    const char *stored; /* in checkpoints: the kind that has the same state; NULL: name */
    const char *about;  /* a sentence for the help of --optimizer; may be NULL */
    tp_optim_option options[TP_OPTIM_OPTIONS];
    tp_optim_state states[TP_OPTIM_STATES];
    bool counts; /* tp_segment.updates matters: the counts are stored in checkpoints */
    /* An element's update depends on its own value, gradient and states alone, and no state has its
     * own shape: a segment may be any stretch of a parameter. false: processes that divide the
     * moments have whole parameters */
    bool elementwise;
    /* Chooses between two rules of the kernel for each parameter by its name and shape, when the
     * optimiser is created, unless tp_optim_opts.takes does. Only matrices may be taken. NULL: the
     * kernel has one rule */
    bool (*takes)(const char *name, tp_shape s);
    /* what is wrong with the options together, or NULL */
    const char *(*check)(const double *option);
    void (*constants)(const double *option, double *k); /* NULL: k = the options */
    /* Numbers of the whole optimiser that each step changes, by their names in checkpoints
     * ("optim.NAME"). They start at 0; advance moves them to step n = 1, 2 .. with rate lr, and may
     * change k. If the step fails, it has not happened. */
    const char *sums[TP_OPTIM_SUMS];
    void (*advance)(const double *option, double lr, int64_t n, double *sum, double *k);
    void (*numbers)(const double *option, tp_segment *s); /* NULL: lr and decay suffice */
    /* On a GPU, step takes everything that may differ between two steps from attr.there: scale, k,
     * and the numbers of the segments. false: tp_step is refused in a step of tp_capture */
    bool recordable;
    tp_kernel step[TP_NBACKENDS];
    tp_work work[TP_NBACKENDS]; /* NULL: none */
    /* Replaces the values by those to evaluate with, for tp_optim_swap; called as step is, with all
     * parameters as segments without gradients. NULL: they are the same */
    tp_kernel average[TP_NBACKENDS];
} tp_optim_kind;

/* Adds a row to the optimisers that tp_optim_new and --optimizer know. True if it is one of them,
 * even already; false if another one has its name, if kind or its name is NULL, or beyond
 * TP_OPTIM_KINDS of them. */
enum { TP_OPTIM_KINDS = 32 };
TP_API bool tp_optim_register(const tp_optim_kind *kind);

/* The library's optimisers, then those registered. */
TP_API const tp_optim_kind *tp_optim_kind_at(int i); /* NULL past the last */
TP_API int tp_optim_find(const char *name);          /* its number, or -1 */

#ifdef __cplusplus
}
#endif
#endif
