/* tp-inspect.c - prints the contents of files of weights: metadata, tensors and a summary of their
 * values, or which model they are for. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/model.h>
#include <tapegrad/options.h>

#include "print_text.h"

/* ---- --match ---- */

typedef struct match {
    tp_model_cfg cfg;
    tp_file *F;
    tp_device *D;
    tp_params *P;
    tp_net *N;
    char prefix[512];
    int64_t outputs; /* of the model as published */
    int all, fit, resized, shape, missing, unreadable, unknown;
    bool print; /* each difference */
} match;

/* ---- differences ---- */

/* The file's tensor of a parameter, which may have any of its names. */
static const tp_file_tensor *found(const match *m, const char *name)
{
    const tp_file_tensor *t = tp_file_find(m->F, name);
    for (tp_param_info it = { 0 }; !t && tp_next_param(m->P, &it);)
        if (it.alias_of && strcmp(it.alias_of, name) == 0) t = tp_file_find(m->F, it.name);
    return t;
}

static void differ(match *m, int *count, const char *what, const char *name, const tp_shape *there,
                   const tp_shape *here)
{
    char a[256] = "", b[256] = "";
    (*count)++;
    if (!m->print) return;
    if (there) shape_text(there, a, sizeof a);
    if (here) shape_text(here, b, sizeof b);
    printf("  %s: ", what);
    print_text(name, 0);
    printf(" %s%s%s%s\n", a, there && here ? " in the file, " : "", b,
           there && here ? " in the model" : "");
}

static void cannot_be_read(match *m, const char *name, const char *why)
{
    m->unreadable++;
    if (!m->print) return;
    printf("  unreadable: ");
    print_text(name, 0);
    printf(" %s\n", why);
}

static void compare(match *m, const tp_param_info *it)
{
    const tp_file_tensor *t = found(m, it->name);
    const tp_model *model = m->cfg.model;
    const tp_shape *here = &it->shape, *there = t ? &t->shape : NULL;
    m->all++;
    if (!t && model->may_lack && model->may_lack(it->name))
        m->all--;
    else if (!t)
        differ(m, &m->missing, "missing", it->name, NULL, here);
    else if (t->code != TP_OK)
        cannot_be_read(m, it->name, t->why);
    else if (there->ndim == here->ndim &&
             memcmp(there->dim, here->dim, (size_t)here->ndim * sizeof here->dim[0]) == 0)
        m->fit++;
    else if (model->resizes_to && model->resizes_to(it->name, here, there))
        differ(m, &m->resized, "resized", it->name, there, here);
    else
        differ(m, &m->shape, "shape", it->name, there, here);
}

/* Is it no weight but another part of a training checkpoint? */
static bool other_part(const char *name)
{
    return strncmp(name, "optim.", 6) == 0 || strncmp(name, "ema.", 4) == 0 ||
           strncmp(name, "state.", 6) == 0;
}

static void compare_all(match *m)
{
    for (tp_param_info it = { 0 }; tp_next_param(m->P, &it);)
        if (!it.alias_of) compare(m, &it);
    for (int i = 0; i < tp_file_count(m->F); i++) {
        const tp_file_tensor *t = tp_file_at(m->F, i);
        if (!other_part(t->name) && !tp_given(tp_find(m->P, t->name)))
            differ(m, &m->unknown, "unknown", t->name, &t->shape, NULL);
    }
}

/* ---- one model ---- */

static bool can_load(const match *m)
{
    return m->all > 0 && m->shape + m->missing + m->unreadable + m->unknown == 0;
}

/* Opens file and model; close in either case. False with the reason in why. */
static bool open_match(match *m, const char *model, const char *path, char *why, size_t size)
{
    m->F = tp_file_open(path);
    if (!tp_model_preset(&m->cfg, model, why, size)) return false;
    m->outputs = tp_model_get(&m->cfg).outputs;
    tp_model_adopt(&m->cfg, m->F, m->prefix, sizeof m->prefix);
    m->D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true });
    m->P = tp_params_new(m->D, NULL);
    m->N = tp_net_new(m->P, "", &m->cfg);
    snprintf(why, size, "%s", tp_file_ok(m->F) ? tp_params_why(m->P) : tp_file_why(m->F));
    return tp_file_ok(m->F) && tp_params_ok(m->P);
}

