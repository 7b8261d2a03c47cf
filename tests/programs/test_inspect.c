/* test_inspect.c - the program tp-inspect: output, options, exit status. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/model.h>

#include "support/files.h"
#include "support/folder.h"

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
        { "--names --match tiny a", 2,
          "tp-inspect: --names, --meta and --match exclude each other\n"
          "Try 'tp-inspect --help'.\n" },
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

static void write_header(const char *name, const char *json, const char *data, size_t n)
{
    write_raw(in_folder(name), 0, json, data, n);
}

/* Unreadable tensors are listed with the reason; only damage makes the status 1. */
Test(inspect, tensors_that_cannot_be_read)
{
    char out[4096];
    write_header("a",
                 "{" TENSOR("s", "F4", "[4]", "[0,2]") "," TENSOR("w", "U8", "[2]", "[2,4]") "}",
                 "\0\0\1\2", 4);
    cr_expect_eq(inspect("a", out, sizeof out), 0, "%s", out);
    cr_expect(
        strstr(out,
               "s     F4      [4]               cannot be read: it has the unknown dtype 'F4'; "),
        "%s", out);
    cr_expect(
        strstr(out, "w     U8      [2]                          1            2          1.5\n"),
        "%s", out);
    cr_expect(strstr(out, "\n2 tensors, 2 elements, 4 bytes, no checksums; 1 cannot be read\n"),
              "%s", out);
    write_header(
        "a",
        "{" TENSOR("s\\n\\u001b", "U8", "[3]", "[0,2]") "," TENSOR("w", "U8", "[2]", "[2,4]") "}",
        "\0\0\1\2", 4);
    cr_expect_eq(inspect("a", out, sizeof out), 1, "%s", out);
    cr_expect(strstr(out, "w     U8      [2]                          1            2"), "%s", out);
    cr_expect(
        strstr(out,
               "tp-inspect: a: tensor 's\\n\\x1b' is U8[3] but its offsets 0 to 2 hold 2 bytes"),
        "%s", out);
}

/* Also those above the range of i64. */
Test(inspect, unsigned_numbers)
{
    char out[4096];
    write_header("a", "{" TENSOR("u", "U64", "[2]", "[0,16]") "}",
                 "\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80", 16);
    cr_expect_eq(inspect("a", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "u     U64     [2]                          2   9.2234e+18   4.6117e+18"),
              "%s", out);
}

/* Neither a file's name nor the names in it control the terminal or break a line. */
Test(inspect, names_are_escaped)
{
    static const char index[] = "{\"weight_map\":{\"a\\nb\\u001b[2J\":\"../x\"}}";
    char out[4096];
    write_header("b\033[31m\nc", "{" TENSOR("w", "U8", "[1]", "[0,1]") "}", "\1", 1);
    write_header("a", "{" TENSOR("w", "U8", "[1]", "[0,1]") "}", "\1", 1);
    cr_expect_eq(inspect("a b*", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "b\\x1b[31m\\nc\nname"), "%s", out);
    cr_expect_null(strchr(out, '\033'));
    cr_expect_eq(inspect("--match tiny b*", out, sizeof out), 1);
    cr_expect(strstr(out, "b\\x1b[31m\\nc: tiny\n"), "%s", out);
    inspect("--match any b*", out, sizeof out);
    cr_expect(strstr(out, "b\\x1b[31m\\nc: no model fits"), "%s", out);
    cr_expect_null(strchr(out, '\033'));
    FILE *f = fopen(in_folder("x.index.json"), "w");
    cr_assert(f && fputs(index, f) >= 0 && fclose(f) == 0);
    cr_expect_eq(inspect("x.index.json", out, sizeof out), 1);
    cr_expect(strstr(out, "tensor 'a\\nb\\x1b[2J' is not given"), "%s", out);
    cr_expect_eq(strchr(out, '\n'), out + strlen(out) - 1, "one line: %s", out);
}

/* ---- which model is it? ---- */

/* Writes a model's weights, all zeros, for 32 x 32 pixels and 7 classes to `a`, with a prefix,
 * without the tensor `without`. A second, tied name `tied` gets ones. */
