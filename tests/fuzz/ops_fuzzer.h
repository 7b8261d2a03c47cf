/* ops_fuzzer.h - internals of fuzz_ops. Every instruction of a program runs twice, on a dry device
 * and on a real one, and both must agree. */
#ifndef OPS_FUZZER_H
#define OPS_FUZZER_H

#include <tapegrad/observe.h>
#include <tapegrad/tapegrad.h>

#include "fuzz.h"

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

/* A slot, a parameter or a tensor that no op accepts, but mostly a new one of the wanted shape: of the wanted kind, or,
 * one time in twenty-five, of any dtype. */
ops_pick ops_take(ops_env *e, tp_shape want, ops_kind kind);
tp_tensor ops_input(ops_env *e, tp_shape want);                        /* OPS_FLOATS             */
tp_tensor ops_ids(ops_env *e, tp_shape want);                          /* OPS_IDS                */
tp_tensor ops_maybe(ops_env *e, tp_shape want);                        /* or TP_NONE             */
ops_pick ops_any(ops_env *e);                                          /* of any shape           */
ops_pick ops_map(ops_env *e, int ndim);                                /* with that many axes    */
tp_tensor ops_fresh(ops_env *e, tp_dtype dt, tp_shape s, uint8_t how); /* values chosen by `how` */

tp_tape *ops_tape(ops_env *e);
int64_t ops_dim(tp_shape s, int axis);   /* negative: from the end; 1 if there is none */
int64_t ops_times(int64_t a, int64_t b); /* times and plus wrap around                 */
int64_t ops_plus(int64_t a, int64_t b);
tp_shape ops_with(tp_shape s, int axis, int64_t n); /* s with size n on that axis */

/* ---- instructions ---- */
typedef struct ops_row ops_row;
struct ops_row {
    const char *name; /* without tp_ */
    tp_tensor (*run)(ops_env *e, const ops_row *r);
    tp_tensor (*one)(tp_tape *, tp_tensor);
    tp_tensor (*two)(tp_tape *, tp_tensor, tp_tensor);
    tp_tensor (*axis)(tp_tape *, tp_tensor, int);
    tp_tensor (*number)(tp_tape *, tp_tensor, double);
    tp_tensor (*loss)(tp_tape *, tp_tensor, tp_tensor, tp_reduction);
    tp_tensor (*margin)(tp_tape *, tp_tensor, tp_tensor, double, tp_reduction);
    tp_tensor (*depthwise)(tp_tape *, tp_tensor, tp_tensor, tp_tensor, tp_conv_cfg);
    tp_tensor (*pool)(tp_tape *, tp_tensor, tp_pool_cfg);
    tp_tensor (*adaptive)(tp_tape *, tp_tensor, int64_t, int64_t);
    tp_tensor (*spread)(tp_tape *, tp_tensor, int, double);
    tp_tensor (*diagonal)(tp_tape *, tp_tensor, int64_t);
    tp_tensor (*random)(tp_tape *, tp_dtype, tp_shape);
    tp_tensor (*transpose)(tp_tape *, tp_tensor, tp_tensor, tp_tensor, tp_conv_transpose_cfg);
};

extern const ops_row ops_rows[]; /* ops_rows.c: every function of tapegrad/ops/; ends with NULL */
extern const ops_row ops_controls[]; /* ops_control.c: everything else that a tape can do  */
int ops_count(const ops_row *rows);

/* ops_elementwise.c */
tp_tensor ops_clamp(ops_env *e, const ops_row *r);
tp_tensor ops_cast(ops_env *e, const ops_row *r);
tp_tensor ops_where(ops_env *e, const ops_row *r);
tp_tensor ops_masked_fill(ops_env *e, const ops_row *r);

/* ops_packed.c */
tp_tensor ops_packed_attention(ops_env *e, const ops_row *r);
tp_tensor ops_packed_window(ops_env *e, tp_window_attn_cfg cfg);
tp_tensor ops_packed_project_kv(ops_env *e, const ops_row *r);
tp_tensor ops_packed_sum(ops_env *e, const ops_row *r);
tp_tensor ops_packed_prepend(ops_env *e, const ops_row *r);

/* ops_create.c */
tp_tensor ops_arange(ops_env *e, const ops_row *r);
tp_tensor ops_linspace(ops_env *e, const ops_row *r);
tp_tensor ops_triangle(ops_env *e, const ops_row *r);
tp_tensor ops_random(ops_env *e, const ops_row *r);

/* ops_reduce.c */
tp_tensor ops_spread(ops_env *e, const ops_row *r);
tp_tensor ops_norm(ops_env *e, const ops_row *r);
tp_tensor ops_sort(ops_env *e, const ops_row *r);
tp_tensor ops_argsort(ops_env *e, const ops_row *r);
tp_tensor ops_topk(ops_env *e, const ops_row *r);