static void close_match(match *m)
{
    tp_net_free(m->N);
    tp_params_free(m->P);
    tp_device_close(m->D);
    tp_file_close(m->F);
}

static void print_verdict(const match *m)
{
    const int64_t outputs = tp_model_get(&m->cfg).outputs;
    const tp_model_input input = m->cfg.model->input;
    printf("  %d of %d tensors fit", m->fit, m->all);
    if (m->resized) printf(", %d can be resized", m->resized);
    if (m->shape) printf(", %d have another shape", m->shape);
    if (m->missing) printf(", %d are missing", m->missing);
    if (m->unreadable) printf(", %d cannot be read", m->unreadable);
    if (m->unknown) printf("; %d are not of this model", m->unknown);
    printf("\n");
    if (outputs != m->outputs)
        printf("  it has %lld %s where the published model has %lld%s\n", (long long)outputs,
               input == TP_TOKENS ? "tokens" : "classes", (long long)m->outputs,
               input == TP_IMAGES ? "; to train with others: --head new or slice" : "");
    if (!can_load(m) || !m->resized) return;
    if (input == TP_IMAGES)
        printf("  it is for another image size: give --size, or --resize to train from it\n");
    else
        printf("  %s has another length: the model can be trained from it\n",
               m->cfg.model->resizes);
}

/* Reads all values as a program does. */
static bool load(match *m)
{
    if (tp_net_load(m->P, m->N, m->F, m->resized > 0)) return true;
    tp_command_complain("tp-inspect", tp_params_why(m->P));
    return false;
}

/* Prints which weights of the model are in the file, and every difference. False, after a message
 * on standard error if the file or the model is at fault, unless all can be loaded. */
static bool inspect_match(const char *model, const char *path)
{
    match m = { .print = true };
    char why[2048];
    bool fits = open_match(&m, model, path, why, sizeof why);
    if (!fits) {
        tp_command_complain("tp-inspect", why);
    } else {
        print_text(path, 0);
        printf(": %s%s", model, *m.prefix ? " under '" : "");
        print_text(m.prefix, 0);
        printf("%s\n", *m.prefix ? "'" : "");
        compare_all(&m);
        print_verdict(&m);
        fits = can_load(&m) && load(&m);
        printf("  %s\n", fits ? "all weights can be loaded" : "these weights cannot be loaded");
    }
    close_match(&m);
    return fits;
}

/* ---- any model ---- */

/* Prints the models of the table whose weights can all be loaded from the file. False if none. */
static bool inspect_match_any(const char *path)
{
    const tp_model_row *row, *nearest = NULL;
    char why[2048] = "";
    int models = 0, most = 0, of = 0;
    bool opened = true;
    for (int i = 0; opened && (row = tp_model_at(i)); i++) {
        match m = { 0 };
        opened = open_match(&m, row->name, path, why, sizeof why);
        if (opened) compare_all(&m);
        if (opened && can_load(&m)) {
            printf("%-24s %-18s %s\n", row->name, row->family,
                   m.resized ? "can be loaded for another image size" : "fits");
            models++;
        } else if (m.fit > most) {
            nearest = row;
            most = m.fit;
            of = m.all;
        }
        close_match(&m);
    }
    if (!opened) tp_command_complain("tp-inspect", why);
    if (!opened || models > 0) return opened;
    print_text(path, 0);
    printf(": no model fits");
    if (nearest) printf("; the nearest is %s, with %d of its %d tensors", nearest->name, most, of);
    printf("\n");
    return false;
}

/* ---- the command ---- */

typedef struct request {
    tp_words files;
    char *match;
    bool names, meta;
} request;

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(request, files, "FILE ...",
                 "safetensors, PyTorch's .pth, .pt or .bin, or the index of several files."),
    TP_FLAG("names", request, names, 0, "Print only the names of the tensors, one per line."),
    TP_FLAG("meta", request, meta, 0, "Print only the metadata, one KEY = VALUE per line."),
    TP_STRING_OF("match", request, match, "MODEL", tp_model_name, 0,
                 "Compare the names and shapes with those that the model expects, and list every "
                 "difference. any: list the models that fit. tp-models lists them."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (r->files.n == 0)
        snprintf(why, size, "no FILE was given");
    else if (r->names + r->meta + (r->match != NULL) > 1)
        snprintf(why, size, "--names, --meta and --match exclude each other");
    else
        return true;
    return false;
}

