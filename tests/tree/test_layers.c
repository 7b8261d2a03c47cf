/* test_layers.c - the rules of the source tree: includes between layers, folders, file sizes,
 * functions that the library must not call, and consumers that use an installed copy through CMake
 * and pkg-config. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints and counts the output lines of a shell command run in the source folder. */
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
          "\"(autograd|nn|train|models|data|detection|cpu|cuda)/" },
        { "autograd does not look right", "autograd",
          "\"(nn|train|models|data|detection|cpu|cuda)/" },
        { "nn does not look right", "nn", "\"(train|models|data|detection|cpu|cuda)/" },
        { "train does not look right", "train", "\"(models|data|detection|cpu|cuda)/" },
        { "what stands on the core uses public headers",
          "train/engine models data detection examples bench tools",
          "\"(tensor|autograd|nn|train|cpu|cuda)/" },
        { "detection stands on models and data", "tensor autograd nn train models data cpu cuda",
          "<tapegrad/detection" },
        { "detection uses their public headers", "detection", "\"(models|data)/" },
        { "cpu does not look right", "cpu", "\"(autograd|nn|train|models|data|detection|cuda)/" },
        { "cuda does not look right", "cuda", "\"(autograd|nn|train|models|data|detection|cpu)/" },
        { "CUDA stays in its folder", "tensor autograd nn train models data detection cpu include",
          "<(cuda|cublas|curand)" },
        { "cblas.h is included by blas.c alone",
          "autograd nn train models data detection examples tools", "cblas.h" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "grep -rnE '^ *#include .*%s' --include='*.[ch]' --include='*.cu*' %s",
                 rules[i].forbidden, rules[i].folders);
        cr_expect_eq(lines(command), 0, "%s", rules[i].rule);
    }
    cr_expect_eq(lines("grep -rln 'cblas.h' tensor cpu | grep -v 'cpu/kit/blas.c'"), 0, "cblas.h");
    cr_expect_eq(lines("grep -rlnE '#pragma omp (parallel|for)|<omp.h>' --include='*.[ch]' . | "
                       "grep -v -e './build/' -e tests/tree/test_layers.c"),
                 0, "loops run on threads through tp__parallel");
}

/* By docs/adding-an-op.md, only an op and its file for each backend name a kernel or its workspace
 * function. cast_fwd also serves the parameters; comments use softmax_fwd and linear_work as
 * examples. */
Test(layers, an_op_is_where_the_guide_says)
{
    cr_expect_eq(
        lines("grep -rhoE 'TP_(KERNEL|WORK)\\([a-z0-9_]+\\)' --include='*.c' autograd/ops |"
              "sed -E 's/TP_[A-Z]+[(]//; s/[)]//' | sort -u | while read k; do "
              "grep -rlwE \"(tp__(cpu|cuda)_)?$k\" --include='*.[ch]' --include='*.cu*' "
              "tensor autograd cpu cuda nn include | grep -vE "
              "'^(autograd/ops|cpu|cuda)/(attention/|conv/|recurrent/)?[a-z0-9_]+[.](c|cu)$' |"
              "sed \"s/^/$k: /\"; done | grep -vE 'cast_fwd: "
              "autograd/params_store.c|(softmax_fwd|linear_work): .*[.](h|cuh)$'"),
        0, "kernels are named elsewhere");
}

Test(layers, the_library_never_ends_the_process_nor_prints)
{
    cr_expect_eq(
        lines("grep -rnwE '(abort|exit|_exit|assert) *\\(' --include='*.[ch]' "
              "--include='*.cu*' tensor autograd cpu cuda nn train models data detection include | "
              "grep -vE '^train/engine/train_main.c:[0-9]+: *_exit'"),
        0, "no abort, exit or assert, but where a program's other processes are lost");
    cr_expect_eq(
        lines("grep -rnwE '(printf|puts|perror) *\\(' --include='*.[ch]' "
              "--include='*.cu*' tensor autograd cpu cuda nn train/*.[ch] models data detection "
              "include | "
              "grep -vE 'TP_PRINTF|format\\(printf'"),
        0, "no printing, but for the engine of runs");
    cr_expect_eq(
        lines("grep -rnw getenv --include='*.[ch]' tensor autograd cpu cuda nn train models data "
              "detection | "
              "grep -vE '^(train/engine/terminal.c|train/peers/launch.c|cpu/kit/blas.c):'"),
        0,
        "no environment variables, but for what a terminal can show, how OpenBLAS is loaded, and "
        "who started the process");
}

