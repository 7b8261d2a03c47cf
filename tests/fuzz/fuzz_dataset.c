/* fuzz_dataset.c - the input is two bytes of options and a file: CSV, JSON lines, or tensors of
 * NumPy, plain or packed. Besides memory safety the following must hold: a set in memory and one
 * that is read again have the same rows, a bad row gives a reason that names it, and the classes of
 * a field are its distinct texts. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <tapegrad/dataset.h>
#include <tapegrad/random.h>

enum { OPTIONS = 2, MOST = 1 << 12 };

/* What a set holds: hashes of its rows, or of the reasons why they are bad. */
typedef struct seen {
    const tp_dataset *X;
    uint64_t hash;
    int64_t rows;
} seen;

static bool take(void *env, tp_row *r)
{
    seen *s = env;
    double x[4];
    for (int i = 0; i < 4 && tp_dataset_field(s->X, i); i++) {
        const char *field = tp_dataset_field(s->X, i);
        const int64_t n = tp_row_length(r, field);
        const bool empty = tp_row_is_empty(r, field);
        s->hash = tp_hash(tp_hash(s->hash, (uint64_t)n), empty);
        if (n <= 4 && !empty && s->rows % 2) tp_row_read(r, field, n, TP_F64, x);
        if (n <= 4 && !empty && s->rows % 3 == 1) tp_row_read(r, field, n, TP_U8, x);
        s->hash = tp_hash_text(s->hash, tp_row_text(r, field));
    }
    if (!tp_row_is_empty(r, "a")) s->hash = tp_hash(s->hash, (uint64_t)tp_row_int(r, "a"));
    return ++s->rows < MOST;
}

/* Reads single rows, so that one that is bad does not hide the others. */
static uint64_t look(const tp_dataset *X)
{
    seen s = { .X = X, .hash = TP_HASH };
    const int64_t n = tp_dataset_count(X);
    for (int64_t i = 0; i < n && i < 64; i++) {
        char why[TP_EXAMPLE_WHY + 600];
        tp_dataset *one = tp_dataset_choose(X, &i, 1);
        const bool good = tp_dataset_each(one, take, &s, why, sizeof why);
        fuzz_demand_reason(good, why);
        fuzz_demand(good || strstr(why, "line ") || strstr(why, "row "), "a bad row is named");
        s.hash = tp_hash(s.hash, good);
        tp_dataset_free(one);
    }
    return s.hash;
}

static void check_classes(tp_dataset *X, const char *field)
{
    if (!field) return;
    const int32_t n = tp_dataset_classes(X, field);
    const int32_t *label = tp_dataset_labels(X, field);
    fuzz_demand_reason(tp_dataset_ok(X), tp_dataset_why(X));
    fuzz_demand(tp_dataset_ok(X) == (n > 0), "there are classes unless a row is bad");
    for (int64_t i = 0; i < tp_dataset_count(X); i++)
        fuzz_demand(label[i] >= 0 && label[i] < n, "a label is a class");
}

static tp_dataset *open_as(int kind, const char *path, const tp_dataset_opts *o)
{
    return kind == 0   ? tp_dataset_csv(path, o)
           : kind == 1 ? tp_dataset_json_lines(path, o)
                       : tp_dataset_file(path, o);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < OPTIONS) return 0;
    const char *path = fuzz_path(input + OPTIONS, size - OPTIONS);
    tp_dataset_opts o = { .separator = input[1] & 128 ? (char)(input[1] & 127) : '\0',
                          .no_header = input[0] & 4,
                          .no_quotes = input[0] & 8,
                          .comment = input[0] & 16 ? '#' : '\0',
                          .missing = input[0] & 32 ? "NA" : NULL };
    tp_dataset *X = open_as(input[0] % 4, path, &o);
    o.memory = 1;
    tp_dataset *again = open_as(input[0] % 4, path, &o);
    fuzz_demand_reason(tp_dataset_ok(X), tp_dataset_why(X));
    fuzz_demand(tp_dataset_ok(X) == (tp_dataset_count(X) > 0), "a good set has rows");
    /* of tensors, damage is found when the file is opened or when a row is read */
    if (tp_dataset_ok(X) || input[0] % 4 < 2) {
        fuzz_demand(tp_dataset_count(X) == tp_dataset_count(again), "as many rows, read again");
        fuzz_demand(look(X) == look(again), "the same rows, read again");
    }
    if (tp_dataset_ok(X)) check_classes(X, tp_dataset_field(X, 0));
    if (tp_dataset_ok(X)) check_classes(X, "a");
    tp_dataset_free(again);
    tp_dataset_free(X);
    return 0;
}
