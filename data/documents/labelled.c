/* labelled.c - labelled sets of texts: the files of a part, their order and their labels.
 *
 * A first walk through a folder or archive looks only at names: the existing parts and their
 * classes. Then the part is read, from files of classes or from a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>

#include "files.h"
#include "labelled.h"
#include "load.h"
#include "tree.h"

enum { LONGEST = 512, MOST_IDS = 1 << 16, EVERY = 10, NO_PART = -1 };
static const size_t largest = (size_t)1 << 26;
static const char *const part_name[TP_TEXT_PARTS] = { "train", "valid", "test" };

/* ---- names of files ---- */

/* Returns the component of a path that ends before *end; moves *end to its slash. NULL: no more. */
static const char *component(const char *path, const char **end, size_t *n)
{
    const char *p = *end;
    if (p <= path) return NULL;
    while (p > path && p[-1] != '/') p--;
    *n = (size_t)(*end - p);
    *end = p > path ? p - 1 : path;
    return p;
}

static int part_of(const char *name, size_t n)
{
    for (int k = 0; k < TP_TEXT_PARTS; k++)
        if (strlen(part_name[k]) == n && memcmp(name, part_name[k], n) == 0) return k;
    return NO_PART;
}

/* Is it a file .../PART/CLASS/NAME.txt? Without labels any folder named like a part is a part. */
static bool is_text(const tp_text_reader *r, const char *name, int *part, const char **class,
                    size_t *class_bytes)
{
    const char *end = name + strlen(name);
    size_t n;
    *part = NO_PART;
    if (!tp_ends_in(name, ".txt") || !component(name, &end, &n)) return false;
    *class = component(name, &end, class_bytes);
    if (r->o.unlabelled) {
        end = name + strlen(name);
        component(name, &end, &n);
        for (const char *at; *part == NO_PART && (at = component(name, &end, &n)) != NULL;)
            *part = part_of(at, n);
        return true;
    }
    if (!*class || (*class_bytes == 5 && memcmp(*class, "unsup", 5) == 0)) return false;
    const char *at = component(name, &end, &n);
    if (at) *part = part_of(at, n);
    return true;
}

/* ---- the first walk ---- */

/* Notes PART.csv, PART.jsonl ... in the folder itself; those in an archive only for a message. */
static void note_table(tp_text_reader *r, const char *name)
{
    if (r->archive) {
        if (!r->packed[0] && tp__are_records(name))
            snprintf(r->packed, sizeof r->packed, "%.255s", name);
        return;
    }
    const char *dot = strchr(name, '.');
    const int part = dot && !strchr(name, '/') ? part_of(name, (size_t)(dot - name)) : NO_PART;
    if (part == NO_PART || !tp__are_records(name)) return;
    if (r->table[part][0])
        tp__fail(r->X, "%.400s has two files for the part %s: %.200s and %.200s; remove one",
                 r->path, part_name[part], r->table[part], name);
    else
        snprintf(r->table[part], PATH_MAX, "%.3000s/%.255s", r->path, name);
}

static bool survey(void *env, const char *name)
{
    tp_text_reader *r = env;
    const char *class;
    size_t n;
    int part;
    note_table(r, name);
    if (!is_text(r, name, &part, &class, &n)) return false;
    if (part >= 0) r->has[part] = true;
    if (r->o.unlabelled || r->closed) return false;
    tp_text_class *c = tp__text_class(r, name, class, n);
    if (c) c->parts |= (uint8_t)(1 << (part >= 0 ? part : TP_TEXT_PARTS));
    return false;
}

/* ---- reading ---- */

static bool wants(void *env, const char *name)
{
    const tp_text_reader *r = env;
    const char *class;
    size_t n;
    int part;
    return is_text(r, name, &part, &class, &n) && (r->source == NO_PART || part == r->source);
}

/* Adds the content of a file; messages call it `where`. */
static bool add_file(tp_text_reader *r, const char *where, const char *name, tp_text_class *c,
                     const char *text, size_t n)
{
    char why[200];
    return tp_skip_bom(&text, &n, why, sizeof why) ? tp__text_add(r, name, c, text, n)
                                                   : tp__fail(r->X, "%.700s %s", where, why);
}

static bool take(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    tp_text_reader *r = env;
    const char *class = NULL;
    char where[1200];
    size_t class_bytes = 0;
    int part;
    snprintf(where, sizeof where, "%.600s/%.400s", r->path, name);
    is_text(r, name, &part, &class, &class_bytes);
    tp_text_class *c = r->o.unlabelled ? NULL : tp__text_class(r, name, class, class_bytes);
    return (c || r->o.unlabelled) && add_file(r, where, name, c, (const char *)bytes, n);
}

