/* fuzz_report.c - the input is log.jsonl, config.json, a sample and a picture of a run, separated
 * by the byte 0x1e. The page must be written; its data must be JSON in which no markup begins, and
 * it must have no script but its own. */
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/report.h>
#include <unistd.h>

#include "folder.h"

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");
    fuzz_demand(f && fwrite(bytes, 1, n, f) == n, "a file is written");
    fclose(f);
}

static char *read_page(const char *name)
{
    FILE *f = fopen(name, "rb");
    fuzz_demand(f && fseek(f, 0, SEEK_END) == 0, "the page is there");
    const long n = ftell(f);
    char *text = calloc((size_t)n + 1, 1);
    rewind(f);
    fuzz_demand(text && fread(text, 1, (size_t)n, f) == (size_t)n, "the page is read");
    fclose(f);
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

static void check(const char *page)
{
    static const char begin[] = "id=\"data\">";
    const char *data = strstr(page, begin), *end = data ? strstr(data, "</script>") : NULL;
    fuzz_demand(end, "there are data");
    data += strlen(begin);
    json_t *all = json_loadb(data, (size_t)(end - data), JSON_ALLOW_NUL, NULL);
    fuzz_demand(json_array_size(json_object_get(all, "runs")) == 1, "the data are JSON");
    fuzz_demand(!memchr(data, '<', (size_t)(end - data)), "no markup begins in the data");
    fuzz_demand(count(page, "<script") == 2 && count(page, "</script>") == 2, "no other script");
    json_decref(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static const char *const names[] = { "r/log.jsonl", "r/config.json", "r/sample.txt",
                                         "r/p.svg" };
    static const char *const runs[] = { "r" };
    static bool begun;
    char why[5000];
    if (!begun) {
        folder_workplace();
        fuzz_demand(tp_make_folders("r", why, sizeof why), "there is a folder");
    }
    begun = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint8_t *end = i < 3 && size > 0 ? memchr(input, 0x1e, size) : NULL;
        const size_t n = end ? (size_t)(end - input) : size;
        write_file(names[i], input, n);
        input += n + (end != NULL);
        size -= n + (end != NULL);
    }
    fuzz_demand(tp_report_write("page.html", runs, 1, why, sizeof why), "the page is written");
    char *page = read_page("page.html");
    check(page);
    free(page);
    return 0;
}
