/* tp-parity.c - compares the library with reference cases, one line per file. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>

#include "parity.h"
#include "print_text.h"

typedef struct request {
    tp_words files;
    bool f64, f32, bf16, verbose, audit;
    char *device, *vocab;
    int64_t threads;
} request;

#define S request

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, files, "FILE ...", "Reference cases."),
    TP_FLAG(
        "f64", S, f64, 0,
        "Run in f64. Without --f64, --f32 and --bf16, cases run in f32 and, on the CPU, in f64; "
        "full-size models only in f32."),
    TP_FLAG("f32", S, f32, 0, "Run in f32."),
    TP_FLAG("bf16", S, bf16, 0, "Run in bf16."),
    TP_FLAG("audit", S, audit, 0,
            "Audit the metadata, in f64 (full-size models and other devices: f32)."),
    TP_STRING("device", S, device, "NAME", 0, "cpu, cuda or cuda:1."),
    TP_INT("threads", S, threads, 0, 4096, 0, "CPU threads; 0: all cores."),
    TP_STRING("vocab", S, vocab, "DIR", 0,
              "The vocabulary of texts with ids. If not given: in the folder of FILE."),
    TP_FLAG("verbose", S, verbose, 0,
            "Print every comparison; of an audit, every change that makes no difference."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (r->files.n == 0) snprintf(why, size, "no FILE was given");
    return r->files.n > 0;
}

static const tp_command manual = {
    .name = "tp-parity",
    .summary = "compares the library with reference cases",
    .synopsis =
        "[--f64] [--f32] [--bf16] [--device NAME] [--threads N] [--vocab DIR] [--verbose] FILE "
        "...\n"
        "    tp-parity --audit [--device NAME] [--threads N] [--verbose] FILE ...",
    .about =
        "A reference case is a safetensors file: metadata that say what to run, weights, inputs, "
        "and the outputs and gradients of a reference implementation. Each FILE is run, all its "
        "results are compared, and one line reports the largest relative error. A tensor that was "
        "not compared and a metadata key that was not read are failures, like results that "
        "differ. A case without limits for --bf16 is skipped, which its line says; such files are "
        "counted apart. "
        "A table (.tsv) holds a case on each row: expressions of ListOps with their answers, "
        "lengths, depths and ids, texts with inserted and deleted punctuation, texts with the ids "
        "of "
        "byte-pair encoding, or classes of characters.\n\n"
        "--audit changes each value of the metadata in turn (numbers, flags, words, elements of "
        "lists, names) to find the keys without effect: those of which a legal change agrees and "
        "none makes a difference. They must be those that the key inert of the metadata lists, "
        "with "
        "blanks between; of a case without that key they are only printed.",
    .table = table,
    .check = check,
    .more = "EXIT STATUS\n"
            "    0  all files agree, but for those skipped; with --audit, inert lists exactly the "
            "keys without effect\n"
            "    1  a file disagrees, is of an unknown kind, or has something that was not used\n"
            "    2  a wrong command line\n\n"
            "EXAMPLES\n"
            "    tp-parity tests/fixtures/*/*.safetensors\n"
            "    tp-parity --f32 --verbose tests/fixtures/cvt/full_cvt13_224.safetensors\n"
            "    tp-parity --audit tests/fixtures/lm/attn_r1_basic.safetensors\n",
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_reason(const char *why)
{
    printf("     ");
    print_text(why, 0);
    printf("\n");
}

typedef enum outcome { AGREES, DISAGREES, SKIPPED, OUTCOMES } outcome;

static outcome run_file(const char *path, tp_device *D, const request *o)
{
    static const char *const marks[OUTCOMES] = { "ok  ", "FAIL", "skip" };
    static const tp_dtype types[] = { TP_F64, TP_F32, TP_BF16 };
    const bool asked[] = { o->f64, o->f32, o->bf16 }, any = o->f64 || o->f32 || o->bf16;
    const bool usual[] = { !any && strcmp(o->device, "cpu") == 0, !any, false };
    char line[512] = "", why[1200] = "";
    outcome y = SKIPPED;
    size_t used = 0;

    for (int i = 0; i < 3 && !*why; i++) {
        const parity_opts opts = { .D = D,
                                   .compute = types[i],
                                   .large = asked[i] || types[i] == TP_F32,
                                   .log = o->verbose ? stdout : NULL,
                                   .vocab = o->vocab };
        parity_result r;
        if (!asked[i] && !usual[i]) continue;
        if (o->verbose) print_text(path, 0);
        if (o->verbose) printf(" in %s\n", tp_dtype_name(types[i]));
        const int result = parity_run(&r, path, &opts);
        if (result > 0)
            snprintf(why, sizeof why, "%s: %s", tp_dtype_name(types[i]), r.why);
        else if (result == 0)
            used += (size_t)snprintf(line + used, sizeof line - used, "  %s %.1e %s",
                                     tp_dtype_name(types[i]), r.worst, r.worst_name);
        else if (asked[i])
            used += (size_t)snprintf(line + used, sizeof line - used, "  %s skipped",
                                     tp_dtype_name(types[i]));
        if (result >= 0) y = result > 0 ? DISAGREES : AGREES;
    }
    printf("%s ", marks[y]);
    print_text(base_name(path), 40);
    printf("%s\n", *why ? "" : line);
    if (*why) print_reason(why);
    fflush(stdout);
    return y;
}

static outcome audit_file(const char *path, tp_device *D, const request *o)
{
    parity_audit a;
    const bool ran = parity_audit_run(&a, path, D, o->verbose, stdout);
    const bool good = ran && a.wrong == 0;

    printf("%s ", good ? "ok  " : "FAIL");
    print_text(base_name(path), 40);
    printf("  %d changes, %d keys without effect", a.changes, a.inert);
    if (a.wrong) printf(", %d wrong", a.wrong);
    printf("\n");
    if (!ran) print_reason(a.why);
    fflush(stdout);
    return good ? AGREES : DISAGREES;
}

static bool run(void *settings, char *why, size_t size)
{
    const request *o = settings;
    tp_device *D = tp_device_open(o->device, &(tp_device_opts){ .threads = (int)o->threads });
    const bool open = tp_device_ok(D);
    int files[OUTCOMES] = { 0 };

    if (!open) snprintf(why, size, "%s", tp_device_why(D));
    for (int i = 0; open && i < o->files.n; i++)
        files[(o->audit ? audit_file : run_file)(o->files.at[i], D, o)]++;
    if (files[DISAGREES]) printf("%d of %d files disagree\n", files[DISAGREES], o->files.n);
    if (files[SKIPPED])
        printf("%d of %d files were skipped: they have no limits for bf16\n", files[SKIPPED],
               o->files.n);
    tp_device_close(D);
    return open && !files[DISAGREES];
}

int main(int argc, char **argv)
{
    request r = { .device = strdup("cpu") };
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
