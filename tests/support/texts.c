/* texts.c - writes reviews and their vocabulary. */
#include "support/texts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/bpe.h>
#include <tapegrad/file.h>

#include "support/program.h"

/* A review of 4 to 16 words, some of which show its class. */
static int write_review(char *text, size_t size, int class, int number)
{
    static const char *const plain[] = {
        "the", "film", "of", "an", "actor", "and", "old", "story"
    };
    static const char *const telling[2][2] = { { "dull", "bad" }, { "fine", "good" } };
    uint32_t z = (uint32_t)(number * 2 + class) * 2654435761u + 1;
    int n = 0;
    const int words = 4 + number % 13;
    for (int i = 0; i < words; i++) {
        z = z * 1664525u + 1013904223u;
        const char *word = i % 3 == 1 ? telling[class][(z >> 20) % 2] : plain[(z >> 16) % 8];
        n += snprintf(text + n, size - (size_t)n, "%s%s", i ? " " : "", word);
    }
    return n;
}

static void make_part(const char *name, const char *part, int texts)
{
    static const char *const classes[] = { "neg", "pos" };
    char path[300], text[400], why[300];
    for (int c = 0; c < 2; c++) {
        snprintf(path, sizeof path, "%s/%s/%s", name, part, classes[c]);
        cr_assert(tp_make_folders(path, why, sizeof why), "%s", why);
        for (int i = 0; i < texts; i++) {
            snprintf(path, sizeof path, "%s/%s/%s/%d.txt", name, part, classes[c], 1000 + i);
            const int n = write_review(text, sizeof text, c, i + 100 * (part[0] == 't'));
            FILE *f = fopen(path, "w");
            cr_assert(f && fwrite(text, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0);
        }
    }
}

void make_reviews(const char *name, int train, int test)
{
    make_part(name, "train", train);
    make_part(name, "test", test);
}

void make_vocabulary(const char *folder, int size)
{
    char text[400], why[300];
    tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = size });
    for (int i = 0; i < 100; i++) {
        const int n = write_review(text, sizeof text, i % 2, i);
        tp_bpe_trainer_add(R, text, (size_t)n);
    }
    tp_bpe *X = tp_bpe_trainer_finish(R);
    cr_assert(tp_bpe_save(X, folder, why, sizeof why), "%s", why);
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
}

void review_data(void)
{
    make_reviews("reviews", 24, 12);
    make_vocabulary("words", 300);
}

void long_review_data(void)
{
    make_reviews("reviews", 24, 600);
    make_vocabulary("words", 300);
}
