/* table.c - `imagenet table`: trains several models with several seeds in separate processes and
 * compares them. */
#include "table/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image_commands.h"
#include "image_settings.h"
#include "pictures/annotate.h"
#include "reports/papers.h"

typedef struct table_settings {
    tp_machine_settings machine;
    char *preset, *paper, *data, *run_dir, *flags;
    int layout, split, format;
    int64_t shapes, seeds, epochs, steps;
} table_settings;

enum { AS_TEXT, AS_JSON, AS_MARKDOWN }; /* --format */

#define S table_settings

static const tp_option options[] = {
    TP_HEADING("WHAT IS COMPARED"),
    TP_STRING("preset", S, preset, "LIST", 0,
              "Models, separated by commas; 'imagenet train --help' lists them."),
    TP_STRING_OF("paper", S, paper, "TEXT", paper_name_at, 0,
                 "In place of --preset: the trainings of a paper's table or of some of its rows, "
                 "with their flags, as 'ViL Table 13' or 'ViT-LSLA Table 4 mini-imagenet'; the "
                 "figures that the paper prints for them stand beside. 'tp-models --paper TEXT' "
                 "shows the rows. Its --data stand for the sets; the real folder is this "
                 "command's."),
    OPTIONS_IMAGES(S, data, 0, 0),
    TP_INT("shapes", S, shapes, 10, 10000000, 0,
           "Number of shapes to draw for training if --data is not given; a quarter as many are "
           "drawn for validation."),
    TP_CHOICE("split", S, split, "train|valid|test", 0,
              "The part of the images that the models are scored on, with the weights of the best "
              "validation; the papers' figures of IP102 are for test."),
    TP_INT("seeds", S, seeds, 1, TRAININGS_SEEDS, 0,
           "Trainings of each model, with the seeds 1, 2, ..."),
    TP_HEADING("BUDGET"),
    TP_INT("epochs", S, epochs, 0, 1000000, 0, "Epochs of each training; 0: the recipe's."),
    TP_INT("steps", S, steps, 0, TP_BIG, 0,
           "Stop each training after this many updates; 0: after its epochs."),
    TP_STRING("flags", S, flags, "FLAGS", 0,
              "Further flags of 'imagenet train' for all trainings, in one word: --flags='--size "
              "32 --recipe small'."),
    TP_HEADING("RUN"),
    TP_STRING("run-dir", S, run_dir, "DIR", 0,
              "The folder of the runs, MODEL-SEED, and of the results. Finished trainings are not "
              "repeated, unfinished ones resumed."),
    TP_CHOICE("format", S, format, "text|json|markdown", 0,
              "What is printed at the end: a table for people, a JSON object for each training, or "
              "a table in Markdown."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "imagenet table",
    .summary = "trains several models and compares them",
    .synopsis = "--preset LIST [--data DIR] [--epochs N] [--seeds N] [flag ...]\n"
                "    imagenet table --paper TEXT [--data DIR] [--epochs N] [--seeds N] [flag ...]",
    .about =
        "Trains each model with each seed and prints the mean of top-1 with its standard deviation "
        "over the seeds, the figure of the paper, top-5, parameters, updates, time and the peak "
        "memory of the device.\n\n"
        "A signal stops the present training with a checkpoint; the same command continues the "
        "table. More seeds or models can be added later.",
    .table = options,
    .more = "FILES\n"
            "    MODEL-SEED     the runs; test.json in them is what 'imagenet eval' prints\n"
            "    table.json     what is compared; another table needs another folder\n"
            "    table.jsonl    one JSON object per training\n"
            "    top1.png       top-1 of the validations by epoch, as a mean over the seeds\n\n"
            "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line; 128 + signal: stopped\n\n"
            "EXAMPLES\n"
            "    imagenet table --preset tiny,convnet --flags='--size 32' --epochs 2 --seeds 3\n"
            "    imagenet table --paper 'ViL Table 13' --data imagenet --seeds 3 --device cuda\n"
            "    imagenet table --paper 'ViT-LSLA Table 1' --data ip102_v1.1 --split test\n",
};

typedef struct table_of {
    image_table table; /* first: table_json gets its address */
    const table_settings *s;
} table_of;

static bool fail(char *why, size_t size, const char *reason)
{
    snprintf(why, size, "%s", reason);
    return false;
}

/* ---- trainings ---- */

static json_t *description(const table_settings *s)
{
    char dtype[32], layout[32], split[32];
    tp_option_get(tp_option_find(options, "dtype"), s, dtype, sizeof dtype);
    tp_option_get(tp_option_find(options, "layout"), s, layout, sizeof layout);
    tp_option_get(tp_option_find(options, "split"), s, split, sizeof split);
    return json_pack("{s:s?,s:s,s:I,s:s,s:I,s:I,s:s?,s:s,s:s}", "data", s->data, "layout", layout,
                     "shapes", (json_int_t)s->shapes, "split", split, "epochs",
                     (json_int_t)s->epochs, "steps", (json_int_t)s->steps, "flags", s->flags,
                     "device", s->machine.device, "dtype", dtype);
}

/* Flags that train and eval share. */
static void add_common(command_flags *f, const table_settings *s, const char *folder)
{
    command_flag(f, "run-dir", folder);
    if (s->data) command_flag(f, "data", s->data);
    command_flag(f, "device", s->machine.device);
    command_copy(f, options, "dtype", s);
    command_copy(f, options, "threads", s);
}

static bool check_status(int status, const char *what, const char *folder, char *why, size_t size)
{
    if (status > 0 && !tp_stop_signal())
        snprintf(why, size, "the %s in %s failed with status %d, see above", what, folder, status);
    return status == 0;
}

static bool train_row(const table_of *o, int row, int64_t seed, const char *folder,
                      command_flags *f, char *why, size_t size)
{
    const table_settings *s = o->s;
    const image_row *r = &o->table.of[row];
    add_common(f, s, folder);
    if (training_begun(folder)) {
        command_words(f, "--resume");
    } else {
        command_flag(f, "preset", r->preset);
        command_words(f, r->flags);
        command_copy(f, options, "layout", s);
        command_copy(f, options, "shapes", s);
        command_number(f, "seed", (double)seed);
        if (s->epochs > 0) command_number(f, "epochs", (double)s->epochs);
        command_words(f, s->flags);
    }
    if (s->steps > 0) command_number(f, "steps", (double)s->steps);
    return check_status(command_apart(f, image_train_main, NULL, why, size), "training", folder,
                        why, size);
}

static bool score_row(const table_settings *s, const char *folder, command_flags *f, char *why,
                      size_t size)
{
    char part[TRAININGS_PATH], path[TRAININGS_PATH];
    snprintf(part, sizeof part, "%.4300s/test.json.part", folder);
    snprintf(path, sizeof path, "%.4300s/test.json", folder);
    *f = (command_flags){ 0 };
    add_common(f, s, folder);
    command_copy(f, options, "layout", s);
    command_copy(f, options, "split", s);
    command_words(f, "--format json");
    if (!s->data) command_number(f, "shapes", (double)((s->shapes + 3) / 4));
    if (!check_status(command_apart(f, image_eval_main, part, why, size), "evaluation", folder, why,
                      size))
        return false;
    if (rename(part, path) == 0) return true;
    snprintf(why, size, "%.2000s cannot be renamed to test.json: %s", part, strerror(errno));
    return false;
}

static bool train(void *env, int row, int64_t seed, const char *folder, char *why, size_t size)
{
    const table_of *o = env;
    command_flags *f = calloc(1, sizeof *f);
    const bool done = f ? train_row(o, row, seed, folder, f, why, size) && !tp_stop_signal() &&
                              score_row(o->s, folder, f, why, size)
                        : fail(why, size, "out of memory");
    free(f);
    return done;
}

/* ---- results ---- */

/* Without gnuplot the table has no picture, which is only reported. */
static void draw(const table_settings *s, const trainings *t)
{
    char path[TRAININGS_PATH], images[400], note[900], title[400], why[5000];
    snprintf(path, sizeof path, "%.4300s/top1.png", s->run_dir);
    snprintf(title, sizeof title, "%.300s: top-1 of the validations by epoch",
             s->paper ? s->paper : "Image models");
    snprintf(note, sizeof note, "%s; mean of %lld seed%s%s%.250s",
             title_images(s->data, TP_VALID, images, sizeof images), (long long)s->seeds,
             s->seeds > 1 ? "s" : "", s->flags ? "; flags: " : "", s->flags ? s->flags : "");
    if (!trainings_draw(t,
                        &(trainings_picture){ title, note, "epoch", "top-1, %",
                                              offsetof(training_point, epoch) },
                        path, why, sizeof why))
        tp_command_complain(manual.name, why);
}

static bool read_rows(const table_settings *s, image_table *t, char *why, size_t size)
{
    char line[400];
    int left_out = 0;
    const bool done = s->preset ? table_of_presets(t, s->preset, why, size)
                                : table_of_paper(t, s->paper, &left_out, why, size);
    snprintf(line, sizeof line,
             "left out of '%.200s': %d row%s of other data, of no training here, or of one that "
             "begins from another",
             s->paper ? s->paper : "", left_out, left_out == 1 ? "" : "s");
    if (done && left_out > 0) tp_command_complain(manual.name, line);
    return done;
}

static bool make(table_of *o, trainings *t, char *why, size_t size)
{
    const table_settings *s = o->s;
    if (!read_rows(s, &o->table, why, size) ||
        !trainings_open(s->run_dir, description(s), why, size))
        return false;
    t->rows = o->table.rows;
    if (!trainings_run(t, s->run_dir, s->seeds, why, size)) return false;
    if (tp_stop_signal()) return true;
    if (!trainings_write(t, s->run_dir, s->format == AS_JSON ? stdout : NULL, why, size))
        return false;
    if (s->format == AS_TEXT) table_print_text(&o->table, stdout);
    if (s->format == AS_MARKDOWN) table_print_markdown(&o->table, stdout);
    if (fflush(stdout) != 0) {
        snprintf(why, size, "standard output: %s", strerror(errno));
        return false;
    }
    draw(s, t);
    return true;
}

static bool run(void *settings, char *why, size_t size)
{
    table_settings *s = settings;
    table_of *o = calloc(1, sizeof *o);
    tp_absolute_path(&s->data);
    if (!o) return fail(why, size, "out of memory");
    o->s = s;
    trainings t = { .command = manual.name,
                    .score = "top1",
                    .keys = { "top1", "top5", "loss" },
                    .train = train,
                    .json = table_json,
                    .env = o,
                    .row = o->table.row };
    const bool done = make(o, &t, why, size);
    trainings_free(&t);
    free(o);
    return done;
}

/* Flags that the table itself gives to the trainings may not be among --flags. */
static bool check_flags(const char *flags, char *why, size_t size)
{
    static const char *const ours[] = { "preset",    "data",  "layout",  "shapes", "seed",
                                        "epochs",    "steps", "run-dir", "resume", "device",
                                        "overwrite", "plan",  "dtype",   "threads" };
    for (const char *at = flags; at && *at;) {
        at += strspn(at, " ");
        const size_t n = strcspn(at, " ="), all = strcspn(at, " ");
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (n == strlen(ours[i]) + 2 && strncmp(at + 2, ours[i], n - 2) == 0) {
                snprintf(why, size, "--flags: --%s is the table's own: leave it out", ours[i]);
                return false;
            }
        at += all;
    }
    return true;
}

static bool check(const void *settings, char *why, size_t size)
{
    const table_settings *s = settings;
    if (!s->preset == !s->paper)
        return fail(why, size,
                    s->paper
                        ? "--preset and --paper both name the models: give one of them"
                        : "give the models with --preset LIST, or a paper's with --paper TEXT");
    return check_flags(s->flags, why, size);
}

int image_table_main(int argc, char **argv)
{
    tp_command command = manual;
    table_settings s = { .machine = { .device = strdup("cpu") },
                         .run_dir = strdup("runs/image-table"),
                         .shapes = 2000,
                         .split = TP_VALID,
                         .seeds = 1 };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
