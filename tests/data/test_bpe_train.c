/* test_bpe_train.c - training byte-pair vocabularies, beside a plain implementation of the
 * published algorithm. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/bpe.h>

#include "support/bpe.h"
#include "support/folder.h"

/* The words of a text as lists of names; counts all pairs to find the most frequent. */
typedef struct plain {
    int32_t *ids;
    int *length;
    int words;
    char name[600][64];
    int names, merges;
    int32_t merge[600][2];
} plain;

static bool keep_word(void *env, const char *at, size_t n)
{
    plain *p = env;
    int32_t *ids = p->ids;
    for (int k = 0; k < p->words; k++) ids += p->length[k];
    for (size_t i = 0; i < n; i++) ids[i] = (uint8_t)at[i];
    p->length[p->words++] = (int)n;
    return true;
}

/* order[id]: breaks ties, the token's place among all */
static void plain_train(plain *p, int size, int least, const int *order)
{
    static int count[600][600];
    while (p->merges < size) {
        memset(count, 0, sizeof count);
        const int32_t *ids = p->ids;
        int best = 0, left = 0, right = 0;
        for (int k = 0; k < p->words; ids += p->length[k++])
            for (int i = 0; i + 1 < p->length[k]; i++) count[ids[i]][ids[i + 1]]++;
        for (int l = 0; l < p->names; l++)
            for (int r = 0; r < p->names; r++) {
                const bool first =
                    order[l] != order[left] ? order[l] < order[left] : order[r] < order[right];
                if (count[l][r] > best || (count[l][r] == best && best > 0 && first))
                    best = count[l][r], left = l, right = r;
            }
        if (best < least) return;
        const int made = p->names++;
        bpe_join(p->name[made], p->name[left], p->name[right]);
        p->merge[p->merges][0] = left, p->merge[p->merges++][1] = right;
        int32_t *from = p->ids, *to = p->ids;
        for (int k = 0; k < p->words; k++) {
            const int32_t *end = from + p->length[k];
            int n = 0;
            for (; from < end; n++) {
                const bool here = from + 1 < end && from[0] == left && from[1] == right;
                *to++ = here ? made : from[0];
                from += here ? 2 : 1;
            }
            p->length[k] = n;
        }
    }
}

static const char lines_of_verse[] =
    "The cat sat on the mat, the cat's mat; that fat cat sat and that was that.\n"
    "aaaa aaa aa aaaaaaa banana bananas ananas nananana 1122 11221122 2211\n"
    "They're here, we've seen it, she'll see it, I'm sure she'd see it.\n"
    "\xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9s th\xc3\xa9 th\xc3\xa9s   the   then there other mother "
    "brother\n";

/* The order of the characters that stand for bytes. */
static int place_of(int byte)
{
    const bool direct = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    if (direct) return byte;
    return 256 + byte;
}

Test(bpe_train, training_equals_the_plain_algorithm)
{
    static plain p;
    static int32_t ids[8192];
    static int length[4096], order[600];
    for (int least = 1; least <= 3; least++) {
        p = (plain){ .ids = ids, .length = length, .names = 256 };
        for (int i = 0; i < 600; i++) order[i] = i < 256 ? place_of(i) : 256 + i;
        tp_bpe_words(lines_of_verse, strlen(lines_of_verse), keep_word, &p);
        for (int b = 0; b < 256; b++) snprintf(p.name[b], sizeof p.name[0], "%c", b);
        tp_bpe_trainer *R =
            tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 261 + 200, .least = least });
        cr_assert(tp_bpe_trainer_add(R, lines_of_verse, strlen(lines_of_verse)), "%s",
                  tp_bpe_trainer_why(R));
        tp_bpe *X = tp_bpe_trainer_finish(R);
        cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
        plain_train(&p, 200, least, order);
        cr_expect_eq(tp_bpe_merges(X), p.merges, "%lld merges, not %d", (long long)tp_bpe_merges(X),
                     p.merges);
        cr_expect_eq(tp_bpe_size(X), 261 + p.merges);
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        for (int k = 0; k < p.merges; k++) {
            const int32_t id = 260 + k;
            cr_assert_str_eq(tp_bpe_decode(C, &id, 1, TP_BPE_RAW, NULL), p.name[256 + k],
                             "merge %d", k);
        }
        int64_t n;
        cr_assert(tp_bpe_encode(C, lines_of_verse, strlen(lines_of_verse), &n));
        int64_t symbols = 0;
        for (int k = 0; k < p.words; k++) symbols += p.length[k];
        cr_expect_eq(n, symbols, "encoding merges what training has merged");
        tp_bpe_coder_free(C);
        tp_bpe_close(X);
        cr_expect_not(tp_bpe_trainer_add(R, "a", 1));
        X = tp_bpe_trainer_finish(R);
        cr_expect(strstr(tp_bpe_why(X), "it has ended"), "%s", tp_bpe_why(X));
        tp_bpe_close(X);
        tp_bpe_trainer_free(R);
    }
}

/* Parts count like the full text, and special names are never created. */
Test(bpe_train, training_in_parts, .init = make_folder, .fini = remove_folder)
{
    const tp_bpe_trainer_opts o = { .size = 300 };
    static const char text[] = "<mask> <mask> <mask> <s> <s> <s> <s>";
    tp_bpe_trainer *R = tp_bpe_trainer_new(&o), *S = tp_bpe_trainer_new(&o);
    for (int i = 0; i < 4; i++) tp_bpe_trainer_add(R, text, sizeof text - 1);
    for (int i = 0; i < 2; i++) tp_bpe_trainer_add(S, text, sizeof text - 1);
    for (int i = 0; i < 2; i++) tp_bpe_trainer_add(S, text, sizeof text - 1);
    tp_bpe *X = tp_bpe_trainer_finish(R), *Y = tp_bpe_trainer_finish(S);
    bpe_expect_same(X, Y);
    cr_expect_eq(tp_bpe_special_id(X, TP_BPE_MASK), tp_bpe_size(X) - 1);
    tp_bpe_close(X), tp_bpe_close(Y);
    tp_bpe_trainer_free(R), tp_bpe_trainer_free(S);
    R = tp_bpe_trainer_new(NULL);
    X = tp_bpe_trainer_finish(R); /* no text: bytes */
    cr_expect_eq(tp_bpe_size(X), 261);
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
    R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 100 });
    cr_expect_not(tp_bpe_trainer_add(R, "a", 1));
    X = tp_bpe_trainer_finish(R);
    cr_expect(strstr(tp_bpe_why(X), "261 to 4194304"), "%s", tp_bpe_why(X));
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
}
