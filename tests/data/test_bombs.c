/* test_bombs.c - the size of a file bounds the memory and time of its data reader
 * (support/bombs.h).
 *
 * Each case makes the most expensive file of its size and format and reads it in another process.
 * The peak memory and processor time of that process may grow with the file only by the stated
 * factors. Files may be accepted or refused; only the cost counts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/bpe.h>
#include <tapegrad/coco.h>
#include <tapegrad/image_set.h>
#include <tapegrad/labelled_texts.h>
#include <tapegrad/mlm.h>
#include <tapegrad/report.h>
#include <tapegrad/test_sets.h>

#include "support/bombs.h"
#include "support/bpe.h"
#include "support/folder.h"

TestSuite(bombs, .init = make_folder, .fini = remove_folder);

/* ---- texts, tables, vocabularies ---- */

static void read_text(const char *path)
{
    tp_text_close(tp_text_open(path, NULL));
}
static void read_table(const char *path)
{
    tp_table *X = tp_table_open(path, NULL);
    tp_table_labels(X, 0);
    tp_table_close(X);
}
static void read_vocabulary(const char *path)
{
    tp_bpe_close(tp_bpe_open(path));
}
static void read_dictionary(const char *path)
{
    tp_vocab v;
    char why[1000];
    tp_vocab_load(&v, path, TP_TEXT_AUTO, why, sizeof why);
}
static void read_label_lists(const char *path)
{
    tp_label_lists l = { 0 };
    tp_label_lists_read(&l, path, 1000);
    tp_label_lists_free(&l);
}
static tp_bpe *small_vocabulary(void)
{
    static char vocab[1 << 14];
    bpe_small(vocab, "ab");
    return tp_bpe_from("small", vocab, "a b\n", NULL);
}
static void read_labelled(const char *path)
{
    tp_bpe *X = small_vocabulary();
    tp_documents_close(tp_documents_labelled_texts(path, TP_TRAIN, X, NULL));
    tp_bpe_close(X);
}
static void read_corpus(const char *path)
{
    tp_bpe *X = small_vocabulary();
    tp_corpus_close(tp_corpus_open(&path, 1, X, NULL));
    tp_bpe_close(X);
}

static void make_merges(FILE *f)
{
    for (int i = 0; i < MB / 4; i++) fprintf(f, "a b%x\n", i);
}
/* The vocabulary of the merges is good. */
static void read_merges(const char *path)
{
    static char vocab[1 << 14];
    bpe_small(vocab, "ab");
    FILE *f = fopen(in_folder("vocab.json"), "w");
    if (f) fputs(vocab, f), fclose(f);
    tp_bpe_close(tp_bpe_open(in_folder("vocab.json")));
    (void)path;
}
/* A cache of tokens that claims 2^50 of them. */
static void make_cache(FILE *f)
{
    BYTES(f, "tapegrad tokens\n\x08\7\6\5\4\3\2\1");
    for (int i = 0; i < 48; i++) fputc(i % 8 == 6 ? 4 : 0, f);
}
static void read_cached(const char *path)
{
    const char *text = in_folder("text.txt");
    tp_bpe *X = small_vocabulary();
    FILE *f = fopen(text, "w");
    if (f) fputs("a text for the cache\n", f), fclose(f);
    tp_corpus_close(tp_corpus_open(&text, 1, X, &(tp_corpus_opts){ .cache = path }));
    tp_bpe_close(X);
}

static void make_letters(FILE *f)
{
    bomb_repeat(f, "a", 2 * MB);
}
static void make_lines(FILE *f)
{
    bomb_repeat(f, "\n", 2 * MB);
}
static void make_rows(FILE *f)
{
    for (int i = 0; i < MB / 2; i++) fprintf(f, "%x\n", i);
}
static void make_cells(FILE *f)
{
    bomb_repeat(f, "\t", 2 * MB);
    fputc('\n', f);
}
static void make_vocabulary(FILE *f)
{
    fputc('{', f);
    bomb_number(f, "\"%x\":%d", MB / 8);
    fputc('}', f);
}
static void make_empty_lists(FILE *f)
{
    fputs("[0", f);
    bomb_repeat(f, ",[]", MB / 2);
    fputc(']', f);
}
static void make_one_record(FILE *f)
{
    fputs("{\"text\":[0", f);
    bomb_repeat(f, ",{}", MB / 2);
    fputs("]}\n", f);
}
static void make_csv_cells(FILE *f)
{
    fputs("text,label\n", f);
    bomb_repeat(f, ",", 2 * MB);
}
static void make_csv_labels(FILE *f)
{
    fputs("text,label\n", f);
    for (int i = 0; i < MB / 4; i++) fprintf(f, "a,%x\n", i);
}