static void write_model(const char *model, const char *prefix, const char *without,
                        const char *tied)
{
    char why[256], name[512];
    tp_model_cfg cfg;
    cr_assert(tp_model_preset(&cfg, model, why, sizeof why), "%s", why);
    tp_common_cfg o = tp_model_get(&cfg);
    o.image[0] = o.image[1] = 32;
    o.outputs = 7;
    tp_model_set(&cfg, &o);
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .blank = true });
    tp_net *N = tp_net_new(P, "", &cfg);
    tp_writer *W = tp_writer_new(in_folder("a"));
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        if (strcmp(it.name, without) == 0) continue;
        if (it.alias_of && strcmp(it.name, tied) != 0) continue;
        void *x = malloc(bytes);
        cr_assert(tp_param_get(P, it.tensor, it.dtype, x, bytes), "%s", tp_params_why(P));
        if (it.alias_of) memset(x, 0x3f, bytes);
        snprintf(name, sizeof name, "%s%s", prefix, it.name);
        tp_writer_add(W, name, it.dtype, it.shape, x, true);
        free(x);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

static void expect_match(const char *model, int status, const char *output)
{
    char command[100], out[8192];
    snprintf(command, sizeof command, "--match %s a", model);
    cr_expect_eq(inspect(command, out, sizeof out), status, "%s", command);
    cr_expect(strstr(out, output) && !strchr(out, '\x1b'), "%s lacks '%s':\n%s", command, output,
              out);
}

/* Names in a file do not control the terminal, in lists or in messages. */
Test(inspect, hostile_names)
{
    char out[8192];
    write_model("tiny", "\x1b[31mnet.", "", "");
    expect_match("tiny", 0, "a: tiny under '\\x1b[31mnet.'\n");
    tp_writer *W = tp_writer_new(in_folder("a"));
    tp_writer_add(W, "\x1b[2Jw", TP_U8, TP_SHAPE(1), "", false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    expect_match("tiny", 1, "  unknown: \\x1b[2Jw [1]\n");
    FILE *f = fopen(in_folder("a"), "wb"); /* a pickle that asks for a function */
    cr_assert(f && fputs("\x80\2cos\x1b[2J\nsystem\n.", f) >= 0 && fclose(f) == 0);
    cr_expect_eq(inspect("a", out, sizeof out), 1);
    cr_expect(strstr(out, "asks for 'os\\x1b[2J.system'"), "%s", out);
    expect_match("tiny", 1, "asks for 'os\\x1b[2J.system'");
}

Test(inspect, match)
{
    write_model("tiny", "state_dict.net.", "", "");
    expect_match(
        "tiny", 0,
        "a: tiny under 'state_dict.net.'\n"
        "  32 of 32 tensors fit\n"
        "  it has 7 classes where the published model has 1000; to train with others: --head "
        "new or slice\n"
        "  all weights can be loaded\n");
    expect_match("any", 0, "tiny                     convolutional      fits\n");
    expect_match("convnet", 1,
                 "  shape: conv.0.weight [16,3,3,3] in the file, [32,3,3,3] in the model\n");
    expect_match("convnet", 1, "  these weights cannot be loaded\n");
    expect_match("teeny", 1, "did you mean 'tiny'?");

    write_model("tiny", "", "head.bias", "");
    expect_match("tiny", 1,
                 "a: tiny\n"
                 "  missing: head.bias [7]\n"
                 "  31 of 32 tensors fit, 1 are missing\n");
    expect_match("any", 1, "a: no model fits; the nearest is tiny, with 31 of its 32 tensors\n");

    write_model("vil-small", "", "", "");
    expect_match("vil-small", 0, ", 4 can be resized\n");
    expect_match("vil-small", 0,
                 "  it is for another image size: give --size, or --resize to train from it\n"
                 "  all weights can be loaded\n");

    write_model("vil-small", "", "", "layer1.1.attn.query_global.weight");
    expect_match("vil-small", 1, " are one here, but differ in the file\n");

    write_file(); /* of no model */
    expect_match("tiny", 1, "  unknown: half []\n");
    remove(in_folder("a"));
    expect_match("any", 1, "tp-inspect: a: cannot be opened");
}
