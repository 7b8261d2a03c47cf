/* print.c - the elements of a tensor as text, laid out as NumPy prints arrays.
 *
 *     f32[2,3]
 *     [[ 1.    2.5  -3.  ]
 *      [ 0.25 nan    4.  ]]
 *
 * Numbers have the fewest digits that read back as the same value of their dtype, at most 8 after
 * the point. Only the elements that appear are read from the device: of more than 1000, the first
 * and last three along each axis. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"
#include "tensor/bf16.h"
#include "tensor/shape.h"

enum { MOST = 1000, EDGE = 3, LINE = 75, DIGITS = 8, NUMBER = 40, WORD = 80 };

/* ---- where the text goes ---- */

typedef struct sink {
    char *text;
    size_t size, length; /* length: of the whole text, also beyond size */
    FILE *to;            /* takes the place of text */
} sink;

static void put(sink *s, const char *word)
{
    const size_t n = strlen(word);
    if (s->to)
        fputs(word, s->to);
    else if (s->length < s->size)
        snprintf(s->text + s->length, s->size - s->length, "%s", word);
    s->length += n;
}

static void put_times(sink *s, const char *word, int n)
{
    while (n-- > 0) put(s, word);
}

/* ---- one number ---- */

/* How all numbers of a tensor are written: `left` characters before the point, `right` after it;
 * integers have no point. */
typedef struct layout {
    bool whole, scientific;
    int left, right;
    int digits, exponent; /* scientific: digits after the point and of the exponent */
} layout;

static bool reads_back(const char *text, double x, tp_dtype dt)
{
    if (dt == TP_F64) return strtod(text, NULL) == x;
    const float y = strtof(text, NULL);
    return (dt == TP_BF16 ? (double)tp__from_bf16(tp__to_bf16(y)) : (double)y) == x;
}

/* Writes x as d.ddde+xx with the fewest digits after the point; returns their number. */
static int shortest(char *text, double x, tp_dtype dt)
{
    int n = 0;
    while (snprintf(text, NUMBER, "%.*e", n, x), n < 16 && !reads_back(text, x, dt)) n++;
    return n;
}

/* The number of digits after the point, without final zeros. */
static int decimals(const char *text)
{
    const char *point = strchr(text, '.');
    int n = 0;
    for (int i = 1; point && point[i] >= '0' && point[i] <= '9'; i++)
        if (point[i] != '0') n = i;
    return n;
}

/* Writes finite x in decimal, at most DIGITS digits after the point, the last one not 0, and
 * returns their number. There is a point even without digits. */
static int positional(char *text, double x, tp_dtype dt)
{
    const int digits = shortest(text, x, dt);
    const int after = digits - atoi(strchr(text, 'e') + 1);
    if (after < 0) x = strtod(text, NULL); /* zeros take the place of further digits */
    snprintf(text, NUMBER, "%#.*f", after < 0 ? 0 : after > DIGITS ? DIGITS : after, x);
    const int n = decimals(text);
    strchr(text, '.')[n + 1] = '\0';
    return n;
}

/* Widens the layout for x, a finite number. */
static void fit(layout *k, double x, tp_dtype dt)
{
    char text[NUMBER];
    if (!k->scientific) {
        const int n = positional(text, x, dt), left = (int)(strchr(text, '.') - text);
        if (n > k->right) k->right = n;
        if (left > k->left) k->left = left;
        return;
    }
    const int digits = shortest(text, x, dt);
    snprintf(text, NUMBER, "%.*e", digits < DIGITS ? digits : DIGITS, x);
    const int n = decimals(text), exponent = (int)strlen(strchr(text, 'e')) - 2;
    if (n > k->digits) k->digits = n;
    if (exponent > k->exponent) k->exponent = exponent;
    const int left = signbit(x) ? 2 : 1;
    if (left > k->left) k->left = left;
    k->right = k->digits + 2 + k->exponent;
}

