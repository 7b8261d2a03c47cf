/* fuzz_data.c - the input is four bytes of options and a file of training text, plain or packed:
 *
 *     style    valid, test: 256ths of the text    batch and tokens of the streams    the file
 *
 * At most 128 KiB of the file are read, as by a caller who does not trust it. Besides memory safety
 * the following must hold: the parts make up the text, every id is in the dictionary and stands for
 * its byte, and a dictionary reads back as it was printed. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <tapegrad/data.h>

enum { OPTIONS = 4, LIMIT = 1 << 17, PRINTED = 2048, STEPS = 5, CELLS = 16 * 16 };

static bool same_ids(const tp_vocab *a, const tp_vocab *b)
{
    return a->style == b->style && a->size == b->size &&
           memcmp(a->symbol, b->symbol, sizeof a->symbol) == 0 &&
           memcmp(a->id, b->id, sizeof a->id) == 0;
}

static void print_and_parse(const tp_vocab *v)
{
    char text[PRINTED];
    tp_vocab back;
    fuzz_demand(tp_vocab_print(v, text, sizeof text), "2048 bytes hold every dictionary");
    fuzz_demand(tp_vocab_parse(&back, text) && same_ids(v, &back), "a dictionary reads back");
}

/* Parses the file as the text of a dictionary. */
static void parse(const uint8_t *file, size_t size)
{
    char *text = malloc(size + 1);
    tp_vocab v;
    if (!text) return;
    memcpy(text, file, size);
    text[size] = '\0';
    if (tp_vocab_parse(&v, text)) print_and_parse(&v);
    free(text);
}

/* Reads the file as a dictionary of a published model. */
static void load(const uint8_t *file, size_t size, tp_text_style style)
{
    tp_vocab v;
    char why[1024] = "";
    if (tp_vocab_load(&v, fuzz_path(file, size), style, why, sizeof why))
        print_and_parse(&v);
    else
        fuzz_demand(why[0], "a refusal has a reason");
}

static void check_ids(const tp_text *X, tp_part s)
{
    const tp_vocab *v = tp_text_vocab(X);
    int64_t n;
    const int16_t *ids = tp_text_ids(X, s, &n);
    fuzz_demand(n >= 0 && n <= tp_text_bytes(X, s) + 1, "a byte is one token, and one ends a part");
    for (int64_t i = 0; i < n; i++) {
        const int id = ids[i], byte = id >= 0 && id < v->size ? v->symbol[id] : -2;
        fuzz_demand(byte == -1 || (byte >= 0 && v->id[byte] == id), "an id stands for its byte");
    }
}

static void stream(const tp_text *X, tp_part s, const tp_streams_opts *o)
{
    int32_t x[CELLS], y[CELLS];
    const int64_t V = tp_text_vocab(X)->size, cells = o->batch * o->tokens;
    tp_streams *S = tp_streams_new(X, s, o);
    fuzz_demand_reason(tp_streams_ok(S), tp_streams_why(S));
    for (int step = 0; step < STEPS && tp_streams_ok(S); step++) {
        if (step == STEPS / 2) tp_streams_seek(S, INT64_MAX / 2);
        fuzz_demand(tp_streams_steps(S) > 0 && tp_streams_next_host(S, x, y),
                    "a good reader reads");
        for (int64_t i = 0; i < cells; i++)
            fuzz_demand(x[i] >= 0 && x[i] < V && y[i] >= -1 && y[i] < V, "ids are in range");
    }
    tp_streams_free(S);
}

/* Checks X and closes it. */
static void check(tp_text *X, const tp_streams_opts *o)
{
    fuzz_demand_reason(tp_text_ok(X), tp_text_why(X));
    if (tp_text_ok(X)) {
        int64_t bytes = 0;
        for (int s = TP_TRAIN; s <= TP_TEST; s++) {
            check_ids(X, (tp_part)s);
            bytes += tp_text_bytes(X, (tp_part)s);
        }
        fuzz_demand(bytes > 0 && bytes <= LIMIT, "the limit is kept");
        print_and_parse(tp_text_vocab(X));
    }
    for (int s = TP_TRAIN; s <= TP_TEST; s++) stream(X, (tp_part)s, o);
    tp_text_close(X);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < OPTIONS) return 0;
    const tp_streams_opts streams = { .batch = 1 + input[3] % 16,
                                      .tokens = 1 + input[3] / 16,
                                      .all_targets = input[0] & 4 };
    tp_text_opts o = { .style = input[0] & 8 ? TP_TEXT_TXL : (tp_text_style)(input[0] % 4),
                       .valid = input[1] / 256.0,
                       .test = input[2] / 256.0,
                       .limit = LIMIT };
    tp_vocab other;
    input += OPTIONS;
    size -= OPTIONS;
    parse(input, size);
    load(input, size, o.style == TP_TEXT_TXL ? TP_TEXT_TXL : TP_TEXT_AUTO);
    check(tp_text_open(fuzz_path(input, size), &o), &streams);
    tp_vocab_build(&other, o.style, input, (int64_t)(size / 2));
    o.vocab = &other;
    check(tp_text_from(input, (int64_t)size, &o), &streams);
    return 0;
}
