/* test_config_file.c - runs that begin with a file of settings (--config): what a run wrote starts
 * another one with the same bits, flags win, and what cannot be used is refused in one line. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/program.h"
#include "support/scripted.h"

static void begin(void)
{
    scripted_begin();
    scripted_scores((double[]){ 2, 1 }, 2);
}

TestSuite(config_file, .init = begin, .fini = scripted_end);

static void write_config(const char *text, size_t n)
{
    FILE *f = fopen("c.json", "wb");
    cr_assert(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
}

/* ---- files that runs write ---- */

/* 1/3 and the like need 16 digits, more than the file has otherwise. */
Test(config_file, of_a_run_starts_the_same_run)
{
    scripted_run("--run-dir a --steps 6 --lr 0.012345678901234567 --ema 0.3333333333333333 "
                 "--optimizer lion --weight-decay 0.25 --keep-last 2 --check-finite",
                 0, "after update 6");
    cr_assert(shell("grep -q '\"lr\": 0.0123456789012345' a/config.json"));
    scripted_run("--config a/config.json --run-dir b", 0, "after update 6");
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"));
    cr_expect(shell("test -e b/last-000000006.safetensors"));
    scripted_run("--config a/config.json", 1, "run folder a already holds a run: continue it");
    scripted_run("--config a/config.json --run-dir c --steps 3", 0, "after update 3");
    expect_meta("c/last.safetensors", "train.weight-decay", "0.25");
    scripted_run("--run-dir c --config a/config.json --resume", 1,
                 "--resume continues a run with its own settings: leave out --config");
}

/* What its command line said about its folder is of no other run. */
Test(config_file, of_a_resumed_run)
{
    scripted_run("--run-dir a --steps 2 --overwrite", 0, "after update 2");
    scripted_run("--run-dir a --resume --steps 4", 0, "after update 4");
    cr_assert(shell("grep -q '\"resume\": true' a/config.json"));
    scripted_run("--config a/config.json --run-dir b", 0, "after update 4");
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"));
}

static void (*usual_open)(tp_run *R, tp_file *from);

/* A rate and a length that follow from others, as in programs whose presets leave them to it. */
static void open_and_derive(tp_run *R, tp_file *from)
{
    tp_train_settings *o = R->settings;
    usual_open(R, from);
    if (o->lr == 0) o->lr = 0.01 * (double)o->batch;
    if (o->steps == 0) o->steps = 2 * o->epochs;
    tp_absolute_path(&o->init);
}

/* What the program derived from settings follows from those of the new run. */
Test(config_file, derived_settings_are_derived_again)
{
    usual_open = scripted.open;
    scripted.open = open_and_derive;
    scripted_run("--run-dir a --lr 0 --batch 4 --epochs 1", 0, "Done: 2 updates");
    expect_meta("a/last.safetensors", "train.lr", "0.04");
    cr_assert(shell("grep -q '\"lr\": 0.04' a/config.json"));
    scripted_run("--config a/config.json --run-dir b --batch 8 --epochs 3", 0, "Done: 6 updates");
    expect_meta("b/last.safetensors", "train.lr", "0.08");
    scripted_run("--run-dir b --resume", 0, "Done: 6 updates");
    scripted_run("--config b/config.json --run-dir c --batch 4 --epochs 1", 0, "Done: 2 updates");
    cr_expect(same_bytes("a/last.safetensors", "c/last.safetensors"));
    scripted_run("--config b/config.json --run-dir d --lr 0.5", 0, "Done: 6 updates");
    expect_meta("d/last.safetensors", "train.lr", "0.5");
    scripted_run("--run-dir e --lr 0 --epochs 2 --steps 1", 0, "after update 1");
    scripted_run("--run-dir e --resume --steps 3", 0, "after update 3");
    scripted_run("--config e/config.json --run-dir f --batch 8", 0, "after update 3");
    expect_meta("f/last.safetensors", "train.lr", "0.08");
}

