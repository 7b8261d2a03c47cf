/* test_bombs_weights.c - the size of weight files bounds the memory and time of reading them
 * (support/bombs.h). */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/model.h>

#include "support/bombs.h"
#include "support/folder.h"

TestSuite(bombs_weights, .init = make_folder, .fini = remove_folder);

static void put_safetensors(FILE *f, void (*header)(FILE *f))
{
    uint64_t n;
    fwrite("\0\0\0\0\0\0\0\0", 1, 8, f);
    header(f);
    n = (uint64_t)ftell(f) - 8;
    rewind(f);
    fwrite(&n, 1, 8, f);
    fseek(f, 0, SEEK_END);
}

#define LEGACY                                                                                     \
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."                                    \
    "\x80\x02M\xe9\x03.\x80\x02}.\x80\x02"

static void read_weights(const char *path)
{
    const char *key, *value;
    tp_file *F = tp_file_open(path);
    tp_file_verify(F);
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        double x[64];
        if (t->code == TP_OK) tp_file_read_part(F, t, 0, t->numel < 64 ? t->numel : 64, TP_F64, x);
    }
    for (int i = 0; tp_file_meta_at(F, i, &key, &value); i++) {
    }
    tp_file_close(F);
}

/* Loads the file as published weights. */
static void adopt_weights(const char *path)
{
    char why[200];
    tp_model_cfg cfg;
    tp_file *F = tp_file_open(path);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    cr_assert(tp_model_preset(&cfg, "tiny", why, sizeof why));
    tp_model_adopt(&cfg, F, NULL, 0);
    tp_net *N = tp_net_new(P, "", &cfg);
    cr_expect_not(tp_net_load(P, N, F, false));
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    tp_file_close(F);
}

