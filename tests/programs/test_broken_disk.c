/* test_broken_disk.c - each call that a program makes on a file fails in turn, once or permanently
 * (fault_calls.c). Whichever call fails, nothing is lost, one line says what happened, and the run
 * resumed without faults ends with the same files.
 *
 *     FAULTS=1 test_broken_disk      fails every call; FAULTS=N every Nth, the default a few */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/runs.h"

TestSuite(broken_disk, .timeout = 36000);

enum { FEW = 3 }; /* calls per kind of run, by default */

#define RESUME "--resume --steps 4 --run-dir run"

typedef struct trial {
    const char *program, *setup, *args; /* the run with faults */
    const char *fresh;                  /* arguments of a full run, if it trains */
} trial;

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Runs t with this fault; `calls` logs the counted calls. */
static int run_under_fault(const trial *t, const char *fault)
{
    char command[6000];
    cr_assert(shell(t->setup) && shell("rm -f calls"));
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=%s FAULT_LOG=%s/calls "
             "FAULT='%s' timeout -s KILL 60 " TP_BIN_DIR "/%s %s >out 2>err",
             TP_FAULT_CALLS, folder, fault, t->program, t->args);
    const int status = system(command);
    cr_assert(shell("sed -i -E 's/[0-9]+ (token|image)s.s$//' out")); /* speeds */
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs t with the nth call failing; 0: none fails. */
static int run_with_fault(const trial *t, int n, const char *often)
{
    char fault[600];
    snprintf(fault, sizeof fault, "any %d %d %s/ %s", n ? n : 1 << 30, EIO, folder, often);
    return run_under_fault(t, fault);
}

