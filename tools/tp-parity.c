/* tp-parity.c - compares the library with reference cases, one line a file. */
#include <stdlib.h>
#include <string.h>

#include "parity.h"

static const char help[] =
    "NAME\n"
    "    tp-parity - compare the library with reference cases\n"
    "\n"
    "SYNOPSIS\n"
    "    tp-parity [--f64] [--f32] [--bf16] [--device NAME] [--threads N] [--verbose] FILE...\n"
    "    tp-parity --audit [--device NAME] [--threads N] [--verbose] FILE...\n"
    "\n"
    "DESCRIPTION\n"
    "    A reference case is a safetensors file: metadata that say what to run, weights,\n"
    "    inputs, and the outputs and gradients that a reference implementation computed. Each\n"
    "    FILE is run, all results in it are compared, and a line reports the largest relative\n"
    "    error. Nothing about a case is known but what its file says: a tensor that nothing was\n"
    "    compared with and a key of the metadata that nothing read are failures, like results\n"
    "    that differ.\n"
    "\n"
    "    --audit changes each value of the metadata in turn (numbers, flags, words, elements of\n"
    "    lists, names) and expects that the case is refused or no longer agrees. A change that\n"
    "    makes no difference is printed; tools/parity/parity_exceptions.c lists the reasons why\n"
    "    some may.\n"
    "\n"
    "OPTIONS\n"
    "    --f64 --f32 --bf16\n"
    "                   precisions to run; without any, f32 and on the CPU, which alone has\n"
    "                   it, f64, but models of full size in f32 alone\n"
    "    --audit        audit the metadata, in f64 (models of full size, other devices: f32)\n"
    "    --device NAME  where to run: cpu, cuda, cuda:1, ... (cpu)\n"
    "    --threads N    0: as many as there are cores (0)\n"
    "    --verbose      every comparison; of an audit, the excepted changes and their reasons\n"
    "    --help         this text\n"
    "\n"
    "EXIT STATUS\n"
    "    0  all files agree; with --audit, every change makes a difference or is excepted\n"
    "    1  a file does not agree, is of an unknown kind, or holds what nothing read\n"
    "    2  wrong usage\n"
    "\n"
    "EXAMPLES\n"
    "    tp-parity tests/fixtures/*/*.safetensors\n"
    "    tp-parity --f32 --verbose tests/fixtures/cvt/full_cvt13_224.safetensors\n"
    "    tp-parity --audit tests/fixtures/lm/attn_r1_basic.safetensors\n";

typedef struct options {
    bool f64, f32, bf16, verbose, audit;
    const char *device;
    int threads;
} options;

/* Takes one option; returns how many arguments it is, 0 if it is none. */
static int take_option(options *o, int left, char **arg)
{
    bool *flag = strcmp(arg[0], "--f64") == 0       ? &o->f64
                 : strcmp(arg[0], "--f32") == 0     ? &o->f32
                 : strcmp(arg[0], "--bf16") == 0    ? &o->bf16
                 : strcmp(arg[0], "--verbose") == 0 ? &o->verbose
                 : strcmp(arg[0], "--audit") == 0   ? &o->audit
                                                    : NULL;
    if (flag) {
        *flag = true;
        return 1;
    }
    if (left < 2) return 0;
    if (strcmp(arg[0], "--device") == 0) {
        o->device = arg[1];
        return 2;
    }
    char *end;
    const long n = strtol(arg[1], &end, 10);
    if (strcmp(arg[0], "--threads") != 0 || end == arg[1] || *end || n < 0 || n > 4096) return 0;
    o->threads = (int)n;
    return 2;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool run_file(const char *path, tp_device *D, const options *o)
{
    static const tp_dtype types[] = { TP_F64, TP_F32, TP_BF16 };
    const bool asked[] = { o->f64, o->f32, o->bf16 }, any = o->f64 || o->f32 || o->bf16;
    const bool usual[] = { !any && strcmp(o->device, "cpu") == 0, !any, false };
    char line[512] = "", why[1200] = "";
    size_t used = 0;

    for (int i = 0; i < 3 && !*why; i++) {
        const parity_opts opts = { .D = D,
                                   .compute = types[i],
                                   .large = asked[i] || types[i] == TP_F32,
                                   .log = o->verbose ? stdout : NULL };
        parity_result r;
        if (!asked[i] && !usual[i]) continue;
        if (o->verbose) printf("%s in %s\n", path, tp_dtype_name(types[i]));
        const int result = parity_run(&r, path, &opts);
        if (result > 0)
            snprintf(why, sizeof why, "%s: %s", tp_dtype_name(types[i]), r.why);
        else if (result == 0)
            used += (size_t)snprintf(line + used, sizeof line - used, "  %s %.1e %s",
                                     tp_dtype_name(types[i]), r.worst, r.worst_name);
    }
    printf("%s %-40s%s\n", *why ? "FAIL" : "ok  ", base_name(path), *why ? "" : line);
    if (*why) printf("     %s\n", why);
    fflush(stdout);
    return !*why;
}

static bool audit_file(const char *path, tp_device *D, const options *o)
{
    parity_audit a;
    const bool ran = parity_audit_run(&a, path, D, o->verbose, stdout);
    const bool good = ran && a.unnoticed == 0;

    printf("%s %-40s  %d changes", good ? "ok  " : "FAIL", base_name(path), a.changes);
    if (a.unnoticed) printf(", %d make no difference", a.unnoticed);
    if (a.excepted) printf(", %d excepted", a.excepted);
    printf("\n");
    if (!ran) printf("     %s\n", a.why);
    fflush(stdout);
    return good;
}

int main(int argc, char **argv)
{
    options o = { .device = "cpu" };
    int first = 1, failed = 0;

    while (first < argc && argv[first][0] == '-') {
        if (strcmp(argv[first], "--help") == 0) {
            fputs(help, stdout);
            return 0;
        }
        const int n = take_option(&o, argc - first, argv + first);
        if (!n) break;
        first += n;
    }
    if (first >= argc || argv[first][0] == '-') {
        fputs("usage: tp-parity [OPTION...] FILE..., see tp-parity --help\n", stderr);
        return 2;
    }
    tp_device *D = tp_device_open(o.device, &(tp_device_opts){ .threads = o.threads });
    if (!tp_device_ok(D)) {
        fprintf(stderr, "tp-parity: %s\n", tp_device_why(D));
        tp_device_close(D);
        return 1;
    }
    for (int i = first; i < argc; i++)
        failed += o.audit ? !audit_file(argv[i], D, &o) : !run_file(argv[i], D, &o);
    if (failed) printf("%d of %d files do not agree\n", failed, argc - first);
    tp_device_close(D);
    return failed ? 1 : 0;
}
