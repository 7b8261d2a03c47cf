/* test_inspect.c - the program tp-inspect: output, options, exit status. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/file.h>

#include "support_folder.h"

TestSuite(inspect, .init = make_folder, .fini = remove_folder);

/* Runs the program, stores its output and errors in `out` and returns its exit status. */
static int inspect(const char *arguments, char *out, size_t size)
{
    char command[2000];
    snprintf(command, sizeof command, "cd '%s' && '%s/tp-inspect' %s 2>&1", folder, TP_BIN_DIR,
             arguments);
    FILE *p = popen(command, "r");
    cr_assert(p);
    out[fread(out, 1, size - 1, p)] = '\0';
    const int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_file(void)
{
    static const float f[] = { 1.0f, -3.0f, NAN, 5.0f, INFINITY, NAN };
    tp_writer *W = tp_writer_new(in_folder("a"));
    tp_writer_meta(W, "layers", "12");
    tp_writer_meta(W, "note", "red\x1b[31m");
    tp_writer_add(W, "weight", TP_F32, TP_SHAPE(2, 3), f, false);
    tp_writer_add(W, "empty", TP_F64, TP_SHAPE(0, 7), NULL, false);
    tp_writer_add(W, "ids", TP_U8, TP_SHAPE(4), "\1\2\3\4", false);
    tp_writer_add(W, "half", TP_BF16, TP_SCALAR, (const uint16_t[]){ 0x3f00 }, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(inspect, output_and_options)
{
    static const struct {
        const char *arguments;
        int status;
        const char *output;
    } cases[] = {
        { "a", 0,
          "layers = 12\n"
          "note = red\\x1b[31m\n"
          "name    dtype   shape                      min          max         mean\n"
          "empty   F64     [0,7]            \n"
          "weight  F32     [2,3]                       -3            5            1  2 NaN  1 "
          "infinite\n"
          "half    BF16    []                         0.5          0.5          0.5\n"
          "ids     U8      [4]                          1            4          2.5\n"
          "4 tensors, 11 elements, 30 bytes, checksums agree\n" },
        { "--names a", 0, "empty\nweight\nhalf\nids\n" },
        { "--meta a", 0, "layers = 12\nnote = red\\x1b[31m\n" },
        { "--names a b a", 1,
          "tp-inspect: b: cannot be opened (No such file or directory); check the path and its "
          "permissions\n"
          "empty\nweight\nhalf\nids\nempty\nweight\nhalf\nids\n" },
        { "", 2, "tp-inspect: no FILE was given\nTry 'tp-inspect --help'.\n" },
        { "--all a", 2, "tp-inspect: --all: unknown flag\nTry 'tp-inspect --help'.\n" },
    };
    char out[4096];
    write_file();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(inspect(cases[i].arguments, out, sizeof out), cases[i].status, "%s",
                     cases[i].arguments);
        cr_expect_str_eq(out, cases[i].output, "%s:\n%s", cases[i].arguments, out);
    }
    cr_expect_eq(inspect("--help", out, sizeof out), 0);
    cr_expect_eq(strncmp(out, "NAME\n    tp-inspect - ", 22), 0, "%s", out);
    inspect("a a", out, sizeof out);
    cr_expect_eq(strncmp(out, "a\nlayers", 8), 0, "several files are titled: %s", out);
}

/* With a damaged value the message names the tensor, and no values are shown. */
Test(inspect, damaged_file)
{
    char out[4096];
    write_file();
    FILE *f = fopen(in_folder("a"), "r+b");
    cr_assert(f && fseek(f, -1, SEEK_END) == 0 && fputc('\5', f) == '\5' && fclose(f) == 0);
    cr_expect_eq(inspect("a", out, sizeof out), 1);
    cr_expect_eq(strncmp(out, "tp-inspect: a: tensor 'ids' is damaged: its checksum is ", 56), 0,
                 "%s", out);
    cr_expect_eq(inspect("--names a", out, sizeof out), 0, "only the header is read");
}

/* Other programs write files without checksums. */
Test(inspect, without_checksums)
{
    static const char bytes[] = "\x3c\0\0\0\0\0\0\0"
                                "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"
                                "            ab";
    char out[4096];
    FILE *f = fopen(in_folder("a"), "wb");
    cr_assert(f && fwrite(bytes, 1, 70, f) == 70 && fclose(f) == 0);
    cr_expect_eq(inspect("a", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "\n1 tensors, 2 elements, 2 bytes, no checksums\n"), "%s", out);
}