static int count_calls(void)
{
    int n = 0;
    FILE *f = fopen("calls", "r");
    for (int c; f && (c = getc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    return n;
}

/* The nth line of `calls`, without the folder's path. */
static const char *call_of(int n)
{
    static char line[5000];
    FILE *f = fopen("calls", "r");
    line[0] = '\0';
    while (f && n-- > 0 && fgets(line, sizeof line, f)) continue;
    if (f) fclose(f);
    line[strcspn(line, "\n$")] = '\0';
    char *path = strstr(line, folder);
    if (path) memmove(path, path + strlen(folder) + 1, strlen(path + strlen(folder)));
    return line;
}

static bool same_end(void)
{
    return same_bytes("straight/last.safetensors", "run/last.safetensors") &&
           same_bytes("straight/best.safetensors", "run/best.safetensors") &&
           same_log("straight/log.jsonl", "run/log.jsonl");
}

/* Is the error output one line that begins with the program's name? */
static bool is_message(const trial *t)
{
    const size_t begin = strcspn(t->program, " "), n = strlen(errors);
    return strncmp(errors, t->program, begin) == 0 && strchr(errors, '\n') == errors + n - 1;
}

/* An existing checkpoint survives. A run that resumes from it, or starts fresh without one, ends as
 * without faults. */
static void expect_end(const trial *t, int status, const char *name, const char *often)
{
    const bool whole = exists("run/last.safetensors");
    if (status == 0) cr_expect(same_end(), "%s: status 0, but a different result", name);
    cr_expect(!*often || !shell("ls run 2>/dev/null | grep -q tmp-"),
              "%s: a temporary file is left", name);
    cr_expect(whole || !strstr(t->setup, "base"), "%s: the checkpoint is lost", name);
    const int again = run(whole ? RESUME : t->fresh);
    cr_expect_eq(again, 0, "%s: continuing: status %d: %s", name, again, errors);
    cr_expect(same_end(), "%s: a different result", name);
}

/* A command's output without faults. */
static char right[sizeof out], remarks[sizeof errors];

static void fail_call(const trial *t, int n, const char *often, int normal)
{
    char name[6000];
    const int status = run_with_fault(t, n, often);
    snprintf(name, sizeof name, "%s %.40s..., call %d %s (%s)", t->program, t->args, n,
             *often ? often : "on", call_of(n));
    cr_expect(status == normal || status == 1, "%s: status %d: %s", name, status, errors);
    if (status == 0) cr_expect_str_eq(errors, remarks, "%s: status 0: %s", name, errors);
    if (status == 1) cr_expect(is_message(t), "%s: status 1: %s", name, errors);
    if (t->fresh)
        expect_end(t, status, name, often);
    else if (status == 0)
        cr_expect_str_eq(out, right, "%s: a different result: %s", name, out);
}

/* Fails calls of a run that ends with this status without faults. */
static void fail_calls(const trial *t, int normal)
{
    static int which;
    const char *asked = getenv("FAULTS");
    int runs = 0;
    const int status = run_with_fault(t, 0, "");
    cr_assert_eq(status, normal, "%s %s: %d: %s", t->program, t->args, status, errors);
    const int calls = count_calls(), stride = asked ? atoi(asked) : 1 + calls / FEW;
    strcpy(right, out);
    strcpy(remarks, normal == 0 ? errors : "");
    for (int mode = 0; mode < 2; mode++)
        for (int n = 1 + which++ * 7 % stride; n <= calls; n += stride, runs++)
            fail_call(t, n, mode ? "once" : "", normal);
    cr_log_info("%s %s: %d calls, %d runs", t->program, t->args, calls, runs);
}

Test(broken_disk, training)
{
    char fresh[1024];
    for (int i = 0; i < run_kind_count; i++) {
        const run_kind *k = &run_kinds[i];
        if (!run_kind_wanted(k)) continue;
        run_kind_begin(k);
        succeed("%s %s --steps 4 --run-dir straight", k->train, k->often);
        succeed("%s %s --steps 2 --run-dir base", k->train, k->often);
        snprintf(fresh, sizeof fresh, "%s %s --steps 4 --run-dir run", k->train, k->often);
        const char *copy = "rm -rf run; cp -r base run";
        fail_calls(&(trial){ k->command, copy, RESUME, fresh }, 0);
        fail_calls(&(trial){ k->command, "rm -rf run", fresh, fresh }, 0);
        fail_calls(&(trial){ k->command, copy, fresh, fresh }, 1); /* a run exists already */
        program_end();
    }
}

/* Reading commands give the right result or a message. */
Test(broken_disk, reading)
{
    static const char *const commands[][3] = {
        { "enwik8 train", "enwik8 eval", "--data text --run-dir base --threads 1" },
        { "enwik8 train", "enwik8 generate", "--run-dir base --threads 1 --length 9 --prompt the" },
        { "enwik8 train", "enwik8 generate",
          "--run-dir base --threads 1 --length 9 --prompt-file prompt" },
        { "imagenet train", "imagenet eval", "--data set --run-dir base --threads 1" },
        { "imagenet train", "imagenet eval",
          "--protocol c --data c --run-dir base --threads 1 --workers 1" },
        { "imagenet train", "imagenet robust", "base --data set --threads 1 --corrupt jpeg:3" },
        { "imagenet train", "imagenet predict", "--run-dir base --threads 1 set/val/red/08.png" },
        { "imagenet train", "tp-inspect", "base/last.safetensors" },
        { "coco train", "coco eval",
          "--annotations set/annotations/instances_train2017.json --images set/train2017 --run-dir "
          "base --threads 1" },
        { "coco train", "coco predict",
          "--run-dir base --threads 1 --score 0 set/train2017/*.png" },
    };
    for (int i = 0; i < run_kind_count; i++) {
        const run_kind *k = &run_kinds[i];
        if (!run_kind_wanted(k)) continue;
        run_kind_begin(k);
        succeed("%s %s --steps 2 --run-dir base", k->train, k->often);
        cr_assert(shell("printf 'the old mill' >prompt; "
                        "if test -d set/val; then mkdir -p c/fog && cp -r set/val c/fog/4; fi"));
        for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
            if (strcmp(commands[c][0], k->command) == 0)
                fail_calls(&(trial){ commands[c][1], ":", commands[c][2], NULL }, 0);
        program_end();
    }
}

/* ---- calls whose failure could go unnoticed ---- */

static void expect_status(const trial *t, const char *fault, int status, const char *message)
{
    const int got = run_under_fault(t, fault);
    cr_expect_eq(got, status, "%s, %s: status %d: %s", t->program, fault, got, errors);
    cr_expect(strstr(errors, message), "%s, %s: %s", t->program, fault, errors);
}

/* An inaccessible file is not treated as missing. */
Test(broken_disk, looking)
{
    char fresh[1024];
    for (int i = 0; i < run_kind_count; i++) {
        const run_kind *k = &run_kinds[i];
        if (!run_kind_wanted(k)) continue;
        run_kind_begin(k);
        succeed("%s %s --steps 4 --run-dir straight", k->train, k->often);
        snprintf(fresh, sizeof fresh, "%s %s --steps 4 --run-dir run", k->train, k->often);
        expect_status(&(trial){ k->command, "rm -rf run; cp -r straight run", fresh, NULL },
                      "access 1 5 run/last.safetensors", 1,
                      "run/last.safetensors cannot be accessed: Input/output error");
        cr_expect(same_end(), "%s: the file was overwritten", k->command);
        expect_status(&(trial){ k->command, "rm -rf run", fresh, NULL }, "stat 1 5 run/lock once",
                      0, "");
        cr_expect(same_end(), "%s: the folder is mistaken for another", k->command);
        program_end();
    }
}

static const run_kind *run_kind_of(const char *command)
{
    int i = 0;
    while (i < run_kind_count && strcmp(run_kinds[i].command, command) != 0) i++;
    cr_assert(i < run_kind_count, "%s", command);
    return &run_kinds[i];
}

/* A disk error does not silently change the set of images. */
Test(broken_disk, images)
{
    static const struct {
        const char *command, *fault, *message;
    } cases[] = {
        { "imagenet train", "stat 1 5 val/red/09.png once", "val/red/09.png: cannot be accessed" },
        { "imagenet train", "stat 1 5 set/val$ once", "set/val: cannot be accessed" },
        { "imagenet train", "opendir 1 5 set/train/blue$ once",
          "set/train/blue: the folder cannot be read" },
        { "imagenet train", "look 1 5 train/red/03.png once",
          "03.png: cannot be opened: Input/output error; this is not the fault of the image: check "
          "the disk" },
        { "imagenet train", "pread 1 5 train/red/03.png once",
          "03.png: cannot be read: Input/output error" },
        { "coco train", "look 1 5 train2017/scene_000002.png once",
          "2.png: cannot be opened: Input/output error; this is not the fault of the image: check "
          "the disk" },
        { "coco train", "pread 1 5 train2017/scene_000002.png once",
          "2.png: cannot be read: Input/output error; this is not the fault of the image: check "
          "the disk" },
        { "coco train", "pread 1 24 train2017/scene_000002.png once",
          "this is not the fault of the image: close other files" },
    };
    char args[1024];
    const run_kind *k = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!k || strcmp(k->command, cases[i].command) != 0) {
            if (k) program_end();
            k = run_kind_of(cases[i].command);
            run_kind_begin(k);
            snprintf(args, sizeof args, "%s %s --steps 4 --run-dir run", k->train, k->often);
        }
        expect_status(&(trial){ k->command, "rm -rf run", args, NULL }, cases[i].fault, 1,
                      cases[i].message);
    }
    program_end();
}

/* tp-inspect does not print values that it could not read. */
Test(broken_disk, inspecting)
{
    run_kind_begin(&run_kinds[0]);
    succeed("%s --steps 2 --run-dir base", run_kinds[0].train);
    expect_status(&(trial){ "tp-inspect", ":", "base/last.safetensors", NULL },
                  "pread 3 5 base/last once", 1, "base/last.safetensors: cannot be read at offset");
    program_end();
}