static bool visit(tp_text_reader *r, bool (*f)(void *env, const char *name))
{
    const tp_tree tree = { .wants = f,
                           .take = take,
                           .env = r,
                           .most = largest,
                           .why = r->X->why,
                           .size = sizeof r->X->why };
    return tp__tree_visit(r->path, &tree);
}

static bool read_file(tp_text_reader *r)
{
    char why[256];
    tp_blob b;
    const char *slash = strrchr(r->path, '/');
    if (!r->o.unlabelled)
        return tp__fail(r->X,
                        "%.700s has no labels; give a folder of classes, CLASS/NAME.txt, "
                        "or a file .csv or .jsonl",
                        r->path);
    if (tp__blob_load(&b, r->path, largest + 1, why, sizeof why) && b.size <= largest)
        add_file(r, r->path, slash ? slash + 1 : r->path, NULL, (const char *)b.bytes, b.size);
    else
        tp__fail(r->X, "%.700s %s", r->path,
                 b.size > largest ? "has more than the 64 MiB of a text" : why);
    tp__blob_free(&b);
    return !r->X->why[0];
}

/* ---- parts ---- */

typedef enum side { ALL, REST, HELD } side;

/* Is no part a link to another? */
static bool differ(tp_text_reader *r)
{
    char train[PATH_MAX], other[PATH_MAX];
    for (int k = TP_VALID; k <= TP_TEST; k++) {
        const bool table = r->table[TP_TRAIN][0] && r->table[k][0];
        snprintf(train, sizeof train, table ? "%s" : "%.3000s/train",
                 table ? r->table[TP_TRAIN] : r->path);
        snprintf(other, sizeof other, table ? "%s" : "%.3000s/%s", table ? r->table[k] : r->path,
                 part_name[k]);
        if ((table || (r->has[TP_TRAIN] && r->has[k])) && tp__same_file(train, other))
            return tp__fail(r->X, "%.480s and %.480s are one file; parts need their own", train,
                            other);
    }
    return true;
}

/* Chooses the split and its texts: all, those kept, or those held back (every n-th). */
static bool choose(tp_text_reader *r, tp_part part, side *what, int64_t *n)
{
    const int64_t asked = r->o.hold_back_every;
    bool has[TP_TEXT_PARTS];
    for (int k = 0; k < TP_TEXT_PARTS; k++) has[k] = r->has[k] || r->table[k][0];
    const bool divided = has[TP_VALID] || has[TP_TEST];
    if (!differ(r)) return false;
    *n = asked >= 2 ? asked : asked == 0 && !divided && !r->o.unlabelled ? EVERY : 0;
    r->source = divided || has[TP_TRAIN] ? TP_TRAIN : NO_PART;
    if (part == TP_TEST && divided)
        r->source = has[TP_TEST] ? TP_TEST : TP_VALID;
    else if (part == TP_VALID && divided && *n == 0)
        r->source = has[TP_VALID] ? TP_VALID : TP_TEST;
    *what = r->source > TP_TRAIN || *n == 0 ? ALL : part == TP_TRAIN ? REST : HELD;
    if (r->source >= 0 && !has[r->source])
        return tp__fail(r->X, "%.700s has no part '%s', neither a folder nor %s.csv or %s.jsonl",
                        r->path, part_name[r->source], part_name[r->source], part_name[r->source]);
    return true;
}

/* Reads a folder, a tar file or a single file. */
static bool read_all(tp_text_reader *r, tp_part part, side *what, int64_t *n)
{
    struct stat st;
    const bool folder = stat(r->path, &st) == 0 && S_ISDIR(st.st_mode);
    const bool file = !folder && (tp__are_records(r->path) || tp__is_named(r->path, ".txt"));
    r->archive = !folder && !file;
    if (!file && !visit(r, survey)) return false;
    if (!choose(r, part, what, n)) return false;
    const bool table =
        file || r->table[TP_TRAIN][0] || r->table[TP_VALID][0] || r->table[TP_TEST][0];
    if (file && !tp__are_records(r->path)) return read_file(r);
    if (!table) {
        const int classes = r->has[TP_TRAIN] ? TP_TRAIN : r->source;
        tp__text_classes_end(r, (uint8_t)(1 << (classes >= 0 ? classes : TP_TEXT_PARTS)));
        return !r->X->why[0] && visit(r, wants);
    }
    if (!file && r->source != TP_TRAIN && r->table[TP_TRAIN][0] && !r->closed && !r->o.unlabelled) {
        r->names_only = true;
        tp__read_records(r, r->table[TP_TRAIN]);
        r->names_only = false;
        tp__text_classes_end(r, 0);
    }
    if (r->X->why[0] || !tp__read_records(r, file ? r->path : r->table[r->source])) return false;
    tp__text_classes_end(r, 0);
    return !r->X->why[0];
}

/* ---- the set ---- */