/* Paths hold in any folder. */
Test(config_file, paths_of_another_folder)
{
    usual_open = scripted.open;
    scripted.open = open_and_derive;
    scripted_run("--run-dir a", 0, "Done: 24 updates");
    scripted_run("--run-dir b --init a/best.safetensors --steps 2", 0, "after update 2");
    cr_assert(shell("grep -q '\"init\": \"/.*/a/best.safetensors\"' b/config.json"));
}

/* Files that a run writes somewhere else are its own. */
Test(config_file, files_of_another_run)
{
    scripted_run("--run-dir a --steps 4 --trace t --tensorboard --tensorboard-dir e", 0,
                 "after update 4");
    cr_assert(shell("test -s t && ls e/events.out.* >files && : >t"));
    scripted_run("--config a/config.json --run-dir b", 0, "after update 4");
    cr_expect(shell("test ! -s t && ls e/events.out.* | cmp - files && ls b/events.out.*"));
}

/* ---- files that people write ---- */

Test(config_file, of_a_person)
{
    static const char text[] =
        "\xef\xbb\xbf{\"settings\": {\"lr\": 1, \"epochs\": 2.0, \"graph\": false, "
        "\"optimizer\": \"sgd\", \"init\": null, \"run-dir\": \"mine\"}}";
    write_config(text, sizeof text - 1);
    scripted_run("--config c.json", 0, "Done: 4 updates; best 1.00 points: mine/best.safetensors");
    expect_meta("mine/last.safetensors", "train.lr", "1");
    expect_meta("mine/last.safetensors", "train.optimizer", "sgd");
    scripted_run("--epochs 1 --optimizer adam --config c.json --run-dir other", 0, "Done: 2 upd");
    expect_meta("other/last.safetensors", "train.optimizer", "adam");
    expect_meta("other/last.safetensors", "train.lr", "1");
}

/* ---- presets ---- */

typedef struct settings {
    tp_train_settings train;
    char *preset;
} settings;

static const tp_option preset_options[] = {
    TP_STRING("preset", settings, preset, "NAME", TP_SAVED, "The preset."),
    TP_ROWS(tp_train_options),
    { 0 },
};

/* small and big differ in batch, lr and seed; a preset counts only if it is given. */
static bool settings_of(void *at, const void *asked, const tp_given_flags *given, char *why,
                        size_t size)
{
    settings *s = at;
    const settings *a = asked;
    (void)why, (void)size;
    const bool big = a && tp_was_given(given, "preset") && strcmp(a->preset, "big") == 0;
    *s = (settings){ .train = tp_train_defaults("runs/presets") };
    s->preset = strdup(big ? "big" : "small");
    s->train.steps = 2;
    s->train.machine.threads = 1;
    s->train.batch = big ? 64 : 4;
    s->train.lr = big ? 0.5 : 0.25;
    return true;
}

static void expect_settings(const char *path, const char *batch, const char *lr)
{
    expect_meta(path, "train.batch", batch);
    expect_meta(path, "train.lr", lr);
}

Test(config_file, presets)
{
    static const char big[] = "{\"program\": \"scripted\", \"settings\": {\"preset\": \"big\"}}";
    scripted.command.table = preset_options;
    scripted.settings_size = sizeof(settings);
    scripted.settings_of = settings_of;
    scripted_run("--run-dir a --lr 0.1", 0, "Done: 2 updates");
    expect_settings("a/last.safetensors", "4", "0.1");
    scripted_run("--run-dir b --config a/config.json", 0, "Done: 2 updates");
    expect_settings("b/last.safetensors", "4", "0.1");
    scripted_run("--run-dir c --config a/config.json --preset big", 0, "Done: 2 updates");
    expect_settings("c/last.safetensors", "64", "0.1");
    scripted_run("--run-dir d --config a/config.json --preset big --lr 1", 0, "Done: 2 updates");
    expect_settings("d/last.safetensors", "64", "1");
    write_config(big, sizeof big - 1);
    scripted_run("--run-dir e --config c.json", 0, "Done: 2 updates");
    expect_settings("e/last.safetensors", "64", "0.5");
    scripted_run("--run-dir f --config e/config.json", 0, "Done: 2 updates");
    expect_settings("f/last.safetensors", "64", "0.5");
    scripted_run("--run-dir g --config c.json --preset small", 0, "Done: 2 updates");
    expect_settings("g/last.safetensors", "4", "0.25");
}