/* Programs load MPI with the plugin of their launcher. Each plugin is linked with one MPI alone and
 * exports one function. */
Test(layers, only_the_plugins_know_mpi)
{
    char command[1024];
    cr_expect_eq(lines("grep -rnE '(mpi[.]h|MPI_[A-Z][a-z])' --include='*.[ch]' --include='*.cu*' "
                       "tensor autograd cpu cuda nn train models data detection include | "
                       "grep -v '^train/peers/mpi/'"),
                 0, "one file speaks MPI");
    snprintf(command, sizeof command,
             "readelf -d '%s' '%s'/lib*.so 2>/dev/null | grep -E 'NEEDED.*\\[libmp'",
             TP_BIN_DIR "/first_text", TP_BUILD_DIR);
    cr_expect_eq(lines(command), 0, "programs and libraries are not linked with MPI");
    snprintf(
        command, sizeof command,
        "for f in '%s'/lib/libtapegrad_*.so; do test -e \"$f\" || continue; "
        "nm -D --defined-only \"$f\" | awk 'NF == 3 { print $3 }' | grep -vE '^_(init|fini)$' | "
        "grep -vx tp_transport_open; "
        "test $(readelf -d \"$f\" | grep -cE 'NEEDED.*\\[libmp') = 1 || echo \"$f\"; done",
        TP_BUILD_DIR);
    cr_expect_eq(lines(command), 0, "a plugin exports one function, and needs one MPI");
}

/* docs/design.md, "Where things are", has a line for each source folder, indented by depth. A line
 * with several names means sibling folders. */
Test(layers, the_tree_is_as_drawn)
{
    cr_expect_eq(
        lines(
            "awk '/^## Where things are/ { on = 1 } /^## Four objects/ { on = 0 } "
            "on && /^    / { depth = (match($0, /[^ ]/) - 5) / 2; "
            "for (i = 1; i <= NF && $i ~ /[/]$/; i++) { above[depth] = $i; path = \"\"; "
            "for (k = 0; k <= depth; k++) path = path above[k]; print path } }' docs/design.md | "
            "sort >/tmp/tp-drawn.$$; "
            "git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs -n1 dirname | sed 's|$|/|' | "
            "sort -u | while read d; do grep -qxF \"$d\" /tmp/tp-drawn.$$ || "
            "case $d in examples/*|tests/*|tools/*) ;; *) echo \"$d is not drawn\" ;; esac; done; "
            "while read d; do [ -d \"$d\" ] || echo \"$d is not there\"; done </tmp/tp-drawn.$$; "
            "rm -f /tmp/tp-drawn.$$"),
        0, "docs/design.md draws the tree");
}

Test(layers, links_lead_somewhere)
{
    cr_expect_eq(
        lines("git ls-files '*.md' | while read f; do d=$(dirname $f); "
              "sed '/^```/,/^```/d' $f | grep -oE '\\]\\([^):]+\\)' | tr -d '])(' | "
              "while read link; do file=${link%%#*}; [ -z \"$file\" ] && to=$f || to=$d/$file; "
              "[ -e $to ] || echo \"$f: $link\"; case $link in *.md#*|'#'*) "
              "grep '^#' $to | tr A-Z a-z | sed 's/^#* //; s/[^a-z0-9 _-]//g; s/ /-/g' | "
              "grep -qx -- \"${link#*#}\" || echo \"$f: no heading $link\" ;; esac; done; done"),
        0, "the links of the documents lead to files and headings");
}