static const tp_command manual = {
    .name = "tp-inspect",
    .summary = "lists the tensors and the metadata of files of weights",
    .synopsis = "[--names | --meta | --match MODEL] FILE ...",
    .about =
        "Checks each FILE and prints its metadata, then one line for each tensor in the order of "
        "the data: name, dtype, shape, minimum, maximum and mean of the finite elements, and the "
        "number of NaN and infinite elements, if any. No values are shown for empty tensors and "
        "for dtypes that the library does not convert (8-bit floats, complex, U64). A tensor that "
        "it cannot "
        "read at all (sparse, quantised, expanded, of an unknown dtype) is listed with the "
        "reason. The last "
        "line has the totals and says whether the file has checksums.\n\n"
        "Checksums are verified first; for a damaged file only the damage is reported. --names "
        "and --meta read only the header. Values are read in pieces, so memory does not grow with "
        "the file.\n\n"
        "--match knows the prefixes and names of the model's publishers and leaves out buffers "
        "that "
        "models compute, as loading does. If all names and shapes fit MODEL, the values are read "
        "as "
        "well.",
    .table = table,
    .check = check,
    .more =
        "EXIT STATUS\n"
        "    0  every file is sound, even if it has tensors that the library cannot read; with\n"
        "       --match, all weights can be loaded\n"
        "    1  a file is missing or damaged, and standard error says which, where and what to\n"
        "       do; or it does not fit the model\n"
        "    2  a wrong command line\n\n"
        "EXAMPLES\n"
        "    tp-inspect best.safetensors\n"
        "    tp-inspect --names best.safetensors | grep bias\n"
        "    tp-inspect --match cvt-13 CvT-13-224x224-IN-1k.pth\n"
        "    tp-inspect --match any checkpoint.pth\n",
};

static void print_meta(const tp_file *F)
{
    const char *key, *value;
    for (int i = 0; tp_file_meta_at(F, i, &key, &value); i++) {
        print_text(key, 0);
        printf(" = ");
        print_text(value, 0);
        printf("\n");
    }
}

typedef struct summary {
    double low, high, sum;
    int64_t finite, nan, infinite;
} summary;

static void add(summary *s, double x)
{
    if (isnan(x))
        s->nan++;
    else if (isinf(x))
        s->infinite++;
    else {
        s->low = s->finite ? fmin(s->low, x) : x;
        s->high = s->finite ? fmax(s->high, x) : x;
        s->sum += x;
        s->finite++;
    }
}

typedef enum kind { FLOAT, INTEGER, OPAQUE } kind;

static kind kind_of(const char *stored)
{
    static const char *const floats[] = { "F64", "F32", "F16", "BF16" };
    static const char *const integers[] = { "I64", "I32", "I16", "I8", "U32", "U16", "U8", "BOOL" };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (strcmp(stored, floats[i]) == 0) return FLOAT;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (strcmp(stored, integers[i]) == 0) return INTEGER;
    return OPAQUE;
}

/* Summarises the elements that could be read; F has failed if not all could. */
static summary summarise(tp_file *F, const tp_file_tensor *t)
{
    enum { PIECE = 4096 };
    double floats[PIECE];
    int64_t integers[PIECE];
    summary s = { 0 };
    const kind k = kind_of(t->stored);
    if (strcmp(t->stored, "U64") == 0 && t->code == TP_OK) { /* above the range of i64 */
        const uint64_t *x = tp_file_data(F, t);
        for (int64_t i = 0; x && i < t->numel; i++) add(&s, (double)x[i]);
    }
    for (int64_t at = 0; k != OPAQUE && t->code == TP_OK && at < t->numel; at += PIECE) {
        const int64_t n = t->numel - at < PIECE ? t->numel - at : PIECE;
        const bool read = k == FLOAT ? tp_file_read_part(F, t, at, n, TP_F64, floats)
                                     : tp_file_read_part(F, t, at, n, TP_I64, integers);
        if (!read) break;
        for (int64_t i = 0; i < n; i++) add(&s, k == FLOAT ? floats[i] : (double)integers[i]);
    }
    return s;
}

