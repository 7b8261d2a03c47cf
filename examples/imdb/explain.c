/* explain.c - attributes a prediction to tokens: gradient times input, integrated from the masked
 * text to the text; as coloured text, JSON or a picture. Source: Sundararajan et al., Axiomatic
 * Attribution for Deep Networks (2017).
 *
 * A class's log odds are its logit minus the log of the others' summed exp; unlike the
 * probability's, their gradient does not vanish near 1. An observer (observe.h) finds the lookup of
 * words, whose rows are the input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/observe.h>

#include "imdb.h"
#include "pictures/picture.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

/* ---- gradients ---- */

/* Keeps the first lookup in the word table, the model's input. */
typedef struct input {
    tp_tensor words, rows;
} input;

static void watch(void *env, tp_tape *T, const tp_seen *s)
{
    input *l = env;
    if (!tp_given(l->rows) && s->nx > 0 && s->x[0].node == l->words.node)
        l->rows = tp_keep(T, s->y[0]);
}

/* The gradient of the log odds by the logits. */
static void odds_gradient(const float *z, int64_t classes, int64_t label, float *g)
{
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++)
        if (c != label && (double)z[c] > top) top = (double)z[c];
    for (int64_t c = 0; c < classes; c++)
        if (c != label) sum += exp((double)z[c] - top);
    for (int64_t c = 0; c < classes; c++)
        g[c] = c == label ? 1.0f : (float)(-exp((double)z[c] - top) / sum);
}

/* Runs the model forward and backward. gradient: [n,dim], of embeddings, on the host. */
static bool run(tp_tape *T, const text_model *m, const int32_t *ids, int64_t n, int64_t label,
                float *gradient)
{
    const int64_t C = m->cfg.classes;
    input l = { model_of(m)->words.weight, TP_NONE };
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, n), ids);
    const tp_tensor pad = tp_full(T, TP_I32, TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    const tp_tensor slot[DOC_SLOTS] = { x, tp_ne(T, x, pad) };
    tp_observe(T, watch, &l);
    const tp_tensor z = text_logits(T, m, slot);
    tp_observe(T, NULL, NULL);
    float *logits = malloc(2 * (size_t)C * sizeof *logits);
    bool done = logits && tp_read(T, tp_cast(T, z, TP_F32), logits, (size_t)C * sizeof *logits);
    if (done) {
        odds_gradient(logits, C, label, logits + C);
        const tp_tensor g = tp_from(T, TP_F32, TP_SHAPE(1, C), logits + C);
        tp_backward(T, tp_sum(T, tp_mul(T, z, tp_cast(T, g, tp_dtype_of(z))), TP_ALL));
        const tp_tensor rows = tp_slice(T, tp_grad(T, l.rows), 1, 0, n); /* without padding */
        done = tp_read(T, tp_cast(T, rows, TP_F32), gradient,
                       (size_t)(n * m->cfg.dim) * sizeof *gradient);
    }
    free(logits);
    return done;
}

/* ---- the path from the masked text ---- */

/* An explanation's scratch. */
typedef struct walker {
    tp_params *P;
    tp_tensor words;
    int64_t n, dim;
    const int32_t *ids;
    double *table;   /* [vocab,dim], the word table */
    double *away;    /* [n,dim]: embedding minus <mask>'s */
    double *mask;    /* [dim] */
    float *gradient; /* [n,dim] */
    size_t bytes;    /* of the table */
} walker;

/* Moves the text's embeddings to this share of the way from <mask>; <s> and </s> stay. */
static bool go_to(walker *p, double share)
{
    for (int64_t i = 1; i < p->n - 1; i++)
        for (int64_t k = 0; k < p->dim; k++)
            p->table[p->ids[i] * p->dim + k] = p->mask[k] + share * p->away[i * p->dim + k];
    return tp_param_set(p->P, p->words, TP_F64, p->table, p->bytes);
}

