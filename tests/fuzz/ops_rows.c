/* ops_rows.c - one row for every function of tapegrad/ops/, in the order that the corpus inputs
 * use. Functions without a row elsewhere are called with arguments of their prototypes' types. */
#define TP_NO_SITE
#include <stdio.h>
#include <string.h>

#include "ops_fuzzer.h"

enum { MOST_ROWS = 256 };

tp_tensor ops_call(ops_env *e, const ops_row *r, const op_value *v)
{
    tp_tensor y[TP_MAX_OUTPUTS] = { TP_NONE };
    r->of->call(ops_tape(e), v, y);
    return y[0];
}

/* One operand has the other's shape, or omits its first axis, or has size 1 on an axis, or both do
 * on different axes; or one is a number. */
static tp_tensor two(ops_env *e, const ops_row *r)
{
    ops_pick a = ops_any(e);
    const uint8_t b = ops_byte(e);
    if ((b & 14) == 12) a.t = ops_input(e, ops_with(a.s, b >> 6, 1));
    const tp_tensor other =
        (b & 14) == 14 ? tp_number(ops_number(e)) : ops_input(e, ops_fitting(a.s, b));
    const op_value v[] = { { b & 8 ? other : a.t }, { b & 8 ? a.t : other } };
    return ops_call(e, r, v);
}

static int draw_choice(ops_env *e, const op_field *f)
{
    int n = 1;
    const uint8_t b = ops_byte(e);
    while (f->choices[n]) n++;
    return b < 250 ? b % n : b;
}

/* A member of a configuration is often left at its default. */
static void draw_members(ops_env *e, const op_field *members, char *at)
{
    for (const op_field *m = members; m->name; m++) {
        if (m->kind == OP_BOOL) *(bool *)(at + m->at) = ops_flag(e);
        if (m->kind == OP_DOUBLE) *(double *)(at + m->at) = ops_flag(e) ? ops_number(e) : 0.0;
        if (m->kind == OP_INT) *(int *)(at + m->at) = ops_int(e);
        if (m->kind == OP_CHOICE) *(int *)(at + m->at) = draw_choice(e, m);
        for (int i = 0; m->kind == OP_INT64 && i < m->count; i++)
            ((int64_t *)(at + m->at))[i] = ops_integer(e);
    }
}

/* The first tensor has any shape, which others share. An int is an axis or a set of axes. */
static tp_tensor by_signature(ops_env *e, const ops_row *r)
{
    op_value v[OP_CALL_PARAMETERS];
    ops_pick x = { TP_NONE, { .ndim = -1 } };
    tp_tensor result = TP_NONE;
    memset(v, 0, sizeof v);
    for (int i = 0; r->of->parameters[i].name; i++) {
        const op_field *p = &r->of->parameters[i];
        switch (p->kind) {
        case OP_TENSOR:
            if (x.s.ndim < 0)
                v[i].of_tensor = (x = ops_any(e)).t;
            else
                v[i].of_tensor = ops_input(e, x.s);
            break;
        case OP_INT: v[i].of_int = ops_axis(e); break;
        case OP_INT64: v[i].of_int64 = ops_integer(e); break;
        case OP_DOUBLE: v[i].of_double = ops_number(e); break;
        case OP_BOOL: v[i].of_bool = ops_flag(e); break;
        case OP_DTYPE: v[i].of_dtype = ops_dtype(e); break;
        case OP_SHAPE: v[i].of_shape = ops_shape(e); break;
        case OP_CHOICE: v[i].of_int = draw_choice(e, p); break;
        case OP_RESULT: v[i].of_pointer = ops_flag(e) ? &result : NULL; break;
        case OP_STRUCT: draw_members(e, p->members, (char *)&v[i]); break;
        default: break;
        }
    }
    return ops_call(e, r, v);
}

/* The rows that the corpus refers to by index. Other functions follow. */
static const char order[] =
    "add sub mul div scale neg exp log sqrt square abs relu gelu gelu_tanh quick_gelu hardswish "
    "silu sigmoid tanh clamp cast where sum mean max argmax logsumexp reshape permute slice "
    "concat_n split stack_n expand pad roll embedding gather scatter_add one_hot matmul matmul_t "
    "linear layernorm rmsnorm batchnorm instancenorm weight_standardize softmax log_softmax "
    "dropout drop_path dropout_add depthwise_conv1d depthwise_conv2d conv2d max_pool2d "
    "avg_pool2d interpolate attention rel_attention chunk_project ls_attention "
    "window_attention_2d lsla_attention cross_entropy cross_entropy_smooth bce_logits focal "
    "smooth_l1 mse mish softplus expm1 log1p reciprocal rsqrt floor round sign leaky_relu elu "
    "lstm gru pow maximum minimum glu glu_linear rotary prod min argmin var std norm any all bce "
    "soft_margin kl_div poisson_nll hinge hinge_embedding margin_ranking nll cosine_similarity "
    "cosine_embedding triplet_margin dice ctc cumsum cumprod groupnorm eq ne lt le gt ge "
    "logical_and logical_or logical_xor logical_not isnan isfinite isinf masked_fill einsum_n "
    "conv1d conv_transpose1d conv_transpose2d sin cos sort argsort topk unsqueeze squeeze "
    "flatten transpose split_sizes chunk pad_nd flip repeat repeat_interleave arange linspace "
    "tril triu rand randn adaptive_max_pool2d adaptive_avg_pool2d index_select index_add unfold "
    "fold lsh_attention linear_attention chunk_project_kv packed_attention packed_project_kv "
    "packed_sum packed_prepend embedding_pad roi_align giou conv2d_relu ";

static const ops_row *const tables[] = {
    ops_elementwise, ops_shapes,   ops_layers,      ops_losses,
    ops_wide,        ops_sequence, ops_transformer, ops_packed
};

static ops_row row_of(const op_signature *s)
{
    const char *name = s->name + strlen("tp_");
    ops_row row = { .name = name, .run = s->parameters[0].kind == OP_OPERAND ? two : by_signature };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const ops_row *r = tables[i]; r->name; r++)
            if (strcmp(r->name, name) == 0) row = *r;
    row.of = s;
    return row;
}

/* Appends the row of the function tp_NAME unless there is one. */
static void add_row(ops_row *rows, const char *name)
{
    int n = 0;
    while (rows[n].name && strcmp(rows[n].name, name) != 0) n++;
    fuzz_demand(n < MOST_ROWS, "there is room for all rows");
    if (!rows[n].name) rows[n] = row_of(op_signature_of(name));
}

const ops_row *ops_rows(void)
{
    static ops_row rows[MOST_ROWS + 1];
    if (rows[0].name) return rows;
    for (const char *at = order; *at; at += strcspn(at, " ") + 1) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
        fuzz_demand(op_signature_of(name) != NULL, name);
        add_row(rows, name);
    }
    for (const op_signature *s = op_signatures; s->name; s++)
        add_row(rows, s->name + strlen("tp_"));
    return rows;
}