/* ---- annotations ---- */

static void read_coco(const char *path)
{
    tp_coco_close(tp_coco_open(path));
}
static void make_coco_lists(FILE *f)
{
    fputs("{\"images\":[],\"categories\":[],\"annotations\":[{\"id\":1,\"segmentation\":[0", f);
    bomb_repeat(f, ",[]", MB / 2);
    fputs("]}]}", f);
}
static void make_coco_images(FILE *f)
{
    fputs("{\"images\":[", f);
    bomb_number(f, "{\"id\":%d,\"height\":9,\"width\":9,\"file_name\":\"\"}", MB / 16);
    fputs("],\"categories\":[],\"annotations\":[]}", f);
}
static void make_coco_objects(FILE *f)
{
    fputs("{\"images\":[{\"id\":1,\"height\":9,\"width\":9}],\"categories\":[{\"id\":1,"
          "\"name\":\"a\"}],\"annotations\":[",
          f);
    bomb_number(
        f,
        "{\"id\":%d,\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,1,1],\"area\":1,\"iscrowd\":0}",
        MB / 32);
    fputs("]}", f);
}

static void read_voc(const char *path)
{
    (void)path;
    tp_coco_close(tp_coco_voc(folder, TP_TRAIN));
}
static void make_voc_objects(FILE *f)
{
    fputs("<annotation><filename>a.png</filename><size><width>9</width><height>9</height>"
          "<depth>3</depth></size>",
          f);
    for (int i = 0; i < 5000; i++)
        fprintf(f,
                "<object><name>%d</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax>"
                "<ymax>3</ymax></bndbox></object>",
                i);
    fputs("</annotation>", f);
}
static void make_voc_depth(FILE *f)
{
    fputs("<annotation>", f);
    bomb_repeat(f, "<a>", MB / 2);
}
static void make_voc_text(FILE *f)
{
    fputs("<annotation><filename>", f);
    bomb_repeat(f, "&amp;", MB / 2);
}

/* ---- images ---- */

static void read_image(const char *path)
{
    tp_image p = { 0 };
    tp_image_read(&p, path, &(tp_image_opts){ .max_pixels = 1000000 });
    tp_image_free(&p);
}
/* A header that claims 60000 x 60000 pixels. */
static void make_png(FILE *f)
{
    BYTES(f,
          "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x9f\x5b\xb0\x8d");
    BYTES(f, "\0\0\0\x0bIDAT");
    bomb_repeat(f, "x", 1000);
}
static void make_jpeg(FILE *f)
{
    BYTES(f, "\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\3\1\x22\0\2\x11\1\3\x11\1");
    for (int i = 0; i < 20000; i++) BYTES(f, "\xff\xfe\0\x04xx");
}
/* ---- shards ---- */

static const char end_of_tar[1024];

static void read_shards(const char *path)
{
    char name[1000];
    (void)path;
    tp_image_set *X = tp_image_set_open(in_folder("shards"), TP_LAYOUT_AUTO, TP_TRAIN);
    for (int64_t i = 0; i < tp_image_set_count(X); i++) tp_image_set_name(X, i, name, sizeof name);
    tp_image_set_close(X);
}

/* The tar header of an entry, which claims that many bytes. */
static void put_entry(FILE *f, const char *name, unsigned long long size)
{
    unsigned char h[512] = { 0 };
    unsigned sum = 8 * ' ';
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 100, 8, "0000644");
    snprintf((char *)h + 124, 12, "%011llo", size);
    memcpy(h + 257, "ustar\00000", 8);
    h[156] = '0';
    for (int i = 0; i < 512; i++) sum += i < 148 || i >= 156 ? h[i] : 0;
    snprintf((char *)h + 148, 8, "%06o", sum);
    fwrite(h, 1, sizeof h, f);
}