Test(layers, files)
{
    cr_assert_eq(lines("git ls-files '*.c' | wc -l | awk '$1 < 100'"), 0,
                 "git knows the files of the tree");
    cr_expect_eq(
        lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.sh' '*.cmake' | xargs wc -l | "
              "awk '$2 != \"total\" && $1 > ($2 ~ /^tests/ ? 800 : 600)'"),
        0, "no file above 600 lines, no test above 800");
    cr_expect_eq(
        lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.py' '*.sh' '*.cmake' "
              "'*CMakeLists.txt' .ci | LC_ALL=C.UTF-8 xargs grep -nE '.{101,}' | cut -c 1-90"),
        0, "no line beyond column 100");
    cr_expect_eq(
        lines("for h in cpu/kit/*.h cuda/kit/*.cuh; do "
              "[ $(grep -rlF \"#include \\\"$h\\\"\" --include='*.[ch]' --include='*.cu*' cpu cuda "
              "tests "
              "| wc -l) -gt 1 ] || echo $h; done"),
        0, "a kit is what two files use: a header with one user stands beside it");
    cr_expect_eq(lines("git grep -nE '(/[*]|^ [*]|[.]) (Of|With|In|For|To|By|From|On|At) "
                       "(which|whose|what)\\b|(/[*]|[.]) Whose\\b' -- '*.c' '*.h' '*.cu' '*.cuh' "
                       "':!tests/tree'"),
                 0, "a comment names its subject");
    cr_expect_eq(lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs awk "
                       "'/^ *[[][A-Za-z_0-9]+[]][;,]$/ { print FILENAME \":\" FNR } "
                       "{ torn = /^ *[{][-0-9., ]*[}],? *[\\\\]$/ } "
                       "torn && before { print FILENAME \":\" FNR } { before = torn }'"),
                 0, "no declaration or brace table that the formatter tore apart");
    cr_expect_eq(lines("git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | while read f; do head -c "
                       "2 $f | grep -q '/\\*' || "
                       "echo $f; done"),
                 0, "every file begins with a comment");
}

static int run(const char *command)
{
    return system(command);
}

/* The shared libraries are linked from this build's objects. */
Test(layers, exported_symbols, .timeout = 600)
{
    char command[2048];
    if (!TP_INSTALLS) cr_skip_test("sanitizers and CUDA need libraries of their own to link with");
    snprintf(
        command, sizeof command,
        "cd '%s' && rm -rf '%s/shared' '%s/consumer' && cmake -S . -B '%s/shared' "
        "-DBUILD_SHARED_LIBS=ON "
        "-DTAPEGRAD_ARCHIVES='%s' -DTAPEGRAD_CUDA=OFF -DTAPEGRAD_TESTS=OFF -DTAPEGRAD_EXAMPLES=OFF "
        "-DTAPEGRAD_BENCH=OFF -DCMAKE_BUILD_TYPE=Release "
        "-DCMAKE_INSTALL_PREFIX='%s/consumer/prefix' >/dev/null && "
        "cmake --build '%s/shared' -j 2 --target tapegrad tapegrad_train tapegrad_models "
        "tapegrad_data tapegrad_detection >/dev/null && cmake --install '%s/shared' >/dev/null",
        TP_SOURCE_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR,
        TP_BUILD_DIR, TP_BUILD_DIR);
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

    /* builds one consumer with CMake and one with pkg-config against that installation */
    snprintf(command, sizeof command,
             "cmake -S '%s/tests/tree/consumer' -B '%s/consumer/build' "
             "-DCMAKE_PREFIX_PATH='%s/consumer/prefix' >/dev/null && "
             "cmake --build '%s/consumer/build' >/dev/null && '%s/consumer/build/consumer'",
             TP_SOURCE_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR);
    cr_expect_eq(run(command), 0, "a consumer builds with find_package");
    snprintf(command, sizeof command,
             "cmake -S '%s/tests/tree/consumer/cpp' -B '%s/consumer/cpp' "
             "-DCMAKE_PREFIX_PATH='%s/consumer/prefix' >/dev/null && "
             "cmake --build '%s/consumer/cpp' >/dev/null && '%s/consumer/cpp/consumer_cpp'",
             TP_SOURCE_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR);
    cr_expect_eq(run(command), 0, "a project of C++ alone builds with find_package");
    snprintf(
        command, sizeof command,
        "cd '%s/consumer' && PKG_CONFIG_PATH=$(dirname $(find prefix -name tapegrad.pc)) && "
        "export PKG_CONFIG_PATH && cc -std=c17 '%s/tests/tree/consumer/main.c' -o by_pkg_config "
        "$(pkg-config --cflags --libs tapegrad) -Wl,-rpath,$(dirname $PKG_CONFIG_PATH) && "
        "./by_pkg_config",
        TP_BUILD_DIR, TP_SOURCE_DIR);
    cr_expect_eq(run(command), 0, "a consumer builds with pkg-config");
}

