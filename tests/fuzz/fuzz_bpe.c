/* fuzz_bpe.c - the input is a byte that names a kind, and a vocabulary with merges, a
 * tokenizer.json, a dictionary, a text, or texts to learn from.
 *
 * Besides memory safety the following must hold: a vocabulary that opens is written and read back
 * the same; every text decodes to its own bytes; a text has at most as many ids as bytes. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>

enum { MOST = 4096 };

static void check_text(const tp_bpe *X, const char *text, size_t n)
{
    int64_t count;
    size_t bytes;
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    fuzz_demand(C, "there is memory");
    const int32_t *ids = tp_bpe_encode(C, text, n, &count);
    fuzz_demand(ids && count <= (int64_t)n, "a text has at most as many ids as bytes");
    bool known = true;
    for (int64_t i = 0; i < count; i++) {
        fuzz_demand(ids[i] >= 0 && ids[i] < tp_bpe_size(X), "ids are in the vocabulary");
        known &= ids[i] != tp_bpe_special_id(X, TP_BPE_UNKNOWN);
    }
    const char *back = tp_bpe_decode(C, ids, count, TP_BPE_RAW, &bytes);
    fuzz_demand(back, "ids can be decoded");
    fuzz_demand(!known || (bytes == n && memcmp(back, text, n) == 0), "a text decodes to itself");
    fuzz_demand(tp_bpe_decode(C, ids, count, TP_BPE_SKIP_SPECIALS, NULL), "ids can be decoded");
    tp_bpe_coder_free(C);
}

static void check(tp_bpe *X)
{
    static const char text[] = "A text, don't  \xc3\xa9\xff\n\n 12";
    fuzz_demand_reason(tp_bpe_ok(X), tp_bpe_why(X));
    fuzz_demand(tp_bpe_ok(X) == (tp_bpe_size(X) > 0), "a good vocabulary has ids");
    if (tp_bpe_ok(X)) {
        char *vocab = tp_bpe_vocab_text(X), *merges = tp_bpe_merges_text(X);
        tp_bpe *Y = tp_bpe_from("again", vocab, merges, NULL);
        fuzz_demand(tp_bpe_ok(Y), tp_bpe_why(Y));
        fuzz_demand(tp_bpe_size(X) == tp_bpe_size(Y) && tp_bpe_merges(X) == tp_bpe_merges(Y),
                    "a vocabulary reads back");
        tp_bpe_close(Y);
        free(vocab);
        free(merges);
        check_text(X, text, sizeof text - 1);
    }
    tp_bpe_close(X);
}

/* Merges of a vocabulary with <unk> and without the bytes; after a zero byte, merges. */
static void vocabulary(const char *input)
{
    const size_t n = strlen(input);
    check(tp_bpe_from("input", input, input[n + 1] ? input + n + 1 : "", NULL));
}

static void tokenizer(const char *input)
{
    check(tp_bpe_from_json("input", input));
}

static void merges(const char *input)
{
    check(tp_bpe_from(
        "input",
        "{\"<unk>\":0,\"a\":1,\"b\":2,\"c\":3,\"ab\":4,\"abc\":5,\"bc\":6,\"aa\":7,\"\xc4\xa0\":8,"
        "\"\xc4\xa0"
        "a\":9,\"<mask>\":10,\"aaa\":11}",
        input, NULL));
}

static void dictionary(const char *input)
{
    static char vocab[8192] = "";
    char *to = vocab + sprintf(vocab, "{");
    for (int c = 0, id = 0; c <= 0x143; c++) {
        const bool direct = (c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173);
        if (direct || c > 255)
            to += sprintf(to, "%s\"\\u%04x\":%d", id ? "," : "", (unsigned)c, id), id++;
    }
    sprintf(to, "}");
    check(tp_bpe_from("input", vocab, "", input));
}

/* Learns from the input and encodes it with the result. */
static void texts(const char *input, size_t n)
{
    tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 261 + 40, .least = 1 });
    fuzz_demand(R && tp_bpe_trainer_add(R, input, n / 2) &&
                    tp_bpe_trainer_add(R, input + n / 2, n - n / 2),
                "texts can be counted");
    tp_bpe *X = tp_bpe_trainer_finish(R);
    tp_bpe_trainer_free(R);
    fuzz_demand(tp_bpe_ok(X), tp_bpe_why(X));
    check_text(X, input, n);
    check(X);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static char copy[MOST + 2];
    if (size < 1 || size > MOST) return 0;
    const size_t n = size - 1;
    memcpy(copy, input + 1, n);
    copy[n] = copy[n + 1] = '\0';
    switch (input[0] % 5) {
    case 0: vocabulary(copy); break;
    case 1: tokenizer(copy); break;
    case 2: merges(copy); break;
    case 3: dictionary(copy); break;
    default: texts(copy, n);
    }
    return 0;
}
