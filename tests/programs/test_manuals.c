/* test_manuals.c - what --man and --completion print: every page is valid and shows the text as it
 * is, and both shells complete what is possible at the cursor. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/options.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/program.h"

TestSuite(manuals, .init = make_folder, .fini = remove_folder, .timeout = 300);

/* Runs a command in the folder and stores its output in `out`. */
static int shell_says(const char *command)
{
    char full[9000];
    snprintf(full, sizeof full, "cd '%s' && { %s; } >out 2>&1", folder, command);
    const int status = system(full);
    slurp(in_folder("out"), out, sizeof out);
    return status;
}

static bool is_installed(const char *program)
{
    char command[64];
    snprintf(command, sizeof command, "command -v %s", program);
    return shell_says(command) == 0;
}

/* ---- pages ---- */

typedef struct settings {
    bool fast;
    int64_t count;
    tp_words files;
} settings;

static const tp_option table[] = {
    TP_HEADING("A-B"),
    TP_FLAG("fast", settings, fast, 0, ".5 is a half. .5 is also 'half' of `one`."),
    TP_INT("count", settings, count, 1, 5, 0, "C:\\new, ~x^2, 1.\n.TH is a line."),
    TP_ARGUMENTS(settings, files, "FILE ...", "Files."),
    { 0 },
};

static const tp_command manual = { .name = "many words",
                                   .summary = "tests - .\\",
                                   .synopsis = "[FLAG]\n    many words --other",
                                   .about = "One. Two.\nA line.\n\nA paragraph",
                                   .table = table,
                                   .more = "FILES\n    a\n      b\n\n    .c\n\nEND\n" };

static const char page[] = ".TH MANY\\-WORDS 1 \"\" \"tapegrad VERSION\" \"User Commands\"\n"
                           ".SH NAME\n"
                           "many\\-words \\- tests \\- .\\e\n"
                           ".SH SYNOPSIS\n.nf\nmany words [FLAG]\nmany words \\-\\-other\n.fi\n"
                           ".SH DESCRIPTION\nOne.\nTwo.\n.br\nA line.\n.PP\nA paragraph\n"
                           ".SH A\\-B\n"
                           ".TP\n\\fB\\-\\-fast\\fR, \\fB\\-\\-no\\-fast\\fR\n"
                           "\\&.5 is a half.\n\\&.5 is also \\(aqhalf\\(aq of \\(gaone\\(ga.\n"
                           "Default: off.\n"
                           ".TP\n\\fB\\-\\-count\\fR \\fIN\\fR\n"
                           "C:\\enew, \\(tix\\(ha2, 1.\n.br\n\\&.TH is a line.\n"
                           "Range: 1 to 5.\nDefault: 3.\n"
                           ".TP\n\\fIFILE ...\\fR\nFiles.\n"
                           ".SH HELP\n";

static const char page_end[] = ".SH FILES\n.nf\na\n  b\n\n\\&.c\n.fi\n.SH END\n"
                               ".SH SEE ALSO\n.BR many (1)\n";

static void print_page(const char *file)
{
    settings s = { .count = 3 };
    char flag[] = "--man", *argv[] = { flag };
    fflush(stdout);
    cr_assert(freopen(file, "w", stdout));
    cr_expect_eq(tp_options_parse(&manual, 1, argv, &s, NULL), 0);
    fflush(stdout);
}

Test(manuals, escapes)
{
    char expected[sizeof page + 32];
    const char *version = strstr(page, "VERSION");
    print_page(in_folder("page"));
    slurp(in_folder("page"), out, sizeof out);
    snprintf(expected, sizeof expected, "%.*s%s%s", (int)(version - page), page, tp_version(),
             version + strlen("VERSION"));
    cr_expect(strncmp(out, expected, strlen(expected)) == 0, "%s", out);
    cr_expect(strlen(out) > strlen(page_end) &&
                  strcmp(out + strlen(out) - strlen(page_end), page_end) == 0,
              "%s", out);
}

