/* op_calls.c - fills in the parameters of a function of ops from inputs and options, and calls
 * it. */
#define TP_NO_SITE
#include "op_calls.h"

#include <stdio.h>
#include <string.h>

/* A call that is being prepared. */
typedef struct calling {
    int nx, next; /* inputs, and the first one that no parameter has taken */
    const tp_tensor *x;
    op_options o;
    tp_tensor *results; /* further results, those of OP_RESULT parameters */
    int nresults;
    const char *odd; /* an option whose word is not one of its choices; NULL: none */
} calling;

const op_signature *op_signature_of(const char *name)
{
    char full[64], list[64];
    snprintf(full, sizeof full, "tp_%s", name);
    snprintf(list, sizeof list, "tp_%s_n", name);
    for (const op_signature *s = op_signatures; s->name; s++)
        if (strcmp(s->name, full) == 0 || strcmp(s->name, list) == 0) return s;
    return NULL;
}

static double number_of(const calling *c, const char *name)
{
    double x = 0.0;
    return c->o.numbers(c->o.env, name, 1, &x) > 0 ? x : 0.0;
}

/* An axis or a number is an integer as it is; a set of axes is a list, and without one all of
 * them. */
static int int_of(const calling *c, const char *name)
{
    double list[TP_MAX_DIMS];
    const int n = c->o.numbers(c->o.env, name, TP_MAX_DIMS, list);
    if (strcmp(name, "axes") != 0) return n > 0 ? (int)list[0] : 0;
    int axes = n < 1 ? TP_ALL : TP__AXES_MARK;
    for (int i = 0; i < n; i++) axes |= TP_AXES((int)list[i]);
    return number_of(c, "keep") != 0.0 ? TP_KEEP(axes) : axes;
}

static tp_shape shape_of(const calling *c, const char *name)
{
    double list[TP_MAX_DIMS];
    tp_shape s = { 0 };
    s.ndim = c->o.numbers(c->o.env, name, TP_MAX_DIMS, list);
    for (int i = 0; i < s.ndim && i < TP_MAX_DIMS; i++) s.dim[i] = (int64_t)list[i];
    return s;
}

/* Compares words without regard to case and to the kind of dash. */
static bool is_same(const char *word, const char *choice)
{
    for (; *word && *choice; word++, choice++) {
        const char c = *choice == '_' ? '-' : (char)(*choice | 32), w = *word == '_' ? '-' : *word;
        if (w != c && (w | 32) != c) return false;
    }
    return *word == *choice;
}

/* Length of the choices' common prefix, up to an underscore. */
static size_t common(const char *const *choices)
{
    size_t n = strlen(choices[0]);
    for (const char *const *c = choices + 1; *c; c++)
        for (size_t i = 0; i < n; i++)
            if ((*c)[i] != choices[0][i]) n = i;
    while (n > 0 && choices[0][n - 1] != '_') n--;
    return n;
}

static int choice_of(calling *c, const op_field *f)
{
    const char *word = c->o.text(c->o.env, f->name);
    const size_t skip = common(f->choices);
    for (int i = 0; word && f->choices[i]; i++)
        if (is_same(word, f->choices[i] + skip)) return i;
    if (word) c->odd = f->name;
    return 0;
}

static tp_dtype dtype_of(calling *c, const char *name)
{
    const char *word = c->o.text(c->o.env, name);
    for (tp_dtype dt = TP_F32; word && dt < TP_NDTYPES; dt++)
        if (strcmp(tp_dtype_name(dt), word) == 0) return dt;
    if (word) c->odd = name;
    return TP_F64;
}

/* Is it an option of these parameters or members? */
static bool is_option(const op_field *fields, const char *name)
{
    for (const op_field *f = fields; f->name; f++) switch (f->kind) {
        case OP_TENSOR:
        case OP_TENSORS:
        case OP_RESULT:
        case OP_POINTER: break;
        case OP_OPERAND:
            if (strcmp(name, "k") == 0) return true;
            break;
        case OP_STRUCT:
            if (is_option(f->members, name)) return true;
            break;
        default:
            if (strcmp(name, f->name) == 0) return true;
            if (strcmp(name, "keep") == 0 && strcmp(f->name, "axes") == 0) return true;
        }
    return false;
}

