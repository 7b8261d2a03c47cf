/* test_written_files.c - commands that write files or print results, stopped by a limit on file
 * sizes or a full device: one message, status 1, no temporary files and no incomplete sets. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/enwik8.h"
#include "support/program.h"

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

#define TOO_LARGE "File too large"

static void begin(const char *program)
{
    program_begin(program);
    cr_assert(shell(
        "for i in $(seq 2000); do echo some words of text and others $i; done >text; mkdir new"));
}

/* Output goes to a pipe, because files cannot grow. */
static void expect_nothing_written(const char *prefix, const char *args)
{
    char command[400];
    cr_assert(shell("find new | sort >before"));
    snprintf(command, sizeof command,
             "bash -c '(%s exec \"$@\") 2>&1 | cat >pipe; exit ${PIPESTATUS[0]}' x", prefix);
    const int status = run_under(command, args);
    slurp("pipe", errors, sizeof errors);
    cr_expect(status == 1 && lines(errors) == 1 && strstr(errors, TOO_LARGE),
              "%s: status %d, not one line with '%s':\n%s", args, status, TOO_LARGE, errors);
    cr_expect(shell("find new | sort | cmp -s - before"), "%s: files are left", args);
}

Test(written_files, vocabulary)
{
    begin("tp-bpe train");
    expect_nothing_written("ulimit -f 0;", "text --size 400 --output new");
    expect_nothing_written("ulimit -f 1;", "text --size 400 --output new");
    expect_nothing_written("ulimit -f 1;", "text --size 400 --output new/folder");
    cr_expect(run("text --size 400 --output new") == 0, "%s", errors);
    program_end();
}

Test(written_files, report)
{
    begin("tp-report");
    cr_assert(shell("mkdir new/run; echo '{\"step\":1,\"loss\":1}' >new/run/log.jsonl"));
    expect_nothing_written("ulimit -f 1;", "new/run");
    cr_expect(run("new/run") == 0, "%s", errors);
    program_end();
}

Test(written_files, scenes)
{
    static const char args[] = "--out new/set --scenes 6 --valid-scenes 2 --scene-size 32";
    begin("coco scenes");
    expect_nothing_written("ulimit -f 0;", args);
    expect_nothing_written("ulimit -f 1;", args); /* images fit, annotations do not */
    cr_expect(run(args) == 0, "%s", errors);
    program_end();
}

/* Lost output is an error. */
Test(written_files, full_device)
{
    static const char *const programs[] = { "tp-models", "tp-bpe", "enwik8", "coco eval" };
    static const char *const flags[] = { "--help", "--version", "--man", "--completion bash",
                                         "--completion zsh" };
    begin("tp-models");
    cr_expect(shell("test -c /dev/full"));
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            char command[400];
            snprintf(command, sizeof command, TP_BIN_DIR "/%s %s >/dev/full 2>err; echo $? >status",
                     programs[i], flags[k]);
            cr_assert(shell(command));
            slurp("err", errors, sizeof errors);
            slurp("status", out, sizeof out);
            cr_expect(out[0] == '1' && lines(errors) == 1 && strstr(errors, "standard output: "),
                      "%s %s: status %s%s", programs[i], flags[k], out, errors);
        }
    cr_assert(shell(TP_BIN_DIR "/enwik8 train " SMALL "--data text --plan "
                               ">/dev/full 2>err; echo $? >status"));
    slurp("err", errors, sizeof errors);
    slurp("status", out, sizeof out);
    cr_expect(out[0] == '1' && lines(errors) == 1 && strstr(errors, "standard output: "),
              "--plan: status %s%s", out, errors);
    program_end();
}

/* Arguments and file names cannot control a terminal. */
Test(written_files, names_are_plain)
{
    static const char *const commands[] = {
        "enwik8 $'\\e[31mred'",
        "enwik8 train $'\\e[31mred'",
        "enwik8 train $'--\\e[31mred'",
        "enwik8 train --data $'\\e[31mred\\nline'",
        "enwik8 train --lr $'\\e[31mred'",
        "enwik8 train --data text --preset $'\\e[31mred'",
        "enwik8 train --completion $'\\e[31mred'",
        "imagenet train --data $'\\e[31mred'",
        "imdb predict $'\\e[31mred' --run-dir $'\\e[31mred'",
        "lra train --data $'\\e[31mred'",
        "coco train --data $'\\e[31mred'",
        "tp-inspect $'\\e[31mred\\nline'",
        "tp-models $'\\e[31mred'",
        "tp-models --filter $'\\e[31mred'",
        "tp-models --summary $'\\e[31mred'",
        "tp-report $'\\e[31mred'",
        "tp-report new/run -o $'new/\\e[31mred'",
        "tp-bpe train text --size 300 --output $'new/\\e[31mred'",
        "tp-bpe encode --vocab $'\\e[31mred'",
        "tp-parity $'\\e[31mred'",
    };
    begin("enwik8");
    cr_assert(shell("mkdir new/run; echo '{\"step\":1,\"loss\":1}' >new/run/log.jsonl"));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[600];
        snprintf(command, sizeof command, "bash -c \"" TP_BIN_DIR "/%s\" >out 2>&1", commands[i]);
        (void)shell(command);
        slurp("out", out, sizeof out);
        cr_expect(!strchr(out, '\033') && strstr(out, "\\x1b[31mred"), "%s: %s", commands[i], out);
        cr_expect(!strstr(out, "\nline"), "%s: %s", commands[i], out);
    }
    program_end();
}