Test(manuals, shows_the_text_as_it_is)
{
    if (!is_installed("groff")) cr_skip_test("groff is not installed");
    print_page(in_folder("page"));
    cr_assert_eq(shell_says("groff -man -ww -Tascii -P-cbou page"), 0, "%s", out);
    static const char *const shown[] = {
        "MANY-WORDS(1)",
        "many-words - tests - .\\\n",
        "many words --other\n",
        "--fast, --no-fast\n",
        " .5 is a half.  .5 is also 'half' of `one`.  Default: off.\n",
        "C:\\new, ~x^2, 1.\n",
        " .TH is a line.  Range: 1 to 5.  Default: 3.\n",
        "       a\n         b\n\n       .c\n",
        "many(1)\n",
    };
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        cr_expect(strstr(out, shown[i]), "'%s' is not in:\n%s", shown[i], out);
}

Test(manuals, pages_of_programs_are_valid)
{
    if (!is_installed("groff")) cr_skip_test("groff is not installed");
    cr_assert_eq(shell_says("ls '" TP_BUILD_DIR "'/manuals/*/man1/*.1"), 0, "%s", out);
    static const char *const some[] = { "/enwik8.1",     "/enwik8-train.1", "/imagenet-predict.1",
                                        "/imdb-train.1", "/lra-table.1",    "/coco-train.1",
                                        "/tp-models.1",  "/gpt-generate.1" };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        cr_expect(strstr(out, some[i]), "%s is not among %s", some[i], out);
    shell_says("groff -man -ww -z '" TP_BUILD_DIR "'/manuals/*/man1/*.1");
    cr_expect_str_empty(out, "%s", out);
}

/* ---- completion ---- */

static const struct {
    const char *line, *bash, *zsh; /* zsh: NULL: the same */
} cases[] = {
    { "enwik8 ", "train eval scale norms generate",
      "train eval scale norms generate --help --version --man --commands --completion" },
    { "enwik8 tr", "train", NULL },
    { "enwik8 --c", "--completion --commands", "--commands --completion" },
    { "enwik8 --completion ", "bash zsh", NULL },
    { "enwik8 other --da", "", NULL },
    { "enwik8 train --targ", "--targets", NULL },
    { "enwik8 train --no-gel", "--no-gelu", NULL },
    { "enwik8 train --targets ", "all official", NULL },
    { "enwik8 train --targets o", "official", NULL },
    { "enwik8 train --targets=", "all official", NULL },
    { "enwik8 train --targets=a", "all", NULL },
    { "enwik8 train --targets all --gelu --pres", "--preset", NULL },
    { "enwik8 train --layers ", "", NULL },
    { "enwik8 train --device c", "cpu cuda", NULL },
    { "enwik8 train --data a", "-o default", "a-file a-folder" },
    { "enwik8 train --data=a", "-o default", "a-file a-folder" },
    { "enwik8 train --run-dir a", "-o dirnames", "a-folder" },
    { "enwik8 eval --protocol o", "official", NULL },
    { "enwik8 eval --preset txl-m", "txl-mini-enwik8 txl-mini-text8", NULL },
    { "enwik8 eval --preset cvt", "", NULL },
    { "enwik8 eval x", "", NULL },
    { "imagenet predict a", "-o default", "a-file a-folder" },
    { "imagenet predict --preset vil-tiny-r", "vil-tiny-rpb", NULL },
    { "imagenet train --preset cvt_ls-1", "cvt_ls-13-224 cvt_ls-13-384 cvt_ls-17-224", NULL },
    { "imagenet train --preset cvt-ls-1", "cvt-ls-13 cvt-ls-17", NULL },
    { "imagenet robust --corrupt gaussian-", "gaussian-noise gaussian-blur", NULL },
    { "imdb p", "pretrain predict", NULL },
    { "imdb train --preset roberta-", "roberta-mini roberta-base roberta-large", NULL },
    { "imdb pretrain --recipe n", "notebook", NULL },
    { "imdb predict a", "-o default", "a-file a-folder" },
    { "lra t", "train table", NULL },
    { "lra train --attention per", "performer", NULL },
    { "lra train --preset lra-image-n", "lra-image-nystrom lra-image-nystrom-conv lra-image-none",
      NULL },
    { "lra perturb a", "-o default", "a-file a-folder" },
    { "coco pr", "predict", NULL },
    { "coco train --preset mask-rcnn-resnet-", "mask-rcnn-resnet-mini", NULL },
    { "coco predict a", "-o default", "a-file a-folder" },
    { "tp-models cvt-13-", "cvt-13-224 cvt-13-384", NULL },
    { "tp-models mask-rcnn-resnet-", "mask-rcnn-resnet-mini", NULL },
    { "tp-models --js", "--json", NULL },
    { "tp-inspect --me", "--meta", NULL },
    { "tp-inspect a", "-o default", "a-file a-folder" },
};

