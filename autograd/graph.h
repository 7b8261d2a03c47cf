/* graph.h - internals of the tape: nodes (tensors), records (applied ops), scopes, parameters.
 *
 * Stale handles are always recognisable: node->gen differs from the handle's, or node->live is
 * false. To that end, nodes of tapes and parameters, and these objects, live in memory that the
 * device recycles and keeps until it closes (tensor/left.h). Buffers are reference counted: a live
 * node owns one reference, a record one for each input or output that it saved. */
#ifndef TP_GRAPH_H
#define TP_GRAPH_H

#include <tapegrad/observe.h>
#include <tapegrad/params.h>
#include <tapegrad/tape.h>
#include <tapegrad/tensor.h>

#include "tensor/left.h"
#include "tensor/shape.h"

#define TP_NO_REC (-1)

/* A tape's nodes have gens from id * TP_TAPE_GENS on: enough that two tapes never share one. */
#define TP_TAPE_GENS (UINT64_C(1) << 40)

typedef struct tp_node tp_node;
struct tp_node {
    uint64_t gen;
    tp_tape *tape;     /* owner; NULL for a parameter            */
    tp_params *params; /* owner of a parameter, else NULL        */
    tp_buf *buf;       /* for a parameter, the block of values   */
    tp_view view;
    tp_buf *grad_buf; /* gradient; NULL: none yet */
    tp_view grad;
    int64_t rec; /* record that produced it, or TP_NO_REC */
    const char *died_in;
    bool live, kept, wants_grad, input, carried;
    /* Derived from a result of tp_grad, which is not differentiated: where tp_grad was called */
    const char *grad_file; /* NULL: none */
    int grad_line;
    bool transient; /* records save its op's inputs instead (transient.c) */
    bool fresh;     /* the running backward added to the gradient, not yet passed on */
    /* parameters only */
    bool frozen, buffer;
    int index, pending; /* pending: uses not yet reached by the running backward (for hooks) */
    uint32_t changes;   /* by tp_param_set, of a buffer; all others count in params->version */
};

struct tp_rec;

/* The function that tp_checkpoint reruns, with the tape's state at its first run. */
typedef struct tp_replay {
    tp_fn f;
    tp_fn_n fn;
    const void *self;
    uint64_t offset, seed;
    bool train;
    tp_dtype compute;
    int nparams;
    tp_node **params;                               /* read by the first run */
    bool *wanted;                                   /* did they want a gradient then? */
    bool (*backward)(tp_tape *T, struct tp_rec *r); /* of record r, its owner */
} tp_replay;

/* One applied op. Arrays have nx and ny elements and live in the tape's arena. */
typedef struct tp_rec {
    const tp_op *op; /* NULL: a checkpoint */
    const void *attr;
    tp_rng rng;
    tp_dtype real;
    bool train, done, view; /* view: y[0] is a piece of x[0] */
    uint32_t wants;         /* bit i: x[i] wanted a gradient when the op was applied */
    uint32_t passes;        /* bit i: the gradient of x[i] equals that of y[0] */
    uint32_t recompute;     /* bit i: x[i] is recomputed where it is needed */
    void **rerun;           /* data of inputs held only to rerun the op; or NULL */
    int uses;               /* during a restore: inputs still waiting for y[0] */
    tp_buf *made;           /* the recomputed y[0], until the last of them has it */
    void *made_data;
    int nx, ny, visible;
    tp_node **x, **y; /* x: NULL if absent; y: visible outputs */
    tp_view *xv, *yv; /* data NULL if not saved */
    tp_buf **xbuf, **ybuf;
    uint64_t *version; /* tp__version of each parameter in x, or in replay->params */
    tp_replay *replay;
    const char *path, *file;
    int line;
} tp_rec;

typedef struct tp_arena_chunk {
    struct tp_arena_chunk *next;
    size_t size, used;
    /* data follows, 64-byte aligned */
} tp_arena_chunk;

typedef struct tp_arena_mark {
    tp_arena_chunk *chunk;
    size_t used;
} tp_arena_mark;

typedef struct tp_scope {
    const char *path;
    size_t first; /* index into open[] of the first tensor created inside */
} tp_scope;