static void print_tensor(tp_file *F, const tp_file_tensor *t, int width)
{
    char shape[256];
    const summary s = summarise(F, t);
    if (!tp_file_ok(F)) return;
    print_text(t->name, width);
    printf("  %-7s %-17s", t->stored, shape_text(&t->shape, shape, sizeof shape));
    if (t->why) printf(" cannot be read: it %s", t->why);
    if (s.finite) printf(" %12.5g %12.5g %12.5g", s.low, s.high, s.sum / (double)s.finite);
    if (s.nan) printf("  %lld NaN", (long long)s.nan);
    if (s.infinite) printf("  %lld infinite", (long long)s.infinite);
    printf("\n");
}

static void print_tensors(tp_file *F)
{
    int width = 4, unreadable = 0;
    int64_t elements = 0;
    size_t bytes = 0;
    for (int i = 0; i < tp_file_count(F); i++) {
        const int n = (int)strlen(tp_file_at(F, i)->name);
        width = n > width && n <= 60 ? n : width;
    }
    printf("%-*s  %-7s %-17s %12s %12s %12s\n", width, "name", "dtype", "shape", "min", "max",
           "mean");
    for (int i = 0; tp_file_ok(F) && i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        print_tensor(F, t, width);
        elements += t->numel;
        bytes += t->bytes;
        unreadable += t->code != TP_OK;
    }
    if (!tp_file_ok(F)) return;
    printf("%d tensors, %lld elements, %llu bytes, %s", tp_file_count(F), (long long)elements,
           (unsigned long long)bytes,
           tp_file_has_checksums(F) ? "checksums agree" : "no checksums");
    if (unreadable) printf("; %d cannot be read", unreadable);
    printf("\n");
}

/* Reports which tensors the file describes wrongly. */
static bool is_sound(const char *path, const tp_file *F)
{
    enum { SHOWN = 10 };
    char text[2048], plain[2048];
    int wrong = 0;
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        if (t->code != TP_E_IO || wrong++ >= SHOWN) continue;
        snprintf(text, sizeof text, "%.1000s: tensor '%.200s' %s", path, t->name, t->why);
        tp_command_complain("tp-inspect", tp_plain(text, plain, sizeof plain));
    }
    if (wrong > SHOWN)
        fprintf(stderr, "and %d more tensors that the file describes wrongly\n", wrong - SHOWN);
    return wrong == 0;
}

typedef enum mode { ALL, NAMES, META } mode;

static bool inspect(const char *path, mode m, bool title)
{
    tp_file *F = tp_file_open(path);
    bool ok = m == ALL ? tp_file_verify(F) : tp_file_ok(F);
    if (ok && title && m == ALL) {
        print_text(path, 0);
        printf("\n");
    }
    if (ok && m != NAMES) print_meta(F);
    if (ok && m == ALL) print_tensors(F);
    for (int i = 0; ok && m == NAMES && i < tp_file_count(F); i++) {
        print_text(tp_file_at(F, i)->name, 0);
        printf("\n");
    }
    ok = tp_file_ok(F); /* reading values may have failed */
    if (!ok)
        tp_command_complain("tp-inspect", tp_file_why(F));
    else if (m == ALL)
        ok = is_sound(path, F);
    tp_file_close(F);
    return ok;
}

static bool run(void *options, char *why, size_t size)
{
    const request *r = options;
    const mode m = r->names ? NAMES : r->meta ? META : ALL;
    (void)why, (void)size; /* each file has printed its own message */
    bool done = true;
    for (int i = 0; i < r->files.n; i++) {
        const char *path = r->files.at[i];
        const bool fine = !r->match                      ? inspect(path, m, r->files.n > 1)
                          : strcmp(r->match, "any") == 0 ? inspect_match_any(path)
                                                         : inspect_match(r->match, path);
        done = fine && done;
    }
    return done;
}

int main(int argc, char **argv)
{
    request r = { 0 };
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
