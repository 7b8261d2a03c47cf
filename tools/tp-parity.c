/* tp-parity.c - compares the library with reference cases, one line a file. */
#include <stdlib.h>
#include <string.h>

#include "parity.h"

static const char usage[] =
    "usage: tp-parity [--f64] [--f32] [--bf16] [--device NAME] [--threads N] [--verbose] FILE...\n"
    "\n"
    "Runs each reference case (a safetensors file that says in its metadata what to run), "
    "compares\n"
    "every output, gradient and gradient norm in it, and prints the largest relative error.\n"
    "\n"
    "  --f64 --f32 --bf16\n"
    "                 precisions to run; without any, f32 and on the CPU, which alone has it, "
    "f64,\n"
    "                 but full-size models in f32 alone\n"
    "  --device NAME  where to run: cpu, cuda, cuda:1, ... (cpu)\n"
    "  --threads N    0: as many as there are cores (0)\n"
    "  --verbose      every comparison\n"
    "\n"
    "Exit status: 0 if all files agree, 1 if one does not, is of an unknown kind, or holds a "
    "tensor\n"
    "that nothing was compared with, 2 for wrong usage.\n";

typedef struct options {
    bool f64, f32, bf16, verbose;
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

static bool run_file(const char *path, tp_device *D, const options *o)
{
    static const tp_dtype types[] = { TP_F64, TP_F32, TP_BF16 };
    const char *name = strrchr(path, '/');
    const bool asked[] = { o->f64, o->f32, o->bf16 }, any = o->f64 || o->f32 || o->bf16;
    const bool usual[] = { !any && strcmp(o->device, "cpu") == 0, !any, false };
    char line[512] = "", why[1200] = "";
    size_t used = 0;

    for (int i = 0; i < 3 && !*why; i++) {
        parity p;
        if (!asked[i] && !usual[i]) continue;
        if (o->verbose) printf("%s in %s\n", path, tp_dtype_name(types[i]));
        const bool large = asked[i] || types[i] == TP_F32;
        const int result = parity_run(&p, path, D, types[i], large, o->verbose ? stdout : NULL);
        if (result > 0)
            snprintf(why, sizeof why, "%s: %s", tp_dtype_name(types[i]), p.why);
        else if (result == 0)
            used += (size_t)snprintf(line + used, sizeof line - used, "  %s %.1e %s",
                                     tp_dtype_name(types[i]), p.worst, p.worst_name);
    }
    printf("%s %-40s%s\n", *why ? "FAIL" : "ok  ", name ? name + 1 : path, *why ? "" : line);
    if (*why) printf("     %s\n", why);
    fflush(stdout);
    return !*why;
}

int main(int argc, char **argv)
{
    options o = { .device = "cpu" };
    int first = 1, failed = 0;

    while (first < argc && argv[first][0] == '-') {
        if (strcmp(argv[first], "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        const int n = take_option(&o, argc - first, argv + first);
        if (!n) break;
        first += n;
    }
    if (first >= argc || argv[first][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    tp_device *D = tp_device_open(o.device, &(tp_device_opts){ .threads = o.threads });
    if (!tp_device_ok(D)) {
        fprintf(stderr, "tp-parity: %s\n", tp_device_why(D));
        tp_device_close(D);
        return 1;
    }
    for (int i = first; i < argc; i++) failed += !run_file(argv[i], D, &o);
    if (failed) printf("%d of %d files do not agree\n", failed, argc - first);
    tp_device_close(D);
    return failed ? 1 : 0;
}
