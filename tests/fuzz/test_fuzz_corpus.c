/* test_fuzz_corpus.c - replays every file of tests/fuzz/corpus through its folder's fuzzer
 * function: inputs that once failed, and inputs kept for coverage. A failed check or an invalid
 * access ends the test's process. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { LARGEST = 1 << 16 };

static int replay(const char *name, int (*target)(const uint8_t *, size_t))
{
    static uint8_t input[LARGEST];
    char path[1024];
    int files = 0;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", TP_SOURCE_DIR, name);
    DIR *d = opendir(path);
    cr_assert(d, "%s cannot be opened", path);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s", TP_SOURCE_DIR, name, e->d_name);
        FILE *f = fopen(path, "rb");
        cr_assert(f, "%s cannot be opened", path);
        const size_t n = fread(input, 1, sizeof input, f);
        fclose(f);
        cr_expect(n < sizeof input, "%s is larger than the fuzzer's inputs", path);
        cr_expect_eq(target(input, n), 0, "%s", path);
        files++;
    }
    closedir(d);
    return files;
}

Test(fuzz_corpus, safetensors)
{
    cr_expect_geq(replay("safetensors", fuzz_safetensors), 20, "the corpus is there");
}

Test(fuzz_corpus, torch)
{
    cr_expect_geq(replay("torch", fuzz_torch), 20, "the corpus is there");
}

Test(fuzz_corpus, numpy)
{
    cr_expect_geq(replay("numpy", fuzz_numpy), 20, "the corpus is there");
}

Test(fuzz_corpus, data)
{
    cr_expect_geq(replay("data", fuzz_data), 20, "the corpus is there");
}

Test(fuzz_corpus, settings)
{
    cr_expect_geq(replay("settings", fuzz_settings), 15, "the corpus is there");
}

Test(fuzz_corpus, config)
{
    cr_expect_geq(replay("config", fuzz_config), 20, "the corpus is there");
}

Test(fuzz_corpus, published)
{
    cr_expect_geq(replay("published", fuzz_published), 20, "the corpus is there");
}

Test(fuzz_corpus, image)
{
    cr_expect_geq(replay("image", fuzz_image), 20, "the corpus is there");
}

Test(fuzz_corpus, image_set)
{
    cr_expect_geq(replay("image_set", fuzz_image_set), 12, "the corpus is there");
}

Test(fuzz_corpus, runs)
{
    cr_expect_geq(replay("runs", fuzz_runs), 20, "the corpus is there");
}

Test(fuzz_corpus, programs)
{
    cr_expect_geq(replay("programs", fuzz_programs), 20, "the corpus is there");
}

Test(fuzz_corpus, coco)
{
    cr_expect_geq(replay("coco", fuzz_coco), 20, "the corpus is there");
}

Test(fuzz_corpus, bpe)
{
    cr_expect_geq(replay("bpe", fuzz_bpe), 12, "the corpus is there");
}

Test(fuzz_corpus, texts)
{
    cr_expect_geq(replay("texts", fuzz_texts), 20, "the corpus is there");
}

Test(fuzz_corpus, documents)
{
    cr_expect_geq(replay("documents", fuzz_documents), 20, "the corpus is there");
}

Test(fuzz_corpus, table)
{
    cr_expect_geq(replay("table", fuzz_table), 20, "the corpus is there");
}

Test(fuzz_corpus, dataset)
{
    cr_expect_geq(replay("dataset", fuzz_dataset), 20, "the corpus is there");
}

Test(fuzz_corpus, report)
{
    cr_expect_geq(replay("report", fuzz_report), 10, "the corpus is there");
}

Test(fuzz_corpus, ops)
{
    cr_expect_geq(replay("ops", fuzz_ops), 20, "the corpus is there");
}

static bool is_fuzzed(const char *name)
{
    for (int i = 0; fuzz_ops_name(i); i++)
        if (strcmp(fuzz_ops_name(i), name) == 0) return true;
    return false;
}

Test(fuzz_corpus, every_op)
{
    char line[512], name[64];
    int found = 0, end = 0;
    FILE *p = popen("cat '" TP_SOURCE_DIR "'/include/tapegrad/ops/*.h", "r");
    cr_assert(p, "the headers are there");
    for (; fgets(line, sizeof line, p); end = 0)
        if (sscanf(line, "TP_API %*s tp_%63[a-z0-9_](tp_tape *T%n", name, &end) == 1 && end) {
            found++;
            cr_expect(is_fuzzed(name), "cmake/signatures.cmake has not found tp_%s", name);
        }
    pclose(p);
    for (int i = 0; fuzz_ops_name(i); i++) found--;
    cr_expect_eq(found, 0, "as many functions as rows");
}