static void put_keys(FILE *f, const char *form)
{
    char name[100];
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, form, i);
        put_entry(f, name, 0);
    }
    fwrite(end_of_tar, 1, sizeof end_of_tar, f);
}

static void make_shard_images(FILE *f)
{
    put_keys(f, "%06d.jpg");
}

static void make_shard_labels(FILE *f)
{
    put_keys(f, "%06d.cls");
}

static void make_shard_classes(FILE *f)
{
    char name[100], label[512] = { 0 };
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "%06d.jpg", i);
        put_entry(f, name, 0);
        snprintf(name, sizeof name, "%06d.cls", i);
        put_entry(f, name, 5);
        snprintf(label, sizeof label, "%05d", i);
        fwrite(label, 1, sizeof label, f);
    }
    fwrite(end_of_tar, 1, sizeof end_of_tar, f);
}

static void make_shard_claims(FILE *f)
{
    put_entry(f, "0.cls", 07777777777);
    put_entry(f, "0.jpg", 077777777777);
    bomb_repeat(f, "x", 1000);
}

/* ---- runs ---- */

/* The file is the log of a run in the folder. */
static void read_report(const char *path)
{
    char why[1000];
    const char *const runs[] = { folder };
    (void)path;
    tp_report_write(in_folder("page.html"), runs, 1, why, sizeof why);
}
static void make_log_line(FILE *f)
{
    fputs("{\"step\":1,\"ops\":[0", f);
    bomb_repeat(f, ",[]", 300000);
    fputs("]}\n", f);
}
static void make_log_keys(FILE *f)
{
    for (int i = 0; i < MB / 16; i++) fprintf(f, "{\"step\":%d,\"%x\":1}\n", i, i);
}

Test(bombs, texts)
{
    static const bomb cases[] = {
        { "text: letters", "a.txt", make_letters, read_text, 8 },
        { "table: rows", "a.tsv", make_rows, read_table, 128 },
        { "table: empty lines", "a.tsv", make_lines, read_table, 128 },
        { "table: cells", "a.tsv", make_cells, read_table, 128 },
        { "vocabulary: tokens", "vocab.json", make_vocabulary, read_vocabulary, 128 },
        { "vocabulary: lists", "vocab.json", make_empty_lists, read_vocabulary, 128 },
        { "vocabulary: objects", "tokenizer.json", make_one_record, read_vocabulary, 128 },
        { "vocabulary: merges", "merges.txt", make_merges, read_merges, 128 },
        { "corpus: a cache", "cache", make_cache, read_cached, 128 },
        { "dictionary: lines", "dict.txt", make_lines, read_dictionary, 8 },
        { "labels: lists", "real.json", make_empty_lists, read_label_lists, 128 },
        { "corpus: letters", "a.txt", make_letters, read_corpus, 64 },
        { "corpus: empty lines", "a.txt", make_lines, read_corpus, 64 },
        { "JSON lines: one record", "a.jsonl", make_one_record, read_labelled, 128 },
        { "CSV: cells", "a.csv", make_csv_cells, read_labelled, 128 },
        { "CSV: labels", "a.csv", make_csv_labels, read_labelled, 128 },
    };
    CHECK(cases);
}

Test(bombs, annotations)
{
    static const bomb cases[] = {
        { "COCO: lists", "a.json", make_coco_lists, read_coco, 128 },
        { "COCO: images", "a.json", make_coco_images, read_coco, 128 },
        { "COCO: objects", "a.json", make_coco_objects, read_coco, 128 },
        { "VOC: objects", "Annotations/a.xml", make_voc_objects, read_voc, 128 },
        { "VOC: depth", "Annotations/a.xml", make_voc_depth, read_voc, 128 },
        { "VOC: a text", "Annotations/a.xml", make_voc_text, read_voc, 128 },
    };
    cr_assert_eq(mkdir(in_folder("Annotations"), 0700), 0);
    CHECK(cases);
}