/* The first option that the function does not have; NULL: there is none. */
static const char *strange_option(const calling *c, const op_signature *s)
{
    const char *name;
    for (int i = 0; (name = c->o.name(c->o.env, i)); i++)
        if (!is_option(s->parameters, name)) return name;
    return NULL;
}

static tp_tensor next_input(calling *c)
{
    return c->next < c->nx ? c->x[c->next++] : TP_NONE;
}

static void fill(calling *c, const op_field *f, void *at);

static void fill_struct(calling *c, const op_field *members, char *at)
{
    for (const op_field *m = members; m->name; m++) fill(c, m, at + m->at);
}

/* Fills an array member from a list of numbers; unlisted entries stay 0. */
static void fill_numbers(const calling *c, const op_field *f, void *at)
{
    double list[OP_CALL_NUMBERS] = { 0.0 };
    c->o.numbers(c->o.env, f->name, OP_CALL_NUMBERS, list);
    for (int i = 0; i < (f->count ? f->count : 1) && i < OP_CALL_NUMBERS; i++)
        if (f->kind == OP_INT64)
            ((int64_t *)at)[i] = (int64_t)list[i];
        else
            ((double *)at)[i] = list[i];
}

static void fill(calling *c, const op_field *f, void *at)
{
    switch (f->kind) {
    case OP_TENSOR: *(tp_tensor *)at = next_input(c); break;
    case OP_OPERAND: {
        const tp_tensor x = next_input(c);
        *(tp_tensor *)at = tp_given(x) ? x : tp_number(number_of(c, "k"));
        break;
    }
    case OP_RESULT:
        c->results[c->nresults] = TP_NONE;
        *(void **)at = &c->results[c->nresults++];
        break;
    case OP_POINTER: *(void **)at = NULL; break;
    case OP_INT: *(int *)at = int_of(c, f->name); break;
    case OP_INT64:
    case OP_DOUBLE: fill_numbers(c, f, at); break;
    case OP_BOOL: *(bool *)at = number_of(c, f->name) != 0.0; break;
    case OP_DTYPE: *(tp_dtype *)at = dtype_of(c, f->name); break;
    case OP_SHAPE: *(tp_shape *)at = shape_of(c, f->name); break;
    case OP_TEXT: *(const void **)at = c->o.text(c->o.env, f->name); break;
    case OP_CHOICE: *(int *)at = choice_of(c, f); break;
    case OP_STRUCT: fill_struct(c, f->members, at); break;
    case OP_TENSORS: break; /* with its length */
    }
}

int op_call(tp_tape *T, const op_signature *s, int nx, const tp_tensor *x, op_options o,
            tp_tensor *y)
{
    op_value v[OP_CALL_PARAMETERS];
    calling c = { .nx = nx, .x = x, .o = o, .results = y + 1 };
    memset(v, 0, sizeof v);
    for (int i = 0; s->parameters[i].name; i++) {
        if (s->parameters[i].kind != OP_TENSORS) {
            fill(&c, &s->parameters[i], &v[i]);
            continue;
        }
        v[i].of_pointer = (void *)(x + c.next);
        v[i - 1].of_int = nx - c.next;
        c.next = nx;
    }
    const char *strange = strange_option(&c, s);
    if (strange) y[0] = tp_raise(T, TP_E_VALUE, "%s has no option '%s'", s->name, strange);
    if (c.odd)
        y[0] =
            tp_raise(T, TP_E_VALUE, "'%s' is no %s of %s", c.o.text(o.env, c.odd), c.odd, s->name);
    if (strange || c.odd) return 1;
    return s->call(T, v, y) + c.nresults;
}
