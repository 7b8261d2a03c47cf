/* run_calls.c - runs the calls of a file (compare.h) and writes their results to another one:
 *
 *     run_calls IN.safetensors OUT.safetensors */
#include <stdio.h>

#include "compare.h"

static void keep(void *env, const compare_call *c, const char *name, tp_dtype dt, tp_shape s,
                 const void *data)
{
    char full[300];
    snprintf(full, sizeof full, "%d.%s", c->number, name);
    tp_writer_add(env, full, dt, s, data, true);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: run_calls IN.safetensors OUT.safetensors\n", stderr);
        return 2;
    }
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    tp_file *in = tp_file_open(argv[1]);
    tp_writer *out = tp_writer_new(argv[2]);
    const int calls = compare_calls(in);
    for (int i = 0; i < calls; i++) {
        char why[1024], key[32];
        if (compare_run(D, in, i, keep, out, why, sizeof why) == 0) continue;
        snprintf(key, sizeof key, "%d.error", i);
        tp_writer_meta(out, key, why);
    }
    const bool done = calls >= 0 && tp_writer_commit(out);
    if (!done) fprintf(stderr, "%s\n", calls < 0 ? tp_file_why(in) : tp_writer_why(out));
    tp_writer_free(out);
    tp_file_close(in);
    tp_device_close(D);
    return done ? 0 : 1;
}
