/* test_einsum.c - tp_einsum against one loop over all values of all letters: values and gradients
 * of fixed and random specifications; the ops it applies; messages. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/observe.h>

#include "support/trial.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { OPERANDS = 4, LABELS = 26 + TP_MAX_DIMS };

/* tp_einsum gets `spec`. The naive loop reads `plain`, where each axis has a small letter; the axes
 * of "..." have P to W, in the naive loop only. */
typedef struct sum {
    const char *spec, *plain; /* plain NULL: spec */
    int n;
    tp_shape in[OPERANDS];
} sum;

/* A trial's inputs are vectors: it has no scalars. */
static tp_tensor einsum(tp_tape *T, const tp_tensor *x, const void *env)
{
    const sum *s = env;
    tp_tensor in[OPERANDS];
    for (int i = 0; i < s->n; i++) in[i] = tp_reshape(T, x[i], s->in[i]);
    return tp_einsum_n(T, s->spec, s->n, in);
}

static int label_of(char c)
{
    return c >= 'a' && c <= 'z' ? c - 'a' : 26 + c - 'P';
}

/* The index of the element at the values `v` of the letters from `at` on, one per axis; axes of
 * size 1 repeat. */
static int64_t place(const char *at, const tp_shape *s, const int64_t *v)
{
    int64_t i = 0;
    for (int k = 0; k < s->ndim; k++) i = i * s->dim[k] + (s->dim[k] == 1 ? 0 : v[label_of(at[k])]);
    return i;
}

static void naive(const void *env, const trial_result *r, double *y, double **dx)
{
    const sum *s = env;
    const char *text = s->plain ? s->plain : s->spec, *from[OPERANDS],
               *out = strstr(text, "->") + 2;
    int64_t size[LABELS], v[LABELS] = { 0 }, all = 1;
    tp_shape to = { .ndim = (int)strlen(out) };
    for (int l = 0; l < LABELS; l++) size[l] = 1;
    for (int i = 0; i < s->n; i++) {
        from[i] = text;
        for (int k = 0; k < s->in[i].ndim; k++)
            if (s->in[i].dim[k] != 1) size[label_of(text[k])] = s->in[i].dim[k];
        text += s->in[i].ndim + 1;
    }
    for (int k = 0; k < to.ndim; k++) to.dim[k] = size[label_of(out[k])];
    for (int l = 0; l < LABELS; l++) all *= size[l];
    for (int64_t e = 0; e < all; e++) {
        int64_t rest = e;
        double product = 1.0;
        for (int l = 0; l < LABELS; l++) {
            v[l] = rest % size[l];
            rest /= size[l];
        }
        const int64_t at = place(out, &to, v);
        for (int i = 0; i < s->n; i++) product *= r->x[i][place(from[i], &s->in[i], v)];
        y[at] += product;
        for (int i = 0; i < s->n; i++) {
            double others = r->dy[at];
            for (int j = 0; j < s->n; j++)
                if (j != i) others *= r->x[j][place(from[j], &s->in[j], v)];
            dx[i][place(from[i], &s->in[i], v)] += others;
        }
    }
}

static void check(const sum *s, const char *name)
{
    trial t = { einsum, s, .dtype = TP_F64, .compute = TP_F64 };
    const bool real = trial_can(TP_F64, TP_ISA_AUTO);
    if (!real) t.dtype = t.compute = TP_F32;
    for (int i = 0; i < s->n; i++) t.in[i] = (tp_shape){ 1, { trial_count(&s->in[i]) } };
    trial_compare(&t, naive, name, real ? 1e-12 : 1e-4);
}

/* ---- fixed specifications ---- */