typedef struct tp_nodes { /* a growing array of node pointers */
    tp_node **at;
    size_t n, cap;
} tp_nodes;

/* Bookkeeping of a checkpointed function during its first run. */
typedef struct tp_watch {
    struct tp_watch *outer;
    tp_nodes params;
    uint64_t born; /* tensors with a smaller gen came from outside */
} tp_watch;

/* A carried tensor that a recorded step replaced (capture.c); `now` is copied back to buf. */
typedef struct tp_move {
    tp_buf *buf;
    tp_view view;
    tp_node *now;
    tp_buf *taken;
} tp_move;

struct tp_tape {
    uint64_t id; /* unique on the device; upper bits of its nodes' gens (TP_TAPE_GENS) */
    tp_device *dev;
    tp_err err;
    tp_err rule; /* tp_fail's message on the current op, without name and inputs */
    bool born_failed, freed, train, recording, check_finite, replaying;
    bool saves_all; /* records hold all inputs and outputs (gradcheck.c) */
    tp_dtype compute;
    uint64_t seed, offset, next_gen;
    int64_t ops; /* since reset */
    const char *file;
    int line;
    tp_scope *scopes;
    size_t nscopes, scopes_cap;
    tp_nodes open;    /* live tensors by age; scopes are ranges */
    tp_nodes used;    /* handed out since reset (not carried) */
    tp_nodes spare;   /* recycled nodes                                    */
    tp_nodes carried; /* live carried nodes                                */
    tp_nodes retired; /* replaced carried nodes, valid until reset         */
    tp_nodes chunks;  /* node memory, in arrays                            */
    tp_rec **recs;
    int64_t nrecs;
    size_t recs_cap;
    tp_arena_chunk *arena, *arena_first;
    tp_tensor *reads; /* first parameters of the sets read since reset (tp__set_read) */
    int nreads;
    size_t reads_cap;
    tp_watch *watch;
    tp_observer observer; /* NULL: none */
    void *observer_env;
    bool moving, unsteady; /* a step is recorded; a slot was filled or emptied */
    uint64_t epoch;        /* grows at resets, and when a slot moves outside a recording */
    tp_move *moves;
    int nmoves;
    size_t moves_cap;
};

typedef struct tp_entry {
    char *name;
    tp_node *node;
    tp_init init;
    const char *alias_of; /* the first name, if this is a second one */
    size_t at;            /* byte offset in the block of values */
    bool table;
    tp_buf *copy;  /* bf16 copy of a table; NULL until read by a product */
    tp_buf *own;   /* memory of a buffer */
    void *content; /* initial content of a buffer, until completion */
} tp_entry;

/* One parameter set. Values are one block in which parameters start at multiples of 256 bytes, in
 * order of declaration, tables last; buffers and gradients have their own memory. */
struct tp_params {
    uint64_t id; /* unique on the device, so that users of P notice that it was freed */
    tp_device *dev;
    tp_err err;
    tp_err refusal; /* of the last call that refused its arguments and left P unchanged */
    tp_lock lock;   /* guards completion and bf16 copies, which threads may start at once */
    bool born_failed, freed, blank;
    bool complete;    /* read by tp__is_complete */
    tp_node *missing; /* for parameters that could not be declared; NULL: none */
    tp_dtype dtype;
    uint64_t seed, version;
    tp_entry *entries;
    int n;
    size_t cap;
    tp_names index; /* full name to entry index */
    char path[1024];
    size_t marks[64]; /* path lengths to return to */
    int depth;
    struct tp_room *rooms; /* of tp_params_room; NULL: none */
    tp_init_rule rule;
    void *rule_env;
    const tp_init_row *rows; /* of tp_init_by_name; NULL: none */
    tp_buf *values;
    tp_buf *shadow; /* bf16 copy of the values before the tables, same element layout */
    size_t block_bytes, tables_at; /* tables_at: where the tables begin in the block */
    uint64_t shadow_version;       /* of all bf16 copies */
    int copies;                    /* in bf16, with tables */
    int64_t backwards;             /* completed since the last step */
    bool given;                    /* tp_param_set_grad since the last step */
    int swapped;                   /* averages now swapped into the values */
    tp_err grad_err;               /* a failed backward poisoned the gradients */
    tp_node *norm;                 /* scalar of tp_clip_grad_norm */
    tp_buf *norm_buf;
    tp_grad_hook hook;
    void *hook_env;
};