enum { CASES = sizeof cases / sizeof *cases };

static void expect_offers(const char *shell, const char *script)
{
    char command[8000];
    int n = snprintf(
        command, sizeof command,
        "mkdir scripts a-folder; touch a-file; for p in enwik8 gpt imagenet imdb lra coco "
        "tp-models tp-inspect; do cp '%s'/manuals/$p/%s/* scripts; done; %s '%s/tests/programs/%s' "
        "\"$PWD/scripts\"",
        TP_BUILD_DIR, shell, strcmp(shell, "zsh") == 0 ? "zsh -f" : shell, TP_SOURCE_DIR, script);
    for (int i = 0; i < CASES; i++)
        n += snprintf(command + n, sizeof command - (size_t)n, " '%s'", cases[i].line);
    cr_expect_eq(shell_says(command), 0, "%s", out);
    const char *at = out;
    for (int i = 0; i < CASES; i++) {
        char expected[200];
        const bool other = strcmp(shell, "zsh") == 0 && cases[i].zsh;
        const char *offers = other ? cases[i].zsh : cases[i].bash;
        const int length = snprintf(expected, sizeof expected, "%s:%s%s\n", cases[i].line,
                                    *offers ? " " : "", offers);
        const int line = (int)strcspn(at, "\n");
        cr_expect(strncmp(at, expected, (size_t)length) == 0, "%s: '%.*s', not '%s'", shell, line,
                  at, expected);
        at += line + (at[line] != '\0');
    }
    cr_expect_str_empty(at, "%s", at);
}

Test(manuals, bash_completes)
{
    expect_offers("bash", "completion.bash");
}

Test(manuals, zsh_completes)
{
    if (!is_installed("zsh")) cr_skip_test("zsh is not installed");
    expect_offers("zsh", "completion.zsh");
}

/* ---- mistakes ---- */

Test(manuals, mistakes)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "enwik8 --completion",
          "enwik8: --completion: a value is missing\nTry 'enwik8 --help'.\n" },
        { "enwik8 --completion=zhs",
          "enwik8: --completion: 'zhs' is not one of bash|zsh; did you mean 'zsh'?\n" },
        { "enwik8 eval --completion fish",
          "enwik8 eval: --completion: 'fish' is not one of bash|zsh\nTry 'enwik8 eval --help'.\n" },
        { "enwik8 eval --mna", "enwik8 eval: --mna: unknown flag; did you mean --man?\n" },
        { "tp-inspect --completions bash",
          "--completions: unknown flag; did you mean --completion?\n" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char args[200];
        snprintf(args, sizeof args, "'%s'/%s; test $? = 2", TP_BIN_DIR, bad[i].args);
        cr_expect_eq(shell_says(args), 0, "%s: %s", bad[i].args, out);
        cr_expect(strstr(out, bad[i].message), "%s: %s", bad[i].args, out);
    }
    cr_expect_eq(shell_says("'" TP_BIN_DIR "'/enwik8 --commands"), 0);
    cr_expect_str_eq(out, "train\neval\nscale\nnorms\ngenerate\n", "%s", out);
}

/* A package would install half a page. */
Test(manuals, full_disk)
{
    static const char *const prints[] = { "enwik8 --help", "enwik8 train --man", "tp-inspect --man",
                                          "enwik8 --completion bash" };
    for (size_t i = 0; i < sizeof prints / sizeof *prints; i++) {
        char args[200];
        snprintf(args, sizeof args, "'%s'/%s >/dev/full; test $? = 1", TP_BIN_DIR, prints[i]);
        cr_expect_eq(shell_says(args), 0, "%s: %s", prints[i], out);
        cr_expect(strstr(out, ": standard output: No space left on device\n"), "%s", out);
    }
}
