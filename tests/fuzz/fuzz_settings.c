/* fuzz_settings.c - a config.json for --config, of `enwik8 train` and `coco train`. What is read
 * must be settings that a command line could give, and written by a run and read again, it must
 * stay as it is. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coco_settings.h"
#include "enwik8.h"
#include "train/engine/options_inner.h"

enum { WHY = 8192 };

typedef struct program {
    const char *name;
    const tp_option *table;
    size_t size;
} program;

static bool read_file(const program *p, const char *path, void *got, tp_given_flags *has,
                      bool *by_hand)
{
    char why[WHY] = "";
    const bool done =
        tp__settings_read(p->table, p->name, path, got, has, by_hand, why, sizeof why);
    fuzz_demand_reason(done, why);
    fuzz_demand(!strchr(why, '\n'), "a reason is one line");
    return done;
}

/* Each setting that the file has is one that a flag could give. */
static void check_rows(const program *p, const void *got, void *again, const tp_given_flags *has)
{
    for (int i = 0; i < has->n; i++) {
        const tp_option *o = tp_option_find(p->table, has->name[i]);
        char text[TP_OPTION_ROOM], why[WHY];
        fuzz_demand(o != NULL, "a setting has a flag");
        if (!o) continue;
        tp_option_get(o, got, text, sizeof text);
        fuzz_demand(tp__option_restore(o, again, text, why, sizeof why), "a flag could give it");
    }
}

/* Writes the settings as a run does. Texts that are not UTF-8 cannot occur: JSON has none. */
static void write_and_read(const program *p, const void *got, const tp_given_flags *has)
{
    void *back = calloc(1, p->size);
    tp_given_flags all;
    bool by_hand = true;
    json_t *values = tp__options_json(p->table, got), *some = json_object();
    for (int i = 0; i < has->n; i++)
        json_object_set(some, has->name[i], json_object_get(values, has->name[i]));
    json_t *root = json_pack("{s:s,s:s,s:o}", "program", p->name, "version", "1", "settings", some);
    char *text = json_dumps(root, JSON_REAL_PRECISION(17));
    if (back && text) {
        fuzz_demand(read_file(p, fuzz_path(text, strlen(text)), back, &all, &by_hand),
                    "what a run writes can be read");
        fuzz_demand(!by_hand && all.n == has->n, "all of it");
        for (int i = 0; i < has->n; i++) {
            const tp_option *o = tp_option_find(p->table, has->name[i]);
            char here[TP_OPTION_ROOM], there[TP_OPTION_ROOM];
            tp_option_get(o, got, here, sizeof here);
            tp_option_get(o, back, there, sizeof there);
            fuzz_demand(strcmp(here, there) == 0, "a setting reads back");
        }
    }
    if (back) tp_options_free(p->table, back);
    free(back);
    free(text);
    json_decref(root);
    json_decref(values);
}

static void read_as(const program *p, const uint8_t *input, size_t size)
{
    void *got = calloc(1, p->size), *again = calloc(1, p->size);
    tp_given_flags has;
    bool by_hand;
    if (got && again) {
        if (read_file(p, fuzz_path(input, size), got, &has, &by_hand)) {
            check_rows(p, got, again, &has);
            write_and_read(p, got, &has);
        }
        tp_options_free(p->table, got);
        tp_options_free(p->table, again);
    }
    free(got);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    const program programs[] = { { "enwik8", train_options, sizeof(settings) },
                                 { "coco", coco_options, sizeof(coco_settings) } };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        read_as(&programs[i], input, size);
    return 0;
}