/* True if all results are empty: then no kernel runs, whatever positions their shapes name, and
 * gradients are zeros. */
static inline bool tp__all_empty(const tp_view *y, int n)
{
    int i = 0;
    while (i < n && y[i].numel == 0) i++;
    return i == n;
}

#define TP_FAILED ((tp_tensor){ NULL, 1 })

/* The mask bit of input or output i; the last bit serves all further ones. */
static inline uint32_t tp__bit(int i)
{
    return 1u << (i < TP_MAX_INPUTS ? i : TP_MAX_INPUTS - 1);
}

static inline tp_tensor tp__handle(const tp_node *n)
{
    return n ? (tp_tensor){ (tp_node *)(uintptr_t)n, n->gen } : TP_FAILED;
}

/* tensor.c: a number is the node tp__number_node with the bits of a double in gen. */
extern tp_node tp__number_node;
static inline bool tp__is_number(tp_tensor x)
{
    return x.node == &tp__number_node;
}
double tp__number_of(tp_tensor x);

/* fail.c */
extern tp_tape tp__no_tape_memory;   /* of tp_tape_new, if out of memory */
tp_tape *tp__some(const tp_tape *T); /* T, or a failed tape in place of NULL               */
bool tp__is_none(const tp_tape *T);  /* T is NULL, freed or one of these: read-only */
tp_tensor tp__fail(tp_tape *T, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);
void tp__no_host_memory(tp_tape *T);
tp_code tp__device_failed(tp_tape *T); /* fails the tape with its device's text */
/* Also names the op that met the failure; usually an earlier op caused it. */
tp_code tp__device_failed_at(tp_tape *T, const char *name, bool backward);

/* nodes.c */
tp_node *tp__node_take(tp_tape *T);        /* live, in no scope; NULL: tape failed         */
void tp__chunks_give(tp_tape *T);          /* T's node memory, when T is freed */
tp_node *tp__node_new(tp_tape *T);         /* live, in the innermost scope; NULL: tape failed */
void *tp__arena(tp_tape *T, size_t bytes); /* zeroed; NULL: tape failed */
/* Arena bytes used by a piece. */
static inline size_t tp__arena_bytes(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}
/* Arena memory taken since `mark` can be returned once no record needs it. */
tp_arena_mark tp__arena_at(const tp_tape *T);
void tp__arena_back(tp_tape *T, tp_arena_mark mark);
/* Returns room for n items: `local`, which holds TP_MAX_INPUTS, or arena memory. NULL: tape
 * failed. */
static inline void *tp__room(tp_tape *T, void *local, int n, size_t size)
{
    return n <= TP_MAX_INPUTS ? local : tp__arena(T, (size_t)n * size);
}
bool tp__nodes_push(tp_nodes *a, tp_node *n);
tp_buf *tp__alloc(tp_tape *T, size_t bytes, const char *what); /* NULL: the tape has failed */
void tp__release(tp_node *n, const char *where);               /* where: the scope left, or NULL */
/* Makes g, of n's size and dtype, n's gradient; takes over g's reference. NULL: none. */
void tp__set_grad(tp_node *n, tp_buf *g);
tp_tensor tp__wrap(tp_tape *T, tp_buf *buf, const tp_view *v); /* takes over a reference of buf */
void tp__rec_release(tp_rec *r);                               /* drops what a record saved */

/* tape.c */
/* The node of a handle, or NULL with the tape failed; `what` names it in the message. */
tp_node *tp__node(tp_tape *T, tp_tensor x, const char *what);
/* The same for a tensor to be read; the first such call creates parameters' values. */
tp_node *tp__node_with_values(tp_tape *T, tp_tensor x, const char *what);
void tp__recs_drop(tp_tape *T, int64_t from);     /* truncates the records to `from`      */
bool tp__note_read(tp_tape *T, tp_params *P);     /* this step reads P; false: out of memory */
tp_params *tp__set_read(const tp_tape *T, int i); /* the set of T->reads[i]; NULL: freed since */