static void lists(FILE *f)
{
    fputs("{\"__metadata__\":{\"a\":[0", f);
    bomb_repeat(f, ",[]", MB / 2);
    fputs("]}}", f);
}
static void objects(FILE *f)
{
    fputs("{\"__metadata__\":{\"a\":[0", f);
    bomb_repeat(f, ",{}", MB / 2);
    fputs("]}}", f);
}
static void metadata(FILE *f)
{
    fputs("{\"__metadata__\":{", f);
    bomb_number(f, "\"%x\":\"\"", MB / 2);
    fputs("}}", f);
}
static void wrong_tensors(FILE *f)
{
    fputc('{', f);
    bomb_number(f, "\"%x\":{\"dtype\":0}", MB / 4);
    fputc('}', f);
}
static void tensors(FILE *f)
{
    fputc('{', f);
    for (int i = 0; i < MB / 16; i++)
        fprintf(f, "%s\"%x.head.bias\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                i ? "," : "", i);
    fputc('}', f);
}
static void long_name(FILE *f)
{
    fputs("{\"", f);
    bomb_repeat(f, "abcdefg.", MB);
    fputs("\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", f);
}
static void deep(FILE *f)
{
    fputs("{\"a\":", f);
    bomb_repeat(f, "[", MB);
}
static void make_lists(FILE *f)
{
    put_safetensors(f, lists);
}
static void make_objects(FILE *f)
{
    put_safetensors(f, objects);
}
static void make_metadata(FILE *f)
{
    put_safetensors(f, metadata);
}
static void make_wrong(FILE *f)
{
    put_safetensors(f, wrong_tensors);
}
static void make_tensors(FILE *f)
{
    put_safetensors(f, tensors);
}
static void make_long_name(FILE *f)
{
    put_safetensors(f, long_name);
}
static void make_deep(FILE *f)
{
    put_safetensors(f, deep);
}

static void make_index(FILE *f)
{
    fputs("{\"weight_map\":{},\"a\":[0", f);
    bomb_repeat(f, ",{}", MB / 2);
    fputs("]}", f);
}

/* Dictionaries that hold the previous one 30 times, 6 deep; the first has one value. */
static void nest(FILE *f, int times, int levels)
{
    for (int level = 0; level < levels; level++) {
        BYTES(f, "}(");
        for (int i = 0; i < times; i++) fprintf(f, "U\2%02dh%c", i, level);
        fprintf(f, "uq%c", level + 1);
    }
    BYTES(f, ".].");
}
static void make_shared_text(FILE *f)
{
    BYTES(f, LEGACY "X\xa0\x0f\0\0");
    bomb_repeat(f, "a", 4000);
    BYTES(f, "q");
    fputc(0, f);
    nest(f, 30, 5);
}
static void make_shared_nothing(FILE *f)
{
    BYTES(f, LEGACY "}q\0");
    nest(f, 30, 6);
}
static void make_two_branches(FILE *f)
{
    BYTES(f, LEGACY "K\1q\0");
    nest(f, 2, 20);
}
static void make_nones(FILE *f)
{
    BYTES(f, LEGACY "](");
    bomb_repeat(f, "N", 2 * MB);
    BYTES(f, "e.].");
}
static void make_containers(FILE *f)
{
    BYTES(f, LEGACY "](");
    bomb_repeat(f, "}", 2 * MB);
    BYTES(f, "e.].");
}
static void make_marks(FILE *f)
{
    BYTES(f, LEGACY);
    bomb_repeat(f, "(", 2 * MB);
}
static void make_growing_list(FILE *f)
{
    BYTES(f, LEGACY "]");
    bomb_repeat(f, "Na", MB);
    BYTES(f, ".].");
}

/* A tensor of all 2^16 elements of its storage, in a dictionary under 2^16 names. */
static void make_views(FILE *f)
{
    BYTES(f, LEGACY
          "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\0"
          "0X\3\0\0\0cpuJ\0\0\1\0tQK\0J\0\0\1\0\x85K\1\x85\x89}tRq\0}(");
    for (int i = 0; i < 1 << 16; i++) {
        fprintf(f, "U\4%04xh", i);
        fputc(0, f);
    }
    BYTES(f, "u.]X\1\0\0\0"
             "0a.\0\0\1\0\0\0\0\0");
    for (int i = 0; i < 1 << 16; i++) fputc(0, f);
}

/* An empty list at 2^16 places of another. */
static void make_shared_list(FILE *f)
{
    BYTES(f, LEGACY "](");
    bomb_repeat(f, "N", 1 << 16);
    BYTES(f, "eq\0](");
    for (int i = 0; i < 1 << 16; i++) BYTES(f, "h\0");
    BYTES(f, "e.].");
}

/* Tensors that share a large metadata dictionary, and storages whose long keys differ at the
 * end. */
static void make_shared_metadata(FILE *f)
{
    BYTES(f, LEGACY "}(");
    for (int i = 0; i < 1 << 15; i++) fprintf(f, "U\4%04xN", i);
    BYTES(f, "uq\0}(");
    for (int i = 0; i < 1 << 14; i++) {
        fprintf(f, "U\4%04xctorch._utils\n_rebuild_tensor_v2\n((X\7", i);
        BYTES(f, "\0\0\0storagectorch\nByteStorage\nX\1\0\0\0"
                 "0X\3\0\0\0cpuK\1tQK\0K\1\x85K\1\x85\x89}h\0tR");
    }
    BYTES(f, "u.]X\1\0\0\0"
             "0a.\1\0\0\0\0\0\0\0x");
}

/* A ZIP archive whose packed pickle claims 4 GB. */
static void make_packed_pickle(FILE *f)
{
    BYTES(
        f,
        "PK\3\4\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\4\0\0\0\xff\xff\xff\xf0\x0a\0\0\0a/data.pkl\3\0\0\0"
        "PK\1\2\x14\0\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\4\0\0\0\xff\xff\xff\xf0\x0a\0\0\0\0\0\0\0\0\0"
        "\0\0\0\0\0\0\0\0"
        "a/data.pkl"
        "PK\5\6\0\0\0\0\1\0\1\0\x38\0\0\0\x2c\0\0\0\0\0");
}

/* docs/faults.md and the headers state these factors. */
Test(bombs_weights, every_format)
{
    static const bomb cases[] = {
        { "header: lists", "a.safetensors", make_lists, read_weights, 128 },
        { "header: objects", "a.safetensors", make_objects, read_weights, 128 },
        { "header: metadata", "a.safetensors", make_metadata, read_weights, 128 },
        { "header: wrong tensors", "a.safetensors", make_wrong, read_weights, 128 },
        { "header: tensors", "a.safetensors", make_tensors, read_weights, 128 },
        { "header: a long name", "a.safetensors", make_long_name, read_weights, 128 },
        { "header: depth", "a.safetensors", make_deep, read_weights, 128 },
        { "model: tensors", "a.safetensors", make_tensors, adopt_weights, 128 },
        { "model: metadata", "a.safetensors", make_metadata, adopt_weights, 128 },
        { "model: a long name", "a.safetensors", make_long_name, adopt_weights, 128 },
        { "index: objects", "a.index.json", make_index, read_weights, 128 },
        { "pickle: a shared text", "a.pth", make_shared_text, read_weights, 128 },
        { "pickle: shared objects", "a.pth", make_shared_nothing, read_weights, 128 },
        { "pickle: two branches", "a.pth", make_two_branches, read_weights, 128 },
        { "pickle: None", "a.pth", make_nones, read_weights, 128 },
        { "pickle: objects", "a.pth", make_containers, read_weights, 128 },
        { "pickle: marks", "a.pth", make_marks, read_weights, 128 },
        { "pickle: a growing list", "a.pth", make_growing_list, read_weights, 128 },
        { "pickle: a shared list", "a.pth", make_shared_list, read_weights, 128 },
        { "pickle: shared metadata", "a.pth", make_shared_metadata, read_weights, 128 },
        { "pickle: views", "a.pth", make_views, read_weights, 128 },
        { "ZIP: a packed pickle", "a.pth", make_packed_pickle, read_weights, 128 },
    };
    CHECK(cases);
}