static bool begin(walker *p, const text_model *m, int32_t mask)
{
    const size_t cells = (size_t)(p->n * p->dim), words = (size_t)(m->cfg.vocab * p->dim);
    p->bytes = words * sizeof *p->table;
    p->table = malloc(p->bytes);
    p->away = calloc(cells, sizeof *p->away);
    p->mask = calloc((size_t)p->dim, sizeof *p->mask);
    p->gradient = malloc(cells * sizeof *p->gradient);
    if (!p->table || !p->away || !p->mask || !p->gradient) return false;
    if (!tp_param_get(p->P, p->words, TP_F64, p->table, p->bytes)) return false;
    memcpy(p->mask, p->table + mask * p->dim, (size_t)p->dim * sizeof *p->mask);
    for (int64_t i = 0; i < p->n * p->dim; i++)
        p->away[i] = p->table[p->ids[i / p->dim] * p->dim + i % p->dim] - p->mask[i % p->dim];
    return true;
}

/* weight: [n], zeros. */
static bool walk(walker *p, tp_tape *T, const text_model *m, int64_t label, int steps,
                 double *weight)
{
    bool done = true;
    for (int s = 0; s < steps && done; s++) {
        if (steps > 1) done = go_to(p, (s + 0.5) / steps);
        done = done && run(T, m, p->ids, p->n, label, p->gradient);
        for (int64_t i = p->dim; done && i < (p->n - 1) * p->dim; i++)
            weight[i / p->dim] += p->away[i] * (double)p->gradient[i] / steps;
        tp_grad_clear(p->P);
    }
    return done;
}

static void end(walker *p)
{
    free(p->table);
    free(p->away);
    free(p->mask);
    free(p->gradient);
}

/* ---- pieces ---- */

/* Joins tokens until their bytes are whole characters. */
static bool collect(explanation *e, tp_bpe_coder *coder, const int32_t *ids, int64_t n,
                    const double *weight)
{
    enum { MOST_JOINED = 8 }; /* damaged text may never do so */
    e->at = calloc((size_t)n + 1, sizeof *e->at);
    for (int64_t first = 0, count; e->at && first < n; first += count) {
        const char *text = NULL;
        for (count = 1; count <= MOST_JOINED && first + count <= n; count++) {
            text = tp_bpe_decode(coder, ids + first, count, TP_BPE_RAW, NULL);
            if (!text || tp_is_utf8(text)) break;
        }
        if (!text || count > MOST_JOINED || first + count > n) {
            count = 1;
            text = tp_bpe_decode(coder, ids + first, 1, TP_BPE_RAW, NULL);
        }
        explained *piece = &e->at[e->n];
        piece->text = text ? strdup(text) : NULL;
        if (!piece->text) return false;
        for (int64_t i = first; i < first + count; i++) piece->weight += weight[i];
        e->most = fmax(e->most, fabs(piece->weight));
        e->n++;
    }
    return e->at != NULL;
}

bool explain_text(explanation *e, tp_tape *T, tp_params *P, const text_model *m,
                  const explain_opts *o, const int32_t *ids, int64_t n, int64_t label, char *why,
                  size_t size)
{
    walker p = {
        .P = P, .words = model_of(m)->words.weight, .n = n, .dim = m->cfg.dim, .ids = ids
    };
    double *weight = calloc((size_t)n, sizeof *weight), *former = NULL;
    *e = (explanation){ 0 };
    tp_record(T, true);
    bool done = weight && begin(&p, m, o->mask);
    if (done) {
        former = malloc(p.bytes); /* restores the table exactly */
        done = former != NULL;
    }
    if (done) {
        memcpy(former, p.table, p.bytes);
        done = walk(&p, T, m, label, o->steps, weight);
        done = tp_param_set(P, p.words, TP_F64, former, p.bytes) && done;
    }
    done = done && (n < 3 || collect(e, o->coder, ids + 1, n - 2, weight + 1));
    if (!done)
        snprintf(why, size, "%s",
                 !tp_ok(T)           ? tp_why(T)
                 : *tp_params_why(P) ? tp_params_why(P)
                                     : "out of memory");
    tp_reset(T);
    tp_record(T, false);
    end(&p);
    free(former);
    free(weight);
    return done;
}

void explanation_free(explanation *e)
{
    for (int i = 0; i < e->n; i++) free(e->at[i].text);
    free(e->at);
    *e = (explanation){ 0 };
}

/* ---- text ---- */