/* run_kernel.c */
tp_code tp__run(tp_tape *T, const tp_call *c, tp_kernel k, bool backward, const char *name);

/* Runs a kernel of op. Bf16 views reach CPU kernels unconverted if op is TP_TAKES_BF16. */
tp_code tp__run_op(tp_tape *T, const tp_call *c, const tp_op *op, bool backward);
/* Copies to the host and waits; false, with the tape failed, on an error. */
bool tp__download(tp_tape *T, void *host, const void *from, size_t bytes);

/* finite.c: false if an element is not finite; T has failed then */
bool tp__check_results(tp_tape *T, const char *name, int nx, const tp_view *x, int ny,
                       const tp_view *y);
bool tp__check_gradients(tp_tape *T, const tp_rec *r, const tp_view *dy, const tp_view *dx);

/* capture.c: notes that a slot's tensor was replaced; NULL: an empty slot. False: out of memory. */
bool tp__carry_note(tp_tape *T, const tp_node *old, tp_node *now);

/* apply.c */
bool tp__push_rec(tp_tape *T, tp_rec *r);

/* backward.c */
bool tp__walk(tp_tape *T, int64_t from, int64_t to);  /* records from-1 down to `to` */
bool tp__versions_match(tp_tape *T, const tp_rec *r); /* false: parameters changed */
/* Notes that n is derived from the tp_grad result made there. */
static inline void tp__mark_gradient(tp_node *n, const char *file, int line)
{
    n->grad_file = file ? file : "an unknown place";
    n->grad_line = line;
}
/* Adds buffer g (of n's size and dtype) to n's gradient; takes over g's reference. The first
 * becomes the gradient; parameters copy buffers that have other owners. */
bool tp__add_grad(tp_tape *T, tp_node *n, tp_buf *g);

/* transient.c: marks a result whose record can rerun, with inputs live or saved */
void tp__mark_transient(tp_tape *T, tp_node *n);
/* Recomputes the record's transient inputs in the mask; false: T has failed. */
bool tp__restore(tp_tape *T, tp_rec *r, uint32_t inputs);

/* params.c */
tp_params *tp__params_some(const tp_params *P); /* P, or a failed set in place of NULL */
tp_node *tp__param_node(tp_params *P);          /* live, P's; NULL: out of memory */
void tp__param_node_free(tp_params *P, tp_node *n);
/* Identifies a parameter's values: changes with every change of P, and when P is freed. Setting a
 * buffer changes only its own, so that model state may change between forward and backward. */
static inline uint64_t tp__version(const tp_node *n)
{
    return n->params ? n->gen << 32 | ((n->params->version + n->changes) & UINT32_MAX) : 0;
}
void tp__params_no_memory(tp_params *P);
/* Checks that P is still the set with this id. False with *e set: it was freed. */
bool tp__params_live(const tp_params *P, uint64_t id, const char *what, tp_err *e);
/* Begins a call that may refuse its arguments: drops the previous refusal. False if P failed. */
bool tp__params_begin(tp_params *P);
tp_entry *tp__entry(const tp_params *P, tp_tensor p, const char *what,
                    tp_err *e); /* NULL: not P's */

/* params_init.c */
/* Resolves kinds that depend on the shape. False, with *e set: impossible. */
bool tp__init_resolve(const char *name, const tp_view *v, tp_init *init, tp_err *e);
/* Draws host's values from key; false: out of memory. */
bool tp__init_draw(const tp_view *host, const tp_init *init, uint64_t key);

/* params_pattern.c: applies tp_init_by_name; false: P failed */
bool tp__init_rows(tp_params *P);

/* params_store.c */
static inline bool tp__is_complete(const tp_params *P)
{
    return __atomic_load_n(&P->complete, __ATOMIC_ACQUIRE);
}
bool tp__params_complete(tp_params *P);
/* The bf16 values. Failures are stored in *error only: P stays usable. */
const void *tp__params_shadow(tp_params *P, const tp_node *n, tp_err *error);
/* False with *e set if averages are swapped in: "WHAT: the parameters hold the averages; ...". */
bool tp__params_hold_values(const tp_params *P, const char *what, tp_err *e);
void tp__params_touch(tp_params *P); /* values changed: raises the version       */

#endif