static const sum sums[] = {
    { "ij,jk->ik", .n = 2, .in = { { 2, { 3, 4 } }, { 2, { 4, 5 } } } },
    { " i j , j k -> k i ", "ij,jk->ki", 2, { { 2, { 3, 4 } }, { 2, { 4, 5 } } } },
    { "ij,jk", "ij,jk->ik", 2, { { 2, { 3, 4 } }, { 2, { 4, 5 } } } },
    { "ba", "ba->ab", 1, { { 2, { 3, 4 } } } },
    { "ii", "ii->", 1, { { 2, { 5, 5 } } } },
    { "ii->i", .n = 1, .in = { { 2, { 5, 5 } } } },
    { "iij->ji", .n = 1, .in = { { 3, { 3, 3, 4 } } } },
    { "ijij->j", .n = 1, .in = { { 4, { 3, 4, 3, 4 } } } },
    { "iii->i", .n = 1, .in = { { 3, { 4, 4, 4 } } } },
    { "bii,bi->b", .n = 2, .in = { { 3, { 2, 3, 3 } }, { 2, { 2, 3 } } } },
    { "->", .n = 1, .in = { { 0 } } },
    { ",i->i", .n = 2, .in = { { 0 }, { 1, { 5 } } } },
    { "i,i->", .n = 2, .in = { { 1, { 300 } }, { 1, { 300 } } } },
    { "i,j->ji", .n = 2, .in = { { 1, { 3 } }, { 1, { 4 } } } },
    { "i,j->", .n = 2, .in = { { 1, { 3 } }, { 1, { 4 } } } },
    { "bi,bi->b", .n = 2, .in = { { 2, { 3, 40 } }, { 2, { 3, 40 } } } },
    { "ijk->", .n = 1, .in = { { 3, { 2, 3, 4 } } } },
    { "ijk->j", .n = 1, .in = { { 3, { 2, 3, 4 } } } },
    { "bij,bjk->bik", .n = 2, .in = { { 3, { 2, 3, 4 } }, { 3, { 2, 4, 5 } } } },
    { "bhqd,bhkd->bhqk", .n = 2, .in = { { 4, { 2, 3, 4, 5 } }, { 4, { 2, 3, 6, 5 } } } },
    { "bqhd,bkhd->bhqk", .n = 2, .in = { { 4, { 2, 4, 3, 5 } }, { 4, { 2, 6, 3, 5 } } } },
    { "bct,oc->bto", .n = 2, .in = { { 3, { 2, 3, 4 } }, { 2, { 5, 3 } } } },
    { "bchw,oc->bohw", .n = 2, .in = { { 4, { 2, 3, 4, 2 } }, { 2, { 5, 3 } } } },
    { "bi,oij,bj->bo", .n = 3, .in = { { 2, { 4, 3 } }, { 3, { 5, 3, 2 } }, { 2, { 4, 2 } } } },
    { "ab,bc,cd,da->", .n = 4,
      .in = { { 2, { 2, 3 } }, { 2, { 3, 4 } }, { 2, { 4, 5 } }, { 2, { 5, 2 } } } },
    { "...ij,...jk->...ik", "PQij,Qjk->PQik", 2, { { 4, { 2, 3, 3, 4 } }, { 3, { 3, 4, 2 } } } },
    { "i...,j...", "iP,jP->Pij", 2, { { 2, { 2, 5 } }, { 2, { 3, 5 } } } },
    { "i...->...", "iPQ->PQ", 1, { { 3, { 2, 3, 4 } } } },
    { "...i->i", "PQi->i", 1, { { 3, { 2, 3, 4 } } } },
    { "i...j->j...i", "iPQj->jPQi", 1, { { 4, { 2, 3, 4, 5 } } } },
    { "...,...->...", "PQ,Q->PQ", 2, { { 2, { 3, 4 } }, { 1, { 4 } } } },
    { "ij,ij->ij", .n = 2, .in = { { 2, { 1, 4 } }, { 2, { 3, 1 } } } },
    { "ij,jk->ik", .n = 2, .in = { { 2, { 3, 1 } }, { 2, { 4, 5 } } } },
    { "ij,ij->", .n = 2, .in = { { 2, { 1, 4 } }, { 2, { 3, 4 } } } },
    { "ii->i", .n = 1, .in = { { 2, { 1, 1 } } } },
    { "ij,jk->ik", .n = 2, .in = { { 2, { 3, 0 } }, { 2, { 0, 2 } } } },
    { "bij,bjk->bik", .n = 2, .in = { { 3, { 0, 3, 4 } }, { 3, { 0, 4, 2 } } } },
    { "bct,oc->bto", .n = 2, .in = { { 3, { 0, 3, 4 } }, { 2, { 5, 3 } } } },
    { "iij->j", .n = 1, .in = { { 3, { 0, 0, 3 } } } },
    { "ij,jk->ik", .n = 2, .in = { { 2, { 3, 1 } }, { 2, { 0, 2 } } } },
    { "abcdefgh,hgfedcba->aceg", .n = 2,
      .in = { { 8, { 2, 2, 1, 2, 2, 1, 2, 2 } }, { 8, { 2, 2, 1, 2, 2, 1, 2, 2 } } } },
};