/* The compile lines of docs/guide/building.md, run on its programs. */
static int compile_lines(const char *installation)
{
    char command[2048];
    snprintf(command, sizeof command,
             "cd '%s/consumer' && PKG_CONFIG_PATH=$PWD/$(dirname $(find %s -name tapegrad.pc)) && "
             "export PKG_CONFIG_PATH && rm -rf page && mkdir page && cd page && "
             "awk '/^```c(pp)?$/ { to = \"train.\" substr($0, 4); next } /^```$/ { to = \"\" } "
             "to { print > to }' '%s/docs/guide/building.md' && "
             "grep -E '^    (cc|c[+][+]) ' '%s/docs/guide/building.md' | sed 's/ -O2/ -Wall "
             "-Wextra -Wpedantic -Werror/' | sh -e && ./train && ./train_cpp",
             TP_BUILD_DIR, installation, TP_SOURCE_DIR, TP_SOURCE_DIR);
    return run(command);
}

/* A static installation works under a prefix other than the configured one, and after a move. */
Test(layers, static_installation, .timeout = 600)
{
    static const struct {
        const char *flags, *what;
    } kinds[] = { { "", "pkg-config" }, { "--static", "pkg-config --static" } };
    char command[2048];
    if (!TP_INSTALLS) cr_skip_test("sanitizers and CUDA need libraries of their own to link with");
    snprintf(command, sizeof command,
             "cd '%s' && rm -rf consumer/first consumer/static consumer/static_cpp && mkdir -p "
             "consumer && "
             "cmake --install . --prefix consumer/first >/dev/null && mv consumer/first "
             "consumer/static",
             TP_BUILD_DIR);
    cr_assert_eq(run(command), 0, "the static build installs");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(command, sizeof command,
                 "cd '%s/consumer' && PKG_CONFIG_PATH=$PWD/$(dirname $(find static -name "
                 "tapegrad.pc)) && export PKG_CONFIG_PATH && "
                 "cc -std=c17 '%s/tests/tree/consumer/main.c' -o by_static "
                 "$(pkg-config %s --cflags --libs tapegrad) && ./by_static",
                 TP_BUILD_DIR, TP_SOURCE_DIR, kinds[i].flags);
        cr_expect_eq(run(command), 0, "a consumer builds with %s", kinds[i].what);
    }
    cr_expect_eq(compile_lines("static"), 0, "the guide's compile lines work");
    snprintf(command, sizeof command,
             "cmake -S '%s/tests/tree/consumer/cpp' -B '%s/consumer/static_cpp' "
             "-DCMAKE_PREFIX_PATH='%s/consumer/static' >/dev/null && "
             "cmake --build '%s/consumer/static_cpp' >/dev/null && "
             "'%s/consumer/static_cpp/consumer_cpp'",
             TP_SOURCE_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR, TP_BUILD_DIR);
    cr_expect_eq(run(command), 0, "a project of C++ alone builds with find_package");
}