/* Prints for people: keeps line ends, escapes anything that could control a terminal. */
static void put(FILE *out, const char *text)
{
    while (*text) {
        char shown[TP_PLAIN];
        const bool ends = *text == '\n';
        const size_t n = tp_plain_at(text, shown);
        fputs(ends ? "\n" : shown, out);
        text += n;
    }
}

/* From white to blue or red, darker for more. */
static void colour_of(double share, int rgb[3])
{
    static const int blue[] = { 90, 150, 230 }, red[] = { 235, 95, 85 };
    const int *end = share > 0 ? blue : red;
    for (int k = 0; k < 3; k++) rgb[k] = 255 - (int)(fabs(share) * (255 - end[k]));
}

static void print_coloured(FILE *out, const explanation *e)
{
    for (int i = 0; i < e->n; i++) {
        const double share = e->most > 0 ? e->at[i].weight / e->most : 0;
        int c[3];
        colour_of(share, c);
        const bool plain = fabs(share) < 0.05 || strchr(e->at[i].text, '\n');
        if (!plain) fprintf(out, "\033[30;48;2;%d;%d;%dm", c[0], c[1], c[2]);
        put(out, e->at[i].text);
        if (!plain) fputs("\033[0m", out);
    }
    fputc('\n', out);
}

static int by_weight(const void *a, const void *b)
{
    const explained *const *x = a, *const *y = b;
    return ((*x)->weight < (*y)->weight) - ((*x)->weight > (*y)->weight);
}

enum { STRONGEST = 8 };

static void print_list(FILE *out, const explanation *e)
{
    const explained **order = malloc(((size_t)e->n + 1) * sizeof *order);
    if (!order) return;
    for (int i = 0; i < e->n; i++) order[i] = &e->at[i];
    qsort(order, (size_t)e->n, sizeof *order, by_weight);
    for (int sign = 1; sign >= -1; sign -= 2) {
        fputs(sign > 0 ? "  for:    " : "  against:", out);
        for (int k = 0; k < STRONGEST && k < e->n; k++) {
            const explained *p = order[sign > 0 ? k : e->n - 1 - k];
            char text[80];
            if (sign * p->weight <= 0) break;
            fprintf(out, " '%s' %+.3f", plain_line(p->text, text, sizeof text), p->weight);
        }
        fputc('\n', out);
    }
    free(order);
}

void explanation_print(FILE *out, const explanation *e, bool colours)
{
    if (colours)
        print_coloured(out, e);
    else
        print_list(out, e);
}

json_t *explanation_json(const explanation *e)
{
    json_t *all = json_array();
    for (int i = 0; i < e->n; i++)
        if (json_array_append_new(all, json_pack("[o,o]", text_as_json(e->at[i].text),
                                                 number_as_json(e->at[i].weight))) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

/* ---- pictures ---- */

enum { ACROSS = 14, MOST_ROWS = 40, CELL_WIDTH = 76, CELL_HEIGHT = 24 };

bool explanation_draw(const explanation *e, const char *title, const char *class_name,
                      const char *path, char *why, size_t size)
{
    const int most = ACROSS * MOST_ROWS, n = e->n < most ? e->n : most;
    const int rows = n > 0 ? (n + ACROSS - 1) / ACROSS : 1, cells = rows * ACROSS;
    double *v = malloc((size_t)cells * sizeof *v);
    const char **text = calloc((size_t)cells, sizeof *text);
    char note[400];
    bool done = v && text;
    for (int i = 0; done && i < cells; i++) {
        v[i] = i < n ? e->at[i].weight : (double)NAN;
        text[i] = i < n ? e->at[i].text : NULL;
    }
    snprintf(note, sizeof note,
             "Share of each token in the log odds of %.100s: blue speaks for it, red against it.%s",
             class_name, e->n > n ? " The text goes on." : "");
    const panel all = { .kind = PANEL_HEAT,
                        .width = ACROSS * CELL_WIDTH,
                        .height = rows * CELL_HEIGHT,
                        .heat = { .rows = rows,
                                  .cols = ACROSS,
                                  .v = v,
                                  .diverging = true,
                                  .unit = "log odds",
                                  .texts = text } };
    const picture whole = { title, note, 1, 1, &all };
    if (done)
        done = picture_draw(NULL, &whole, path, why, size);
    else
        snprintf(why, size, "out of memory");
    free(v);
    free(text);
    return done;
}