/* All that qsort passes to the comparison. */
typedef struct sorted {
    const char *name;
    const tp_text_item *is;
} sorted;

static int by_class_and_name(const void *a, const void *b)
{
    const sorted *x = a, *y = b;
    const int32_t i = x->is->class ? x->is->class->index : 0,
                  j = y->is->class ? y->is->class->index : 0;
    return i != j ? (i < j ? -1 : 1) : strcmp(x->name, y->name);
}

static bool name_classes(tp_text_reader *r)
{
    tp_documents *X = r->X;
    if (r->classes < 1) return true;
    X->class_name = calloc((size_t)r->classes, sizeof *X->class_name);
    X->classes = X->class_name ? r->classes : 1;
    bool fits = X->class_name;
    for (int k = 0; fits && k < r->classes; k++)
        fits = (X->class_name[r->class[k] -> index] = strdup(r->class[k] -> name)) != NULL;
    return fits || tp__fail(X, "%.700s: out of memory for the names of its classes", r->path);
}

static void add_item(tp_text_reader *r, const tp_text_item *it)
{
    uint16_t *to = tp__documents_room(r->X, it->n);
    if (to) memcpy(to, r->ids + it->at, (size_t)it->n * sizeof *to);
    if (to && tp__documents_end(r->X, it->n) &&
        tp__documents_label(r->X, it->class ? it->class->index : -1))
        tp__documents_name(r->X, r->names + it->name);
}

/* Moves the chosen texts to the set. */
static void fill(tp_text_reader *r, side what, int64_t every)
{
    const bool table = r->source >= 0 ? r->table[r->source][0] : tp__are_records(r->path);
    const int classes = r->o.unlabelled || r->classes < 1 ? 1 : r->classes;
    sorted *order = malloc((r->count + 1) * sizeof *order);
    int64_t *left = malloc((size_t)classes * sizeof *left), place = 0;
    if (!order || !left)
        tp__fail(r->X, "%.700s: out of memory to sort %zu texts", r->path, r->count);
    for (size_t i = 0; order && i < r->count; i++)
        order[i] = (sorted){ r->names + r->item[i].name, &r->item[i] };
    if (order && !table && r->count) qsort(order, r->count, sizeof *order, by_class_and_name);
    for (int k = 0; left && k < classes; k++)
        left[k] = table || r->o.limit <= 0 ? INT64_MAX
                                           : r->o.limit / classes + (k < r->o.limit % classes);
    for (size_t i = 0; order && left && i < r->count && !r->X->why[0]; i++) {
        const tp_text_item *it = order[i].is;
        if (left[it->class ? it->class->index : 0]-- <= 0) continue;
        const bool held = every && place % every == every - 1;
        place++;
        if (what == ALL || (what == HELD) == held) add_item(r, it);
    }
    free(order);
    free(left);
}

/* Fails: the part has no texts. */
static bool fail_empty(tp_text_reader *r, tp_part part, int64_t every)
{
    if (r->count > 0)
        return tp__fail(r->X,
                        "%.700s: of %zu texts none is left for the part '%s' if every "
                        "%lldth is held back; give more texts, or hold back more",
                        r->path, r->count, part_name[part], (long long)every);
    if (tp__are_records(r->path)) return tp__fail(r->X, "%.700s contains no texts", r->path);
    if (r->packed[0])
        return tp__fail(r->X,
                        "%.700s holds %.255s: CSV and JSON lines are not read from "
                        "archives; unpack it and give the folder or the file",
                        r->path, r->packed);
    if (r->o.unlabelled)
        return tp__fail(r->X,
                        "%.700s contains no texts: there should be files .txt, .csv or "
                        ".jsonl",
                        r->path);
    return tp__fail(r->X,
                    "%.700s contains no texts for the part '%s': there should be folders "
                    "CLASS/NAME.txt, a file .csv or a file .jsonl",
                    r->path, part_name[part]);
}

static void finish(tp_text_reader *r, tp_part part, side what, int64_t every)
{
    tp_documents *X = r->X;
    if (!name_classes(r)) return;
    fill(r, what, every);
    if (X->why[0] || (X->count == 0 && !fail_empty(r, part, every))) return;
    int n = 0;
    if (r->cut > 0)
        n = snprintf(X->note, sizeof X->note,
                     "%lld of %zu texts have more than %lld ids and were cut", (long long)r->cut,
                     r->count, (long long)r->o.longest);
    if (r->unknown > 0)
        snprintf(X->note + n, sizeof X->note - (size_t)n,
                 "%s%lld of %zu ids are <unk>, bytes that the vocabulary lacks", n ? "; " : "",
                 (long long)r->unknown, r->used);
}

/* ---- options ---- */

