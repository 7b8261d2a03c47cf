/* ops_fuzzer.h - internals of fuzz_ops. Every instruction of a program runs twice, on a dry device
 * and on a real one, and both must agree. */
#ifndef OPS_FUZZER_H
#define OPS_FUZZER_H

#include <tapegrad/observe.h>
#include <tapegrad/tapegrad.h>

#include "fuzz.h"
#include "tools/op_calls/op_calls.h"

enum { OPS_SLOTS = 16, OPS_PARAMS = 6, OPS_VALUES = 1 << 13 };
enum { OPS_DRY, OPS_REAL, OPS_WORLDS };

typedef struct ops_world {
    tp_device *D;
    tp_params *P;
    tp_tape *T, *other;
    tp_tensor foreign, carried, param[OPS_PARAMS]; /* foreign: of the other tape */
} ops_world;

typedef struct ops_env {
    const uint8_t *at, *end; /* the rest of the program */
    ops_world w[OPS_WORLDS];
    struct {
        tp_tensor t[OPS_WORLDS];
        bool dry_only; /* too large for the real device, or refused there */
    } slot[OPS_SLOTS];
    int world; /* the world in which the instruction runs */
    int next_slot;
    bool no_tape;     /* this instruction is given NULL                */
    bool dry_only;    /* this instruction is not for the real device   */
    bool apart;       /* the tapes have diverged since the last reset  */
    bool no_memory;   /* some allocation of the real device fails      */
    bool finite;      /* tp_tape_opts.check_finite                     */
    double macs;      /* multiply-adds of this instruction             */
    tp_dtype natural; /* dtype of tensors that fit tape and parameters */
    int checkpoints;
    bool kept; /* devices and tapes are reused */
} ops_env;

/* An input of an op, and its shape in the dry world. */
typedef struct ops_pick {
    tp_tensor t;
    tp_shape s;
} ops_pick;

typedef enum ops_kind { OPS_FLOATS, OPS_IDS, OPS_MASK } ops_kind;

/* ---- ops_draw.c: decodes the next bytes, 0 at the end ---- */
uint8_t ops_byte(ops_env *e);
bool ops_flag(ops_env *e);
int64_t ops_size(ops_env *e);              /* size of an axis, mostly small */
int64_t ops_integer(ops_env *e);           /* any integer, mostly around 0  */
int ops_int(ops_env *e);                   /* the same                      */
int64_t ops_near(ops_env *e, int64_t fit); /* mostly fit                    */
double ops_number(ops_env *e);
tp_shape ops_shape(ops_env *e);
tp_dtype ops_dtype(ops_env *e);
int ops_axis(ops_env *e);

/* A slot, a parameter or a tensor that no op accepts, but mostly a new one of the wanted shape, of
 * the wanted kind or, one time in twenty-five, of any dtype. */
ops_pick ops_take(ops_env *e, tp_shape want, ops_kind kind);
tp_tensor ops_input(ops_env *e, tp_shape want);                        /* OPS_FLOATS             */
tp_tensor ops_ids(ops_env *e, tp_shape want);                          /* OPS_IDS                */
tp_tensor ops_maybe(ops_env *e, tp_shape want);                        /* or TP_NONE             */
ops_pick ops_any(ops_env *e);                                          /* of any shape           */
ops_pick ops_map(ops_env *e, int ndim);                                /* with that many axes */
tp_tensor ops_fresh(ops_env *e, tp_dtype dt, tp_shape s, uint8_t how); /* values chosen by `how` */

tp_tape *ops_tape(ops_env *e);
int64_t ops_dim(tp_shape s, int axis);   /* negative: from the end; 1 if absent */
int64_t ops_times(int64_t a, int64_t b); /* times and plus wrap around                 */
int64_t ops_plus(int64_t a, int64_t b);
tp_shape ops_with(tp_shape s, int axis, int64_t n); /* s with size n on that axis */
/* A shape that broadcasts with s: s itself, without its first axis, or with size 1 on an axis. */
tp_shape ops_fitting(tp_shape s, uint8_t b);

/* ---- instructions ---- */
typedef struct ops_row ops_row;
struct ops_row {
    const char *name; /* without tp_ */
    tp_tensor (*run)(ops_env *e, const ops_row *r);
    const op_signature *of; /* NULL: not a function of tapegrad/ops/ */
};

const ops_row *ops_rows(void);       /* ops_rows.c: every function of tapegrad/ops/       */
extern const ops_row ops_controls[]; /* ops_control.c: everything else that a tape can do */

/* Rows of functions whose arguments must fit each other. */
extern const ops_row ops_elementwise[], ops_shapes[], ops_layers[], ops_losses[], ops_wide[],
    ops_sequence[], ops_transformer[], ops_packed[];

/* Calls the function of a row, all of whose parameters are in v. */
tp_tensor ops_call(ops_env *e, const ops_row *r, const op_value *v);

/* A window attention of packed documents (ops_packed.c). */
tp_tensor ops_packed_window(ops_env *e, tp_window_attn_cfg cfg);

int ops_count(const ops_row *rows);

/* ops_world.c */
void ops_open(ops_env *e, const uint8_t head[4]);
void ops_close(ops_env *e);       /* demands that nothing leaks                 */
void ops_demand_life(ops_env *e); /* the real tape still computes the same bits */
void ops_demand_text(tp_tape *T); /* checks the text of a failed tape           */
void ops_store(ops_env *e, const tp_tensor t[OPS_WORLDS], bool dry_only);
#endif