/* The pixel limit bounds images: 3 bytes per pixel, and as much for the decoder. */
Test(bombs, images)
{
    static const bomb cases[] = {
        { "PNG: a size", "a.png", make_png, read_image, 8 },
        { "JPEG: a size", "a.jpg", make_jpeg, read_image, 8 },
    };
    CHECK(cases);
}

Test(bombs, shards)
{
    static const bomb cases[] = {
        { "shard: images", "shards/a.tar", make_shard_images, read_shards, 8 },
        { "shard: labels", "shards/a.tar", make_shard_labels, read_shards, 8 },
        { "shard: classes", "shards/a.tar", make_shard_classes, read_shards, 8 },
        { "shard: sizes", "shards/a.tar", make_shard_claims, read_shards, 8 },
    };
    cr_assert_eq(mkdir(in_folder("shards"), 0700), 0);
    CHECK(cases);
}

Test(bombs, logs)
{
    static const bomb cases[] = {
        { "log: a line", "log.jsonl", make_log_line, read_report, 128 },
        { "log: keys", "log.jsonl", make_log_keys, read_report, 128 },
        { "config: lists", "config.json", make_log_line, read_report, 128 },
    };
    FILE *f;
    CHECK(cases);
    f = fopen(in_folder("log.jsonl"), "w");
    cr_assert(f && fputs("{\"step\":1}\n", f) >= 0 && fclose(f) == 0);
    bombs_check(cases + 2, 1);
}

/* Packed zeros: 1100 times the packed bytes plus 16 MiB may be unpacked, and held a few times. */
Test(bombs, packed)
{
    static const struct {
        const char *command, *file;
        void (*read)(const char *path);
    } cases[] = {
        { "xz -0 -c z", "a.txt.xz", read_text },
        { "zstd -q -c z", "a.txt.zst", read_text },
        { "gzip -c z", "a.txt.gz", read_text },
        { "bzip2 -c z", "a.txt.bz2", read_text },
        { "cat a.txt.bz2", "a.tsv.bz2", read_table },
        { "cat a.txt.bz2", "vocab.json", read_vocabulary },
        { "cat a.txt.bz2", "b.txt.bz2", read_corpus },
        { "cat a.txt.bz2", "a.json.bz2", read_coco },
        { "cat a.txt.bz2", "a.csv.bz2", read_labelled },
        { "cat a.txt.bz2", "dict.txt", read_dictionary },
        { "tar cj z", "wanted.tar.bz2", read_corpus },
        { "tar cj train", "unwanted.tar.bz2", read_labelled },
    };
    char command[800];
    snprintf(command, sizeof command,
             "cd '%s' && truncate -s 100M z && mkdir -p train/a && mv z train/a/z.bin && "
             "ln train/a/z.bin z",
             folder);
    cr_assert_eq(system(command), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bomb b = { cases[i].file, NULL, NULL, cases[i].read, 0 };
        const char *path = in_folder(cases[i].file);
        struct stat s;
        snprintf(command, sizeof command, "cd '%s' && %s >%s 2>/dev/null", folder, cases[i].command,
                 cases[i].file);
        if (system(command) != 0) continue; /* the program is missing */
        cr_assert_eq(stat(path, &s), 0);
        const bomb_cost m = bomb_take(&b, path);
        const double most = 3 * (1100.0 * (double)s.st_size / 1024 + (16 << 10)) + (32 << 10);
        if (getenv("TP_BOMBS"))
            fprintf(stderr, "%-28s %8lld bytes  %7.1f MB of %.1f  %6.2f s\n", b.name,
                    (long long)s.st_size, (double)m.kilobytes / 1024, most / 1024, m.seconds);
        cr_expect(!BOMBS_MEASURED || (double)m.kilobytes <= most,
                  "%s: %ld KB of memory for %lld bytes", b.name, m.kilobytes, (long long)s.st_size);
        cr_expect(!BOMBS_MEASURED || m.seconds <= 2 + 1e-8 * 1100 * (double)s.st_size, "%s: %.1f s",
                  b.name, m.seconds);
    }
}