/* Element i, right-aligned if whole or not finite, else with its point where the layout says. */
static void write_element(char word[WORD], const layout *k, const tp_view *v, int64_t i)
{
    const int width = k->left + 1 + k->right;
    if (k->whole) {
        const long long x = v->dtype == TP_I64   ? (long long)((const int64_t *)v->data)[i]
                            : v->dtype == TP_I32 ? ((const int32_t *)v->data)[i]
                                                 : ((const uint8_t *)v->data)[i];
        snprintf(word, WORD, "%*lld", k->left, x);
        return;
    }
    const double x = tp_ld(v, i);
    if (!isfinite(x)) {
        snprintf(word, WORD, "%*s", width, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    char text[NUMBER], tail[16] = "";
    if (k->scientific) {
        snprintf(text, NUMBER, "%#.*e", k->digits, x);
        char *e = strchr(text, 'e');
        snprintf(tail, sizeof tail, "e%c%0*d", e[1], k->exponent, atoi(e + 2));
        *e = '\0';
    } else {
        positional(text, x, v->dtype);
    }
    const int before = (int)(strchr(text, '.') - text), pad = k->left - before;
    snprintf(word, WORD, "%*s%s%s", pad, "", text, tail);
    for (int n = (int)strlen(word); n < width; n++) strcpy(word + n, " ");
}

static layout layout_of(const tp_view *v)
{
    layout k = { .whole = !tp_is_float(v->dtype) };
    double most = 0, least = INFINITY;
    bool special = false, negative = false;
    for (int64_t i = 0; i < v->numel; i++) {
        char word[WORD];
        if (k.whole) {
            write_element(word, &(layout){ .whole = true }, v, i);
            if ((int)strlen(word) > k.left) k.left = (int)strlen(word);
            continue;
        }
        const double x = tp_ld(v, i);
        special = special || !isfinite(x);
        negative = negative || x == -INFINITY;
        if (!isfinite(x) || x == 0) continue;
        most = fmax(most, fabs(x));
        least = fmin(least, fabs(x));
    }
    k.scientific = most >= (v->dtype == TP_F64 ? 1e8 : 1e6) ||
                   (most > 0 && (least < 1e-4 || most / least > 1000));
    for (int64_t i = 0; !k.whole && i < v->numel; i++)
        if (isfinite(tp_ld(v, i))) fit(&k, tp_ld(v, i), v->dtype);
    const int room = special ? 3 + negative - k.right - 1 : 0;
    if (room > k.left) k.left = room;
    return k;
}

/* ---- the elements that appear ---- */

/* The rank of place k of an axis of n, of which `shown` appear. */
static int64_t index_of(int64_t k, int64_t shown, int64_t n)
{
    return k < shown - EDGE || shown == n ? k : n - shown + k;
}

/* Copies the elements of v that appear, row by row of the last axis, into `to`, whose shape says
 * which. */
static bool fetch(tp_tape *T, const tp_view *v, const tp_view *to)
{
    const size_t size = tp_dtype_size(v->dtype);
    if (to->numel == v->numel)
        return to->numel == 0 || tp__download(T, to->data, v->data, (size_t)v->numel * size);
    const int last = v->ndim - 1;
    const int64_t shown = to->dim[last], n = v->dim[last];
    const int64_t edge = shown < n ? EDGE : n;
    for (int64_t at = 0; at < to->numel; at += shown) {
        int64_t from = 0, rest = at / shown, step = n;
        for (int a = last - 1; a >= 0; step *= v->dim[a--]) {
            from += index_of(rest % to->dim[a], to->dim[a], v->dim[a]) * step;
            rest /= to->dim[a];
        }
        char *row = (char *)to->data + (size_t)at * size;
        const char *source = (const char *)v->data + (size_t)from * size;
        if (!tp__download(T, row, source, (size_t)edge * size)) return false;
        if (shown < n &&
            !tp__download(T, row + EDGE * size, source + (size_t)(n - EDGE) * size, EDGE * size))
            return false;
    }
    return true;
}

/* ---- all of it ---- */

typedef struct printer {
    sink *to;
    layout k;
    tp_view v;             /* what appears, in host memory */
    bool cut[TP_MAX_DIMS]; /* axes with elements that do not appear */
} printer;

/* Writes a row of elements, the first of them element `at`; lines after the first are indented. */
static void put_row(const printer *p, int64_t at)
{
    const int last = p->v.ndim - 1, limit = LINE - p->v.ndim;
    int column = p->v.ndim, blanks = 0; /* blanks: of the last word, not yet written */
    char word[WORD];
    for (int64_t i = 0, n = p->v.dim[last] + p->cut[last]; i < n; i++) {
        if (p->cut[last] && i == EDGE)
            strcpy(word, "...");
        else
            write_element(word, &p->k, &p->v, at + i - (p->cut[last] && i > EDGE));
        const int width = (int)strlen(word);
        if (i > 0 && column + 1 + width > limit) {
            put(p->to, "\n");
            put_times(p->to, " ", p->v.ndim);
            column = p->v.ndim;
        } else if (i > 0) {
            put_times(p->to, " ", blanks + 1);
            column++;
        }
        column += width;
        for (blanks = 0; word[width - blanks - 1] == ' '; blanks++) word[width - blanks - 1] = 0;
        put(p->to, word);
    }
    put_times(p->to, " ", blanks);
}

/* Begins the next part of an axis: two parts of matrices are an empty line apart, and so on. */
static void next_line(const printer *p, int axis)
{
    put_times(p->to, "\n", p->v.ndim - 1 - axis);
    put_times(p->to, " ", axis + 1);
}

/* Writes axis `axis` and those after it, the first element of which is element `at`. */
static void put_axis(const printer *p, int axis, int64_t at)
{
    const int after = p->v.ndim - 1 - axis;
    int64_t step = 1;
    char word[WORD];
    if (p->v.ndim == 0) {
        write_element(word, &p->k, &p->v, 0);
        put(p->to, word);
        return;
    }
    put(p->to, "[");
    for (int a = axis + 1; a < p->v.ndim; a++) step *= p->v.dim[a];
    if (after == 0 && p->v.numel > 0) put_row(p, at);
    for (int64_t i = 0; after > 0 && p->v.numel > 0 && i < p->v.dim[axis]; i++) {
        if (i > 0) next_line(p, axis);
        if (i == EDGE && p->cut[axis]) {
            put(p->to, "...");
            next_line(p, axis);
        }
        put_axis(p, axis + 1, at + i * step);
    }
    put(p->to, "]");
}

/* Which elements appear: all of at most MOST. */
static void choose(printer *p, const tp_view *v)
{
    tp_shape shape = tp__view_shape(v);
    for (int a = 0; a < v->ndim; a++) {
        p->cut[a] = v->numel > MOST && v->dim[a] > 2 * EDGE;
        if (p->cut[a]) shape.dim[a] = 2 * EDGE;
    }
    p->v = tp__view(v->dtype, &shape, NULL);
}

static bool print(tp_tape *T, tp_tensor x, const char *what, sink *to)
{
    const tp_node *n = tp__node_with_values(T, x, what);
    printer p = { .to = to };
    char heading[256] = "";
    if (!n) return false;
    choose(&p, &n->view);
    p.v.data = calloc(tp__view_bytes(&p.v) + 1, 1);
    if (!p.v.data) tp__no_host_memory(T);
    const bool ok = p.v.data && fetch(T, &n->view, &p.v);
    if (ok) {
        void *locale = tp_c_locale_begin();
        p.k = layout_of(&p.v);
        tp__print_view(heading, sizeof heading, &n->view);
        put(to, heading);
        put(to, "\n");
        put_axis(&p, 0, 0);
        tp_c_locale_end(locale);
    }
    free(p.v.data);
    return ok;
}

size_t tp_to_string(tp_tape *T, tp_tensor x, char *text, size_t size)
{
    sink s = { .text = text, .size = text ? size : 0 };
    if (s.size > 0) *text = '\0';
    return print(T, x, "tp_to_string", &s) ? s.length : 0;
}

bool tp_print(tp_tape *T, tp_tensor x, FILE *to)
{
    sink s = { .to = to };
    if (!to) {
        tp__fail(T, TP_E_VALUE, "tp_print: NULL was given in place of a stream");
        return false;
    }
    if (!print(T, x, "tp_print", &s)) return false;
    put(&s, "\n");
    return !ferror(to);
}
