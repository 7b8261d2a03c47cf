/* predict.c - `imdb predict`: classes of texts, and the deciding tokens. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "imdb.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

typedef struct predict_settings {
    tp_trained_settings t;
    tp_words files;
    char *tokenizer, *text, *picture;
    int format, colour;
    bool lines, explain;
    int64_t length, steps;
} predict_settings;

enum { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };
enum { COLOUR_AUTO, COLOUR_ALWAYS, COLOUR_NEVER };

#define S predict_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND TEXTS"),
    TP_ARGUMENTS(
        S, files, "FILE ...",
        "Texts: files .txt, folders of them, or files .csv and .jsonl. Without any, or for -, "
        "standard input is one text."),
    TP_ROWS(tp_trained_options),
    OPTION_TOKENIZER(S, tokenizer, 0),
    TP_STRING("text-column", S, text, "NAME", 0,
              "CSV, JSON lines: the column or member that holds the text; not given: text."),
    TP_FLAG("lines", S, lines, 0, "Each line of standard input is a text."),
    TP_INT("length", S, length, 0, 1 << 20, 0, "Tokens to which texts are cut; 0: the model's."),
    TP_HEADING("RESULTS"),
    TP_CHOICE("format", S, format, "table|json|csv", 0,
              "A line for people; a JSON object for each text; or CSV, a row for each class."),
    TP_FLAG(
        "explain", S, explain, 0,
        "Show which tokens spoke for the predicted class and which against it, by gradient times "
        "input: as coloured text on a terminal, elsewhere as a list. JSON gets all tokens."),
    TP_INT("steps", S, steps, 1, 1000, 0,
           "Gradients that an explanation averages on the way from the masked text to the text; 1: "
           "that at the text alone, which is small where the model is sure."),
    TP_CHOICE("colour", S, colour, "auto|always|never", 0,
              "Coloured text; auto: on a terminal, unless NO_COLOR is set."),
    TP_STRING(
        "picture", S, picture, "DIR", 0,
        "Draw each text with the tokens coloured in that way into this folder: NUMBER.png. Needs "
        "gnuplot."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "FORMATS\n"
    "    json  {\"text\": NAME, \"class\": CLASS, \"probabilities\": {CLASS: P, ...}}; --explain\n"
    "          adds \"tokens\": [[TEXT, WEIGHT], ...], positive weights speaking for the class\n"
    "    csv   a header, then text,class,probability (RFC 4180). A cell that a spreadsheet would\n"
    "          take for a formula, beginning with = + - @ or white space, gets an apostrophe\n"
    "          before it; control characters are shown as \\xHH\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 a text cannot be read, or another error; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    echo 'A film to forget.' | imdb predict --explain\n"
    "    imdb predict reviews/*.txt --format csv\n"
    "    imdb predict mail.csv --text-column body --run-dir runs/mail --format json\n";

static const tp_command manual = {
    .name = "imdb predict",
    .summary = "predicts the classes of texts and shows why",
    .synopsis = "[FILE ...] [--run-dir DIR | --checkpoint FILE] [flag ...]",
    .about =
        "Prints the probability of each class of each text, as predicted by the model of a "
        "checkpoint, which also holds vocabulary and classes, or of a published file, which has "
        "them in files beside it. Texts are cut as in training.",
    .table = table,
    .more = manual_more,
};

typedef struct predictor {
    const predict_settings *s;
    text_file f;
    tp_bpe_coder *coder;
    tp_labelled_opts opts;
    int64_t number; /* the text's, from 1 */
    float *logits;  /* [classes] */
    double *p;      /* [classes] */
    int32_t *ids;   /* of the text; room */
    int64_t room;
} predictor;

/* ---- one text ---- */

static bool wants_reasons(const predict_settings *s)
{
    return s->explain || s->picture;
}

static bool has_colours(const predict_settings *s)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if (s->colour != COLOUR_AUTO) return s->colour == COLOUR_ALWAYS;
    return isatty(STDOUT_FILENO) && (!none || !*none) && term && strcmp(term, "dumb") != 0;
}

static bool take_ids(predictor *t, const tp_documents *X, int64_t i, int64_t *n)
{
    const uint16_t *ids = tp_documents_ids(X, i, 0, n);
    if (*n > t->room) {
        int32_t *more = realloc(t->ids, (size_t)*n * sizeof *more);
        if (!more) return tp_trained_fail(&t->f.t, "out of memory");
        t->ids = more;
        t->room = *n;
    }
    for (int64_t k = 0; k < *n; k++) t->ids[k] = ids[k];
    return true;
}

