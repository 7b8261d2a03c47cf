/* params.h - internals of parameter sets: names, the block of values, initial values. */
#ifndef TP_PARAMS_H
#define TP_PARAMS_H

#include <tapegrad/lora.h>
#include <tapegrad/params.h>

#include "autograd/nodes.h"
#include "tensor/left.h"

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

/* Follows the gradients of the last backward before a step: train/peers/exchange.c. */
typedef struct tp_follower {
    /* A backward begins. Each parameter's node->pending counts its uses to come. */
    void (*begins)(void *env);
    /* Backward has passed the last use of a parameter, whether it reached it or not. */
    void (*passed)(void *env, const tp_node *param);
} tp_follower;

/* Low-rank adaptations (lora.h): which modules get them, and those that have one. */
typedef struct tp_lora_node {
    tp_lora_m m;
    tp_tensor weight;
    struct tp_lora_node *next;
} tp_lora_node;

typedef struct tp__lora {
    tp_lora_opts o;
    tp_lora_node *nodes;
    int count;
    bool declaring; /* an adaptation, which is not frozen */
} tp__lora;

#define TP_LORA_A "lora_A.weight"
#define TP_LORA_B "lora_B.weight"

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
    struct tp_room *rooms; /* of tp_params_alloc; NULL: none */
    tp__lora *lora;        /* NULL: none */
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
    const char *swap;              /* the call that swapped them in last */
    tp_err grad_err;               /* a failed backward poisoned the gradients */
    tp_node *norm;                 /* scalar of tp_clip_grad_norm */
    tp_buf *norm_buf;
    tp_grad_hook hook;
    void *hook_env;
    struct tp_exchange *exchange; /* NULL: none */
    const tp_follower *follower;  /* of the exchange, while it awaits a backward; else NULL */
};

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

/* params_pattern.c */
/* `*` matches any characters, also dots, `?` one. */
bool tp__matches(const char *pattern, const char *name);
/* Applies tp_init_by_name; false: P failed. */
bool tp__init_rows(tp_params *P);

/* params_lora.c */
bool tp__lora_freezes(const tp_params *P, const char *name); /* that is declared now */
bool tp__lora_complete(tp_params *P); /* false: P failed, since no module is adapted */

bool tp__has_lora(const tp_file *F); /* any adaptation; nn/lora.c */

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