/* ---- refusals ---- */

Test(config_file, what_cannot_be_used)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "{\"settings\": {\"lr\": 0.1}",
          "c.json: line 1, column 24: '}' expected near end of file" },
        { "{\n\"settings\":\n{\"lr\": 0.1,}}",
          "c.json: line 3, column 12: string or '}' expected" },
        { "", "c.json: line 1, column 0: '[' or '{' expected near end of file" },
        { "[1]", "c.json: is a list: an object such as {\"settings\": {\"lr\": 0.001}} was exp" },
        { "{}", "c.json: 'settings' is missing: an object such as {\"lr\": 0.001} was expected" },
        { "{\"settings\": 3}", "c.json: 'settings' is a number: an object such as" },
        { "{\"lr\": 3}",
          "c.json: 'lr' is neither 'program' nor 'settings': put it into 'settings'" },
        { "{\"version\": \"1\", \"lr\": 3}", "c.json: 'settings' is missing: an object" },
        { "{\"settings\": {}, \"notes\": 1}",
          "c.json: 'notes' is neither 'program' nor 'settings'\n" },
        { "{\"program\": \"other\", \"settings\": {}}",
          "c.json: the settings are of other, not of scripted" },
        { "{\"program\": 1, \"settings\": {}}", "c.json: 'program' is a number, not a text" },
        { "{\"settings\": {\"stepz\": 1}}",
          "c.json: settings: 'stepz' is unknown; did you mean 's" },
        { "{\"settings\": {\"x\\u001b[2J\": 1}}",
          "c.json: settings: 'x\\x1b[2J' is unknown: its names" },
        { "{\"settings\": {\"lr\": \"1\"}}", "c.json: settings: 'lr' is a text, not a number" },
        { "{\"settings\": {\"lr\": null}}", "c.json: settings: 'lr' is null, not a number" },
        { "{\"settings\": {\"lr\": -1}}",
          "c.json: settings: 'lr': -1 is out of range (0 to 1000)" },
        { "{\"settings\": {\"steps\": 1.5}}",
          "c.json: settings: 'steps' is a number, not a whole n" },
        { "{\"settings\": {\"steps\": 1e30}}",
          "c.json: settings: 'steps' is a number, not a whole" },
        { "{\"settings\": {\"graph\": 1}}",
          "c.json: settings: 'graph' is a number, not true or fal" },
        { "{\"settings\": {\"init\": [1]}}",
          "c.json: settings: 'init' is a list, not a text or null" },
        { "{\"settings\": {\"optimizer\": 1}}",
          "c.json: settings: 'optimizer' is a number, not one " },
        { "{\"settings\": {\"optimizer\": \"sdg\"}}", "'optimizer': 'sdg' is not one of adamw|" },
        { "{\"settings\": {\"resume\": 1}}",
          "c.json: settings: 'resume' is a number, not true or f" },
        { "{\"settings\": {\"lr\": 1, \"lr\": 2}}",
          "c.json: line 1, column 27: duplicate object key" },
        { "\xff\xfe{\0}\0", "c.json: is UTF-16; convert it" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool wide = i + 1 == sizeof rows / sizeof *rows;
        write_config(rows[i].text, wide ? 6 : strlen(rows[i].text));
        scripted_run("--config c.json --run-dir run", 1, rows[i].why);
        cr_expect(strncmp(scripted_output, "scripted: ", 10) == 0, "%s", scripted_output);
        cr_expect(!strchr(strchr(scripted_output, '\n') + 1, '\n'), "one line: %s",
                  scripted_output);
        cr_expect(shell("test ! -e run"));
    }
    scripted_run("--config none.json --run-dir run", 1,
                 "none.json: cannot be opened (No such file");
    cr_assert(shell("mkfifo pipe; head -c 2000000 /dev/zero >large"));
    scripted_run("--config pipe --run-dir run", 1, "pipe: is a pipe, not a regular file");
    scripted_run("--config large --run-dir run", 1, "large: has more than 1048576 bytes");
}