/* Sets the probabilities; returns the likeliest class, -1 if not finite. */
static int64_t likeliest(predictor *t)
{
    const int64_t C = t->f.cfg.classes, best = doc_best(t->logits, C);
    double sum = 0;
    if (best < 0 || !isfinite(t->logits[best])) return -1;
    for (int64_t c = 0; c < C; c++)
        sum += t->p[c] = exp((double)t->logits[c] - (double)t->logits[best]);
    for (int64_t c = 0; c < C; c++) t->p[c] /= sum;
    return best;
}

static bool infer(predictor *t, int64_t n, const char *name, int64_t *best)
{
    tp_tape *T = t->f.t.T;
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, n), t->ids);
    const tp_tensor pad = tp_full(T, TP_I32, TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    const tp_tensor slot[DOC_SLOTS] = { x, tp_ne(T, x, pad) };
    const tp_tensor z = tp_cast(T, text_logits(T, &t->f.m, slot), TP_F32);
    if (!tp_read(T, z, t->logits, (size_t)t->f.cfg.classes * sizeof *t->logits))
        return tp_trained_fail(&t->f.t, "%s", tp_why(T));
    *best = likeliest(t);
    return *best >= 0 ||
           tp_trained_fail(&t->f.t,
                           "%s: the model computes NaN or infinity: the weights in %s are bad, or "
                           "--dtype is too narrow for them",
                           name, t->f.t.path);
}

/* ---- printing ---- */

static void print_table(predictor *t, const char *name, const explanation *e)
{
    char line[300], number[32];
    printf("%s:", plain_line(name, line, sizeof line));
    for (int64_t c = 0; c < t->f.cfg.classes; c++)
        printf("  %s %.2f %%",
               plain_line(class_list_at(&t->f.classes, c, number), line, sizeof line),
               100 * t->p[c]);
    putchar('\n');
    if (t->s->explain) explanation_print(stdout, e, has_colours(t->s));
}

static void print_csv(predictor *t, const char *name)
{
    char number[32];
    for (int64_t c = 0; c < t->f.cfg.classes; c++) {
        plain_csv(stdout, name);
        putchar(',');
        plain_csv(stdout, class_list_at(&t->f.classes, c, number));
        printf(",%.9g\n", t->p[c]);
    }
}

static bool print_json(predictor *t, const char *name, int64_t best, const explanation *e)
{
    char number[32];
    json_t *all = json_object(), *p = json_object();
    for (int64_t c = 0; c < t->f.cfg.classes; c++) {
        char *key = plain_utf8(class_list_at(&t->f.classes, c, number));
        if (key) json_object_set_new(p, key, json_real(t->p[c]));
        free(key);
    }
    json_object_set_new(all, "text", text_as_json(name));
    json_object_set_new(all, "class", text_as_json(class_list_at(&t->f.classes, best, number)));
    json_object_set_new(all, "probabilities", p);
    if (t->s->explain && json_object_set_new(all, "tokens", explanation_json(e)) != 0) {
        json_decref(all);
        all = NULL;
    }
    return print_json_line(stdout, all) || ferror(stdout) ||
           tp_trained_fail(&t->f.t, "out of memory");
}

static bool print(predictor *t, const char *name, int64_t best, const explanation *e)
{
    if (t->s->format == FORMAT_JSON) return print_json(t, name, best, e);
    if (t->s->format == FORMAT_CSV)
        print_csv(t, name);
    else
        print_table(t, name, e);
    return true;
}

static bool draw(predictor *t, const char *name, int64_t best, const explanation *e)
{
    char path[4600], title[400], number[32], why[5000];
    const char *class = class_list_at(&t->f.classes, best, number);
    snprintf(path, sizeof path, "%s/%03lld.png", t->s->picture, (long long)t->number);
    snprintf(title, sizeof title, "%.200s: %.100s, %.2f %%", name, class, 100 * t->p[best]);
    return explanation_draw(e, title, class, path, why, sizeof why) ||
           tp_trained_fail(&t->f.t, "%s", why);
}

/* ---- all texts ---- */

/* Names of texts begin below the folder read, or with the file's name. */
static void full_name(const char *path, const char *name, char *buf, size_t size)
{
    struct stat s;
    const bool folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    const char *slash = strrchr(path, '/');
    const int n = folder ? (int)strlen(path) : slash ? (int)(slash - path) + 1 : 0;
    const bool input = strcmp(path, "-") == 0;
    snprintf(buf, size, "%.*s%s%s", input ? 0 : n, path,
             folder && !tp_ends_in(path, "/") ? "/" : "", name ? name : path);
}

