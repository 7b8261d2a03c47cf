/* test_layers.c - the tree keeps its own rules: who includes whom, unique file names, sizes, what
 * the library must never call, and that an installed copy serves a consumer by CMake and by
 * pkg-config. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lines that a shell command prints in the source folder; prints them if there are any. */
static int lines(const char *command)
{
    char full[4096], line[512];
    int n = 0;
    snprintf(full, sizeof full, "cd '%s' && { %s ; }", TP_SOURCE_DIR, command);
    FILE *p = popen(full, "r");
    cr_assert(p);
    while (fgets(line, sizeof line, p)) {
        if (n++ < 20) fprintf(stderr, "  %s", line);
    }
    pclose(p);
    return n;
}

Test(layers, includes)
{
    const struct {
        const char *rule, *folders, *forbidden;
    } rules[] = {
        { "tensor knows nothing of gradients", "tensor",
          "\"(autograd|nn|train|models|data|cuda)/" },
        { "autograd does not look right", "autograd", "\"(nn|train|models|data|cuda)/" },
        { "nn does not look right", "nn", "\"(train|models|data|cuda)/" },
        { "train does not look right", "train", "\"(models|data|cuda)/" },
        { "what stands on the core uses public headers",
          "train/engine models data examples bench tools", "\"(tensor|autograd|nn|train|cuda)/" },
        { "cuda does not look right", "cuda", "\"(autograd|nn|train|models|data)/" },
        { "CUDA stays in its folder", "tensor autograd nn train models data include",
          "<(cuda|cublas|curand)" },
        { "cblas.h is included by blas.c alone", "autograd nn train models data examples tools",
          "cblas.h" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "grep -rnE '#include .*%s' --include='*.[ch]' --include='*.cu*' %s",
                 rules[i].forbidden, rules[i].folders);
        cr_expect_eq(lines(command), 0, "%s", rules[i].rule);
    }
    cr_expect_eq(lines("grep -rln 'cblas.h' tensor | grep -v 'tensor/cpu/blas.c'"), 0, "cblas.h");
    cr_expect_eq(
        lines("grep -rlnE '#pragma omp (parallel|for)|<omp.h>' --include='*.[ch]' . | grep -v "
              "-e './build/' -e tensor/parallel.c -e tests/test_layers.c"),
        0, "OpenMP threads are started in parallel.c only");
}

/* docs/adding-an-op.md: a kernel is named by its op and by its file for each backend. cast_fwd also
 * serves the parameters, softmax_fwd is the example in comments. */
Test(layers, an_op_stands_where_the_guide_says)
{
    cr_expect_eq(
        lines(
            "grep -rhoE 'TP_KERNEL\\([a-z0-9_]+\\)' --include='op_*.c' autograd/ops |"
            "sed 's/TP_KERNEL(//; s/)//' | sort -u | while read k; do "
            "grep -rlwE \"(tp__(cpu|cuda)_)?$k\" --include='*.[ch]' --include='*.cu*' "
            "tensor autograd cuda nn include | grep -vE "
            "'^(autograd/ops/op_|tensor/cpu/cpu_|cuda/cuda_)[a-z0-9_]+[.](c|cu)$' |"
            "sed \"s/^/$k: /\"; done | grep -vE 'cast_fwd: autograd/params_store.c|softmax_fwd: .*[.](h|cuh)$'"),
        0, "kernels are named elsewhere");
}

Test(layers, the_library_never_ends_the_process_nor_prints)
{
    cr_expect_eq(lines("grep -rnwE '(abort|exit|_exit|assert) *\\(' --include='*.[ch]' "
                       "--include='*.cu*' tensor autograd cuda nn train models data include"),
                 0, "no abort, exit or assert");
    cr_expect_eq(
        lines("grep -rnwE '(printf|puts|perror) *\\(' --include='*.[ch]' "
              "--include='*.cu*' tensor autograd cuda nn train/*.[ch] models data include | "
              "grep -vE 'TP_PRINTF|format\\(printf'"),
        0, "no printing, but for the engine of runs");
    cr_expect_eq(
        lines("grep -rnw getenv --include='*.[ch]' tensor autograd cuda nn train models data"), 0,
        "no environment variables");
}

Test(layers, files)
{
    cr_assert_eq(lines("git ls-files '*.c' | wc -l | awk '$1 < 100'"), 0,
                 "git knows the files of the tree");
    cr_expect_eq(lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs -n1 basename | "
                       "sort | uniq -d"),
                 0, "file names are unique in the tree");
    cr_expect_eq(
        lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.sh' '*.cmake' | xargs wc -l | "
              "awk '$2 != \"total\" && $1 > 800'"),
        0, "no file above 800 lines");
    cr_expect_eq(lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | while read f; do head -c "
                       "2 $f | grep -q '/\\*' || "
                       "echo $f; done"),
                 0, "every file begins with a comment");
}

static int run(const char *command)
{
    return system(command);
}

/* With the warnings of this build, so that a cache of the compiler has the objects. */
Test(layers, exported_symbols, .timeout = 1200)
{
    char command[2048];
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the library that it builds is the same in every build");
#endif
    snprintf(
        command, sizeof command,
        "cd '%s' && cmake -S . -B '%s/shared' -DBUILD_SHARED_LIBS=ON -DTAPEGRAD_CUDA=OFF "
        "-DTAPEGRAD_TESTS=OFF -DTAPEGRAD_EXAMPLES=OFF -DTAPEGRAD_BENCH=OFF -DTAPEGRAD_WERROR=%d "
        "-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX='%s/consumer/prefix' >/dev/null && "
        "cmake --build '%s/shared' -j 2 >/dev/null && cmake --install '%s/shared' >/dev/null",
        TP_SOURCE_DIR, TP_BUILD_DIR, TP_WERROR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR);
    cr_assert_eq(run(command), 0, "the shared build installs");
    snprintf(command, sizeof command,
             "nm -D --defined-only '%s'/shared/lib*.so | awk 'NF==3 {print $3}' | "
             "grep -vE '^tp_[a-z]' ",
             TP_BUILD_DIR);
    cr_expect_eq(lines(command), 0, "only tp_ names are exported");
    snprintf(command, sizeof command,
             "nm -D --defined-only '%s'/shared/lib*.so | awk 'NF==3 {print $3}' | "
             "grep -E '^tp_(_|cpu_|op_)' ",
             TP_BUILD_DIR);
    cr_expect_eq(lines(command), 0, "no internal names are exported");

    /* a consumer by CMake and one by pkg-config, against that installation */
    snprintf(command, sizeof command,
             "cmake -S '%s/tests/consumer' -B '%s/consumer/build' "
             "-DCMAKE_PREFIX_PATH='%s/consumer/prefix' >/dev/null && "
             "cmake --build '%s/consumer/build' >/dev/null && '%s/consumer/build/consumer'",
             TP_SOURCE_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR);
    cr_expect_eq(run(command), 0, "a consumer builds with find_package");
    snprintf(command, sizeof command,
             "cd '%s/consumer' && PKG_CONFIG_PATH=$(dirname $(find prefix -name tapegrad.pc)) && "
             "export PKG_CONFIG_PATH && cc -std=c17 '%s/tests/consumer/main.c' -o by_pkg_config "
             "$(pkg-config --cflags --libs tapegrad) -Wl,-rpath,$(dirname $PKG_CONFIG_PATH) && "
             "./by_pkg_config",
             TP_BUILD_DIR, TP_SOURCE_DIR);
    cr_expect_eq(run(command), 0, "a consumer builds with pkg-config");
}