/* ops_shapes.c */
tp_tensor ops_reshape(ops_env *e, const ops_row *r);
tp_tensor ops_permute(ops_env *e, const ops_row *r);
tp_tensor ops_slice(ops_env *e, const ops_row *r);
tp_tensor ops_concat(ops_env *e, const ops_row *r);
tp_tensor ops_stack(ops_env *e, const ops_row *r);
tp_tensor ops_split(ops_env *e, const ops_row *r);
tp_tensor ops_expand(ops_env *e, const ops_row *r);
tp_tensor ops_pad(ops_env *e, const ops_row *r);
tp_tensor ops_roll(ops_env *e, const ops_row *r);
tp_tensor ops_unsqueeze(ops_env *e, const ops_row *r);
tp_tensor ops_squeeze(ops_env *e, const ops_row *r);
tp_tensor ops_flatten(ops_env *e, const ops_row *r);
tp_tensor ops_transpose(ops_env *e, const ops_row *r);
tp_tensor ops_split_sizes(ops_env *e, const ops_row *r);
tp_tensor ops_chunk(ops_env *e, const ops_row *r);
tp_tensor ops_pad_nd(ops_env *e, const ops_row *r);
tp_tensor ops_repeat(ops_env *e, const ops_row *r);
tp_tensor ops_repeat_interleave(ops_env *e, const ops_row *r);
tp_tensor ops_embedding(ops_env *e, const ops_row *r);
tp_tensor ops_embedding_pad(ops_env *e, const ops_row *r);
tp_tensor ops_index_select(ops_env *e, const ops_row *r);
tp_tensor ops_index_add(ops_env *e, const ops_row *r);
tp_tensor ops_gather(ops_env *e, const ops_row *r);
tp_tensor ops_scatter_add(ops_env *e, const ops_row *r);
tp_tensor ops_one_hot(ops_env *e, const ops_row *r);

/* ops_layers.c */
tp_tensor ops_matmul(ops_env *e, const ops_row *r);
tp_tensor ops_matmul_t(ops_env *e, const ops_row *r);
tp_tensor ops_einsum(ops_env *e, const ops_row *r);
tp_tensor ops_linear(ops_env *e, const ops_row *r);
tp_tensor ops_layernorm(ops_env *e, const ops_row *r);
tp_tensor ops_rmsnorm(ops_env *e, const ops_row *r);
tp_tensor ops_batchnorm(ops_env *e, const ops_row *r);
tp_tensor ops_instancenorm(ops_env *e, const ops_row *r);
tp_tensor ops_groupnorm(ops_env *e, const ops_row *r);
tp_tensor ops_weight_standardize(ops_env *e, const ops_row *r);
tp_tensor ops_dropout_add(ops_env *e, const ops_row *r);

/* ops_losses.c */
tp_tensor ops_loss(ops_env *e, const ops_row *r);
tp_tensor ops_cross_entropy(ops_env *e, const ops_row *r);
tp_tensor ops_cross_entropy_smooth(ops_env *e, const ops_row *r);
tp_tensor ops_focal(ops_env *e, const ops_row *r);
tp_tensor ops_smooth_l1(ops_env *e, const ops_row *r);
tp_tensor ops_kl_div(ops_env *e, const ops_row *r);
tp_tensor ops_poisson_nll(ops_env *e, const ops_row *r);
tp_tensor ops_margin_loss(ops_env *e, const ops_row *r);
tp_tensor ops_margin_ranking(ops_env *e, const ops_row *r);
tp_tensor ops_nll(ops_env *e, const ops_row *r);
tp_tensor ops_cosine_similarity(ops_env *e, const ops_row *r);
tp_tensor ops_cosine_embedding(ops_env *e, const ops_row *r);
tp_tensor ops_triplet_margin(ops_env *e, const ops_row *r);
tp_tensor ops_giou(ops_env *e, const ops_row *r);
tp_tensor ops_dice(ops_env *e, const ops_row *r);
tp_tensor ops_ctc(ops_env *e, const ops_row *r);

/* ops_wide.c */
tp_tensor ops_conv(ops_env *e, const ops_row *r);
tp_tensor ops_conv2d(ops_env *e, const ops_row *r);
tp_tensor ops_conv2d_relu(ops_env *e, const ops_row *r);
tp_tensor ops_conv_transpose(ops_env *e, const ops_row *r);
tp_tensor ops_conv1d(ops_env *e, const ops_row *r);
tp_tensor ops_pool(ops_env *e, const ops_row *r);
tp_tensor ops_adaptive_pool(ops_env *e, const ops_row *r);
tp_tensor ops_unfold(ops_env *e, const ops_row *r);
tp_tensor ops_fold(ops_env *e, const ops_row *r);
tp_tensor ops_interpolate(ops_env *e, const ops_row *r);
tp_tensor ops_roi_align(ops_env *e, const ops_row *r);
tp_tensor ops_attention(ops_env *e, const ops_row *r);
tp_tensor ops_rel_attention(ops_env *e, const ops_row *r);
tp_tensor ops_chunk_project(ops_env *e, const ops_row *r);
tp_tensor ops_chunk_project_kv(ops_env *e, const ops_row *r);
tp_tensor ops_ls_attention(ops_env *e, const ops_row *r);
tp_tensor ops_window(ops_env *e, const ops_row *r);
tp_tensor ops_lsla(ops_env *e, const ops_row *r);
tp_tensor ops_lsh_attention(ops_env *e, const ops_row *r);
tp_tensor ops_linear_attention(ops_env *e, const ops_row *r);

/* ops_sequence.c */
tp_tensor ops_lstm(ops_env *e, const ops_row *r);
tp_tensor ops_gru(ops_env *e, const ops_row *r);

/* ops_transformer.c */
tp_tensor ops_glu(ops_env *e, const ops_row *r);
tp_tensor ops_glu_linear(ops_env *e, const ops_row *r);
tp_tensor ops_rotary(ops_env *e, const ops_row *r);

/* ops_world.c */
void ops_open(ops_env *e, const uint8_t head[4]);
void ops_close(ops_env *e);       /* demands that nothing leaks                 */
void ops_demand_life(ops_env *e); /* the real tape still computes the same bits */
void ops_demand_text(tp_tape *T); /* checks the text of a failed tape           */
void ops_store(ops_env *e, const tp_tensor t[OPS_WORLDS], bool dry_only);
#endif