static bool predict(predictor *t, const char *path, const tp_documents *X, int64_t i)
{
    char name[4400];
    explanation e = { 0 };
    char why[2000];
    int64_t n = 0, best = -1;
    const explain_opts o = { t->coder, tp_bpe_special_id(t->f.vocab, TP_BPE_MASK),
                             (int)t->s->steps };
    full_name(path, tp_documents_name(X, i), name, sizeof name);
    t->number++;
    if (!take_ids(t, X, i, &n) || !infer(t, n, name, &best)) return false;
    bool done =
        !wants_reasons(t->s) ||
        explain_text(&e, t->f.t.T, t->f.t.P, &t->f.m, &o, t->ids, n, best, why, sizeof why) ||
        tp_trained_fail(&t->f.t, "%s: %s", name, why);
    done = done && print(t, name, best, &e) && (!t->s->picture || draw(t, name, best, &e));
    explanation_free(&e);
    return done;
}

/* Reads standard input as one text or as one per line. */
static tp_documents *input_texts(predictor *t)
{
    size_t n;
    char *whole = plain_read(stdin, &n), name[40], why[200];
    const char *text = whole;
    tp_documents *X = tp_documents_new(1, (int)t->f.cfg.classes);
    if (text && !tp_skip_bom(&text, &n, why, sizeof why)) {
        tp_trained_fail(&t->f.t, "standard input %s", why);
        n = 0;
    }
    for (size_t at = 0, line = 1; text && at < n; line++) {
        const char *end = t->s->lines ? memchr(text + at, '\n', n - at) : NULL;
        const size_t length = end ? (size_t)(end - text) - at : n - at;
        snprintf(name, sizeof name, t->s->lines ? "line %zu" : "standard input", line);
        tp_documents_add_text(X, t->coder, -1, name, text + at, length, &t->opts);
        at += length + (end != NULL);
    }
    if (!text) tp_trained_fail(&t->f.t, "standard input: out of memory");
    if (text && n == 0 && !t->s->lines && !ferror(stdin))
        tp_trained_fail(&t->f.t, "standard input is empty: name files of texts, or pipe in a text");
    if (ferror(stdin)) tp_trained_fail(&t->f.t, "standard input: %s", strerror(errno));
    free(whole);
    return X;
}

/* An unreadable path does not stop the other predictions. */
static bool predict_path(predictor *t, const char *path)
{
    const bool input = strcmp(path, "-") == 0;
    tp_documents *X =
        input ? input_texts(t) : tp_documents_labelled_texts(path, TP_TEST, t->f.vocab, &t->opts);
    bool done = !t->f.t.why[0];
    if (!tp_documents_ok(X)) done = tp_trained_fail(&t->f.t, "%s", tp_documents_why(X));
    for (int64_t i = 0; done && i < tp_documents_count(X) && !ferror(stdout); i++)
        done = predict(t, path, X, i);
    tp_documents_close(X);
    if (!done) {
        tp_command_complain(manual.name, t->f.t.why);
        t->f.t.why[0] = '\0';
    }
    return done;
}

static bool prepare(predictor *t)
{
    const predict_settings *s = t->s;
    char why[5000];
    if (!text_file_open(&t->f, &s->t, s->tokenizer, s->length)) return false;
    const int64_t length = s->length ? s->length : t->f.cfg.length;
    t->opts = (tp_labelled_opts){ .longest = length,
                                  .tail = text_file_tail(&t->f, length),
                                  .text = s->text,
                                  .unlabelled = true };
    t->coder = tp_bpe_coder_new(t->f.vocab);
    t->logits = malloc((size_t)t->f.cfg.classes * sizeof *t->logits);
    t->p = malloc((size_t)t->f.cfg.classes * sizeof *t->p);
    if (!t->coder || !t->logits || !t->p) return tp_trained_fail(&t->f.t, "out of memory");
    if (s->picture && !tp_make_folders(s->picture, why, sizeof why))
        return tp_trained_fail(&t->f.t, "%s", why);
    return text_file_load(&t->f, &s->t.machine);
}

static bool predict_all(predictor *t)
{
    char *input = (char *)"-";
    const tp_words *w = &t->s->files;
    const int n = w->n ? w->n : 1;
    char **path = w->n ? w->at : &input;
    bool done = true;
    if (!prepare(t)) return false;
    if (t->s->format == FORMAT_CSV) puts("text,class,probability");
    for (int i = 0; i < n && tp_ok(t->f.t.T) && !ferror(stdout); i++)
        done = predict_path(t, path[i]) && done;
    return tp_trained_printed(&t->f.t) && done;
}

static bool run(void *settings, char *why, size_t size)
{
    predictor t = { .s = settings };
    const bool done = predict_all(&t);
    snprintf(why, size, "%s", t.f.t.why);
    tp_bpe_coder_free(t.coder);
    free(t.logits);
    free(t.p);
    free(t.ids);
    text_file_close(&t.f);
    return done;
}

int imdb_predict_main(int argc, char **argv)
{
    predict_settings s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/imdb") }, .steps = 32
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