Test(einsum, fixed_specifications)
{
    for (size_t i = 0; i < COUNT(sums); i++) check(&sums[i], sums[i].spec);
}

Test(einsum, capitals_precede_small_letters)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(2, 3, 4), 1.0);
    const tp_shape s = tp_shape_of(tp_einsum(T, "bZa", x));
    cr_expect(s.ndim == 3 && s.dim[0] == 3 && s.dim[1] == 4 && s.dim[2] == 2, "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- random specifications ---- */

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* Up to four operands of up to four axes with letters of a small alphabet, sizes 0 to 3, some of
 * them 1 in place of the letter's size. The output has each letter with probability 1/2, in random
 * order. */
static void random_sum(uint32_t seed, sum *s, char text[64])
{
    uint32_t r = seed * 2654435761u;
    const uint32_t letters = 2 + draw(&r, 4);
    int64_t size[8];
    bool used[8] = { false };
    char *at = text, out[8];
    int n = 0;
    *s = (sum){ .spec = text, .n = 1 + (int)draw(&r, OPERANDS) };
    for (int l = 0; l < 8; l++) size[l] = draw(&r, 20) == 0 ? 0 : 1 + draw(&r, 3);
    for (int i = 0; i < s->n; i++) {
        s->in[i].ndim = (int)draw(&r, 5);
        for (int k = 0; k < s->in[i].ndim; k++) {
            const uint32_t l = draw(&r, letters);
            bool again = false;
            for (int j = 0; j < k; j++)
                if (at[j - k] == (char)('a' + l)) {
                    s->in[i].dim[k] = s->in[i].dim[j];
                    again = true;
                }
            if (!again) s->in[i].dim[k] = draw(&r, 6) == 0 ? 1 : size[l];
            used[l] = true;
            *at++ = (char)('a' + l);
        }
        if (i < s->n - 1) *at++ = ',';
    }
    for (uint32_t l = 0; l < letters; l++)
        if (used[l] && draw(&r, 2)) out[n++] = (char)('a' + l);
    at += sprintf(at, "->");
    for (; n > 0; n--) {
        const uint32_t k = draw(&r, (uint32_t)n);
        *at++ = out[k];
        out[k] = out[n - 1];
    }
    *at = '\0';
}

Test(einsum, random_specifications)
{
    for (uint32_t seed = 0; seed < 600; seed++) {
        sum s;
        char text[64], name[96];
        random_sum(seed, &s, text);
        snprintf(name, sizeof name, "%s (seed %u)", text, seed);
        check(&s, name);
    }
}

/* ---- the ops of an einsum ---- */

static void note(void *env, tp_tape *T, const tp_seen *s)
{
    char *text = env;
    (void)T;
    if (strcmp(s->op->name, "reshape") != 0) sprintf(text + strlen(text), "%s ", s->op->name);
}

/* Plain products need neither copies nor sums. */
Test(einsum, ops_of_products)
{
    static const struct {
        sum s;
        const char *ops;
    } cases[] = {
        { { "bij,bjk->bik", .n = 2, .in = { { 3, { 2, 3, 4 } }, { 3, { 2, 4, 5 } } } }, "matmul " },
        { { "ij,kj->ik", .n = 2, .in = { { 2, { 3, 4 } }, { 2, { 5, 4 } } } }, "matmul " },
        { { "ij,jk->ki", .n = 2, .in = { { 2, { 3, 4 } }, { 2, { 4, 5 } } } }, "matmul " },
        { { "ji,jk->ik", .n = 2, .in = { { 2, { 4, 3 } }, { 2, { 4, 5 } } } }, "matmul " },
        { { "bct,oc->bto", .n = 2, .in = { { 3, { 2, 3, 4 } }, { 2, { 5, 3 } } } }, "matmul " },
        { { "bhqd,bhkd->bhqk", .n = 2, .in = { { 4, { 2, 3, 4, 5 } }, { 4, { 2, 3, 6, 5 } } } },
          "matmul " },
        { { "bijc,ijco->bo", .n = 2, .in = { { 4, { 2, 3, 4, 5 } }, { 4, { 3, 4, 5, 6 } } } },
          "matmul " },
        { { "bqhd,bkhd->bhqk", .n = 2, .in = { { 4, { 2, 4, 3, 5 } }, { 4, { 2, 6, 3, 5 } } } },
          "permute permute matmul " },
        { { "ij,ij->ij", .n = 2, .in = { { 2, { 3, 4 } }, { 2, { 3, 4 } } } }, "mul " },
        { { "i,j->ij", .n = 2, .in = { { 1, { 3 } }, { 1, { 4 } } } }, "mul " },
        { { "ijk->ij", .n = 1, .in = { { 3, { 3, 4, 5 } } } }, "sum " },
        { { "ijk,ia->a", .n = 2, .in = { { 3, { 3, 4, 5 } }, { 2, { 3, 4 } } } }, "sum matmul " },
        { { "ij->ij", .n = 1, .in = { { 2, { 3, 4 } } } }, "" },
    };
    tp_device *D = tp_device_open("cpu", NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const sum *s = &cases[i].s;
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor x[OPERANDS];
        char seen[256] = "";
        for (int k = 0; k < s->n; k++) x[k] = tp_full(T, TP_F32, s->in[k], 1.0);
        tp_observe(T, note, seen);
        tp_einsum_n(T, s->spec, s->n, x);
        cr_expect_str_eq(seen, cases[i].ops, "%s: %s", s->spec, seen);
        tp_tape_free(T);
    }
    tp_device_close(D);
}

/* Too many places to make a list of them. */
Test(einsum, long_diagonal)
{
    enum { P = 1 << 21 };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    float *x = calloc(4 * P, sizeof *x), *y = calloc(2 * P, sizeof *y),
          *dx = calloc(4 * P, sizeof *x);
    for (int i = 0; i < 4 * P; i++) x[i] = (float)(i % 1021);
    const tp_tensor in = tp_input(T, TP_F32, TP_SHAPE(P, 2, 2), x);
    const tp_tensor out = tp_einsum(T, "pii->pi", in);
    tp_read(T, out, y, 2 * P * sizeof *y);
    tp_backward(T, tp_sum(T, out, TP_ALL));
    tp_read(T, tp_grad(T, in), dx, 4 * P * sizeof *dx);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    int wrong = 0;
    for (int p = 0; p < P; p++) {
        wrong += y[2 * p] != x[4 * p] || y[2 * p + 1] != x[4 * p + 3];
        wrong += dx[4 * p] != 1 || dx[4 * p + 1] != 0 || dx[4 * p + 2] != 0 || dx[4 * p + 3] != 1;
    }
    cr_expect_eq(wrong, 0, "%d of %d matrices", wrong, P);
    free(x);
    free(y);
    free(dx);
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- dtypes ---- */

/* A sum of bf16 is f32 and meets bf16 in a product. */
Test(einsum, bf16)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor a = tp_full(T, TP_BF16, TP_SHAPE(3, 4), 0.5),
                    b = tp_full(T, TP_BF16, TP_SHAPE(3), 2.0);
    cr_expect(tp_item(T, tp_einsum(T, "ij,k->", a, b)) == 36.0, "%s", tp_why(T));
    cr_expect(tp_dtype_of(tp_einsum(T, "ij,i->i", a, b)) == TP_F32, "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- messages ---- */

Test(einsum, messages)
{
    static const struct {
        sum s;
        const char *text;
    } cases[] = {
        { { "i?->i", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 2 of \"i?->i\": only letters, spaces, \"...\", \",\" and \"->\" are "
          "allowed\n" },
        { { "i..j->i", .n = 1, .in = { { 2, { 3, 3 } } } },
          "einsum: character 2 of \"i..j->i\": only letters," },
        { { "i-j", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 2 of \"i-j\": only letters," },
        { { "...i...", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 5 of \"...i...\": a second \"...\" in the same tensor\n" },
        { { "ij", .n = 2, .in = { { 2, { 3, 3 } }, { 1, { 3 } } } },
          "einsum: character 3 of \"ij\": there are more tensors than operands\n" },
        { { "i,i,i->i", .n = 2, .in = { { 1, { 3 } }, { 1, { 3 } } } },
          "einsum: character 4 of \"i,i,i->i\": there are fewer tensors than operands\n" },
        { { "ij,jk", .n = 2, .in = { { 2, { 3, 3 } }, { 1, { 3 } } } },
          "einsum: \"ij,jk\" gives operand 1 2 letters, but it has 1 axes\n" },
        { { "i,i", .n = 2, .in = { { 1, { 3 } }, { 2, { 3, 3 } } } },
          "einsum: \"i,i\" gives operand 1 1 letters, but it has 2 axes\n" },
        { { "ij...", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: \"ij...\" gives operand 0 2 letters and \"...\", but it has 1 axes\n" },
        { { "ii", .n = 1, .in = { { 2, { 3, 4 } } } },
          "einsum: 'i' stands for axes of 3 and 4 elements in operand 0 of \"ii\"\n" },
        { { "ij,jk", .n = 2, .in = { { 2, { 3, 4 } }, { 2, { 5, 4 } } } },
          "einsum: 'j' has 5 elements in operand 1 of \"ij,jk\", but 4 before\n" },
        { { "...i,...i", .n = 2, .in = { { 2, { 3, 4 } }, { 2, { 2, 4 } } } },
          "einsum: '.' has 2 elements in operand 1 of \"...i,...i\", but 3 before\n" },
        { { "i->ij", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 6 of \"i->ij\": 'j' of the output is in no operand\n" },
        { { "i->ii", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 6 of \"i->ii\": 'i' of the output appears twice\n" },
        { { "i->i,i", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 5 of \"i->i,i\": the output is the last part\n" },
        { { "abcdefghi", .n = 1, .in = { { 1, { 3 } } } },
          "einsum: character 9 of \"abcdefghi\": tensors have at most 8 axes\n" },
        { { "abcde,fghij", .n = 2, .in = { { 5, { 2, 2, 2, 2, 2 } }, { 5, { 2, 2, 2, 2, 2 } } } },
          "einsum: character 12 of \"abcde,fghij\": the result would have more than 8 axes\n" },
        { { "abcde,fghij,abf", .n = 3,
            .in = { { 5, { 2, 2, 2, 2, 2 } }, { 5, { 2, 2, 2, 2, 2 } }, { 3, { 2, 2, 2 } } } },
          "einsum: a product within \"abcde,fghij,abf\" would have more than 8 axes; "
          "contract fewer operands at a time\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const sum *const s = &cases[i].s;
        trial t = { einsum, s, .dtype = TP_F32 };
        for (int k = 0; k < s->n; k++) t.in[k] = (tp_shape){ 1, { trial_count(&s->in[k]) } };
        cr_expect(trial_fails(&t, cases[i].text), "%s", s->spec);
    }
}

static tp_tensor with_wrong_handles(tp_tape *T, const tp_tensor *x, const void *env)
{
    const int which = *(const int *)env;
    if (which == 0) return tp_einsum(T, "i,i", x[0], TP_NONE);
    if (which == 1) return tp_einsum(T, "i,", x[0], tp_number(2.0));
    if (which == 2) return tp_einsum_n(T, "", 0, NULL);
    return tp_einsum(T, NULL, x[0]);
}

Test(einsum, wrong_handles)
{
    static const char *const text[] = {
        "operand of einsum: is missing (TP_NONE)",
        "operand of einsum: the number 2 was given in place of a tensor",
        "einsum: at least one tensor is needed",
        "einsum: NULL was given in place of the specification",
    };
    for (int i = 0; i < (int)COUNT(text); i++) {
        const trial t = { with_wrong_handles, &i, .in = { { 1, { 3 } } }, .dtype = TP_F32 };
        cr_expect(trial_fails(&t, text[i]), "%d", i);
    }
}