static bool check_options(tp_documents *X, const tp_labelled_opts *o)
{
    if (o->longest < 3 || o->longest > INT32_MAX)
        return tp__fail(X,
                        "texts: a length of %lld ids is not 3 to %d: <s>, </s> and at "
                        "least one of the text",
                        (long long)o->longest, INT32_MAX);
    if (o->tail < 0 || o->tail > o->longest - 2)
        return tp__fail(X,
                        "texts: %lld ids from the end of a text are not 0 to %lld, the "
                        "length without <s> and </s>; change the tail or the length",
                        (long long)o->tail, (long long)(o->longest - 2));
    if (o->hold_back_every == 1)
        return tp__fail(X, "texts: hold_back_every 1 leaves nothing to train; 2 takes half");
    if (o->classes < 0 || o->classes > TP_MOST_CLASSES || (o->classes > 0 && !o->name))
        return tp__fail(X, "texts: %d classes are not 0 to %d, or have no names", o->classes,
                        TP_MOST_CLASSES);
    return true;
}

static bool check_vocabulary(tp_documents *X, const tp_bpe *V)
{
    static const tp_bpe_special needed[] = { TP_BPE_BEGIN, TP_BPE_PAD, TP_BPE_END };
    if (!tp_bpe_ok(V)) return tp__fail(X, "%s", tp_bpe_why(V));
    if (tp_bpe_size(V) > MOST_IDS)
        return tp__fail(X, "texts: the vocabulary has %lld ids, more than %d",
                        (long long)tp_bpe_size(V), MOST_IDS);
    for (int k = 0; k < 3; k++)
        if (tp_bpe_special_id(V, needed[k]) < 0)
            return tp__fail(X, "texts: the vocabulary has no token %s",
                            tp_bpe_special_name(needed[k]));
    return true;
}

static tp_labelled_opts filled(const tp_labelled_opts *o)
{
    tp_labelled_opts full = o ? *o : (tp_labelled_opts){ 0 };
    if (full.longest == 0) full.longest = LONGEST;
    if (!full.text) full.text = "text";
    if (!full.label) full.label = "label";
    return full;
}

/* Takes over the classes of a model. */
static bool take_classes(tp_text_reader *r)
{
    for (int k = 0; k < r->o.classes; k++) {
        const int before = r->classes;
        tp_text_class *c = tp__text_class(r, "texts", r->o.name[k], strlen(r->o.name[k]));
        if (!c) return false;
        if (r->classes == before)
            return tp__fail(r->X, "texts: two classes have the name '%.100s'", c->name);
        c->index = k;
    }
    r->closed = r->o.classes > 0;
    return true;
}

static void free_reader(tp_text_reader *r)
{
    for (int k = 0; k < r->classes; k++) {
        free(r->class[k] -> name);
        free(r->class[k]);
    }
    free(r->class);
    free(r->item);
    free(r->ids);
    free(r->names);
    tp_bpe_coder_free(r->coder);
    free(r);
}

tp_documents *tp_documents_labelled_texts(const char *path, tp_part part, const tp_bpe *V,
                                          const tp_labelled_opts *o)
{
    if (!path) path = "";
    tp_documents *X = tp_documents_new(1, 1);
    tp__documents_from(X, path);
    side what = ALL;
    int64_t every = 0;
    if (!tp_documents_ok(X)) return X;
    tp_text_reader *r = calloc(1, sizeof *r);
    tp_bpe_coder *C = tp_bpe_coder_new(V);
    if (!r || !C) {
        tp__fail(X, "texts: out of memory");
        tp_bpe_coder_free(C);
        free(r);
        return X;
    }
    *r = (tp_text_reader){ .X = X, .vocabulary = V, .coder = C, .o = filled(o), .path = path };
    if (check_options(X, &r->o) && check_vocabulary(X, V) && take_classes(r) &&
        read_all(r, part, &what, &every))
        finish(r, part, what, every);
    free_reader(r);
    return X;
}

void tp_documents_add_text(tp_documents *X, tp_bpe_coder *C, int32_t label, const char *name,
                           const char *text, size_t n, const tp_labelled_opts *o)
{
    if (!X) return;
    const tp_labelled_opts full = filled(o);
    const int64_t most = n < (size_t)full.longest ? (int64_t)n + 2 : full.longest;
    bool cut;
    if (X->why[0] || !check_options(X, &full) || !check_vocabulary(X, tp_bpe_coder_vocabulary(C)))
        return;
    uint16_t *to = tp__documents_room(X, most);
    const int64_t got = to ? tp__text_ids(C, &full, text, n, to, &cut) : 0;
    if (got < 0) tp__fail(X, "texts: out of memory for a text of %zu bytes", n);
    if (got < 1 || !tp__documents_end(X, got) || !tp__documents_label(X, label) || !name) return;
    tp__documents_name(X, name);
}
