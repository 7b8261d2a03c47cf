/* einsum_spec.c - parses an einsum specification, such as "...ij,jk->...ik", and checks it against
 * the operands' shapes. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/tensor.h>

#include "autograd/ops/einsum.h"
#include "autograd/tape.h"

/* The letters of one operand or of the output. */
typedef struct part {
    int n, label[TP_MAX_DIMS];
    int dots; /* letters before "..."; -1: none */
} part;

static bool wrong(tp_einsum_spec *s, const char *what)
{
    tp__fail(s->T, TP_E_VALUE, "einsum: character %d of \"%.80s\": %s", (int)(s->at - s->text) + 1,
             s->text, what);
    return false;
}

static int label_of(char c)
{
    if (c >= 'A' && c <= 'Z') return TP_MAX_DIMS + c - 'A';
    if (c >= 'a' && c <= 'z') return TP_MAX_DIMS + 26 + c - 'a';
    return -1;
}

static char letter_of(int label)
{
    const int i = label - TP_MAX_DIMS;
    return (char)(i < 0 ? '.' : i < 26 ? 'A' + i : 'a' + i - 26);
}

static bool at_end(const char *c)
{
    return *c == '\0' || *c == ',' || (c[0] == '-' && c[1] == '>');
}

/* Reads up to the next ',' or "->" or the end. */
static bool read_part(tp_einsum_spec *s, part *p)
{
    *p = (part){ .dots = -1 };
    for (; !at_end(s->at); s->at++) {
        const int label = label_of(*s->at);
        if (*s->at == ' ') continue;
        if (strncmp(s->at, "...", 3) == 0) {
            if (p->dots >= 0) return wrong(s, "a second \"...\" in the same tensor");
            p->dots = p->n;
            s->at += 2;
        } else if (label < 0) {
            return wrong(s, "only letters, spaces, \"...\", \",\" and \"->\" are allowed");
        } else if (p->n == TP_MAX_DIMS) {
            return wrong(s, "tensors have at most 8 axes");
        } else {
            p->label[p->n++] = label;
        }
    }
    return true;
}

/* Expands "..." to the labels of `dots` axes. p has at most TP_MAX_DIMS - dots letters. */
static tp_einsum_axes axes_of(const part *p, int dots)
{
    tp_einsum_axes a = { 0 };
    for (int i = 0; i <= p->n; i++) {
        for (int d = 0; i == p->dots && d < dots; d++) a.label[a.n++] = TP_MAX_DIMS - dots + d;
        if (i < p->n) a.label[a.n++] = p->label[i];
    }
    return a;
}

/* ---- sizes ---- */

/* A label's sizes are equal, or 1, which broadcasts, except within an operand. */
static bool meet_sizes(tp_einsum_spec *s, int operand, const tp_einsum_axes *a, tp_tensor x)
{
    for (int i = 0; i < a->n; i++) {
        const int label = a->label[i];
        const int64_t n = tp_dim(x, i);
        for (int j = 0; j < i; j++)
            if (a->label[j] == label && tp_dim(x, j) != n) {
                tp__fail(s->T, TP_E_SHAPE,
                         "einsum: '%c' stands for axes of %lld and %lld elements in operand %d of "
                         "\"%.80s\"",
                         letter_of(label), (long long)tp_dim(x, j), (long long)n, operand, s->text);
                return false;
            }
        if (s->count[label] > 0 && s->size[label] != n && s->size[label] != 1 && n != 1) {
            tp__fail(s->T, TP_E_SHAPE,
                     "einsum: '%c' has %lld elements in operand %d of \"%.80s\", but %lld before",
                     letter_of(label), (long long)n, operand, s->text, (long long)s->size[label]);
            return false;
        }
        if (s->count[label]++ == 0 || n != 1) s->size[label] = n;
    }
    return true;
}

static bool read_operand(tp_einsum_spec *s, int operand, tp_tensor x)
{
    part p;
    if (!read_part(s, &p)) return false;
    const int dots = tp_ndim(x) - p.n;
    if (dots < 0 || (p.dots < 0 && dots > 0)) {
        tp__fail(s->T, TP_E_SHAPE,
                 "einsum: \"%.80s\" gives operand %d %d letters%s, but it has %d axes", s->text,
                 operand, p.n, p.dots < 0 ? "" : " and \"...\"", tp_ndim(x));
        return false;
    }
    if (dots > s->dots) s->dots = dots;
    const tp_einsum_axes a = axes_of(&p, dots);
    return meet_sizes(s, operand, &a, x);
}

/* ---- the output ---- */

/* The axes of "...", then letters that occur once, alphabetically. */
static bool implicit_output(tp_einsum_spec *s)
{
    for (int label = 0; label < TP_EINSUM_LABELS; label++) {
        if (s->count[label] == 0 || (label >= TP_MAX_DIMS && s->count[label] > 1)) continue;
        if (s->out.n == TP_MAX_DIMS) return wrong(s, "the result would have more than 8 axes");
        s->out.label[s->out.n++] = label;
    }
    return true;
}

static bool read_output(tp_einsum_spec *s)
{
    part p;
    s->at += 2;
    if (!read_part(s, &p)) return false;
    if (*s->at != '\0') return wrong(s, "the output is the last part");
    const int dots = p.dots < 0 ? 0 : s->dots;
    if (p.n + dots > TP_MAX_DIMS) return wrong(s, "the result would have more than 8 axes");
    s->out = axes_of(&p, dots);
    for (int i = 0; i < s->out.n; i++) {
        const int label = s->out.label[i];
        char what[64];
        bool twice = false;
        for (int j = 0; j < i; j++) twice = twice || s->out.label[j] == label;
        snprintf(what, sizeof what, "'%c' of the output %s", letter_of(label),
                 twice ? "appears twice" : "is in no operand");
        if (twice || s->count[label] == 0) return wrong(s, what);
    }
    return true;
}

bool tp__einsum_read(tp_einsum_spec *s, tp_tape *T, const char *text, int n, const tp_tensor *x)
{
    *s = (tp_einsum_spec){ .T = T, .text = text ? text : "", .at = text ? text : "" };
    for (int i = 0; i < n; i++) {
        if (i > 0 && *s->at != ',') return wrong(s, "there are more tensors than operands");
        if (i > 0) s->at++;
        if (!read_operand(s, i, x[i])) return false;
    }
    if (*s->at == ',') return wrong(s, "there are fewer tensors than operands");
    const bool explicit = *s->at != '\0';
    if (explicit ? !read_output(s) : !implicit_output(s)) return false;
    s->at = s->text;
    return true;
}

tp_einsum_axes tp__einsum_next(tp_einsum_spec *s, tp_tensor x)
{
    part p;
    if (s->taken++ > 0) s->at++; /* the comma */
    read_part(s, &p);
    return axes_of(&p, tp_ndim(x) - p.n);
}
