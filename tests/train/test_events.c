/* test_events.c - event files: framing, checksums and messages, read back by a reader of its own;
 * errors; the files of a run, of a resumed one, and on a full disk. compare_tensorboard.py reads
 * them with TensorBoard. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tapegrad/events.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/program.h"

/* ---- a reader ---- */

/* A stretch of a file; bytes beyond its end read as 0. */
typedef struct span {
    const unsigned char *at;
    size_t n;
} span;

static uint64_t fixed(span s, size_t at, size_t n)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n && at + i < s.n; i++) x |= (uint64_t)s.at[at + i] << (8 * i);
    return x;
}

static double number(span s)
{
    const uint64_t bits = fixed(s, 0, 8);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float small_number(span s)
{
    const uint32_t bits = (uint32_t)fixed(s, 0, 4);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Bit by bit, from the polynomial. */
static uint32_t crc_of(const unsigned char *b, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *b, size_t n)
{
    const uint32_t crc = crc_of(b, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static uint64_t varint(span s, size_t *at)
{
    uint64_t x = 0;
    for (int shift = 0; *at < s.n; shift += 7) {
        const unsigned char b = s.at[(*at)++];
        x |= (uint64_t)(b & 127) << shift;
        if (b < 128) break;
    }
    return x;
}

/* The content of a message's first field of that number, from *at on; n 0: there is none. */
static span field(span s, int wanted)
{
    size_t at = 0;
    while (at < s.n) {
        const uint64_t key = varint(s, &at), type = key & 7;
        const size_t from = at, varied = type == 0 ? (size_t)varint(s, &at) : 0;
        size_t n = type == 1 ? 8 : type == 5 ? 4 : at - from;
        (void)varied;
        if (type == 2) n = (size_t)varint(s, &at);
        const size_t begin = type == 0 ? from : at;
        cr_assert(begin + n <= s.n, "a field ends beyond its message");
        if ((int)(key >> 3) == wanted) return (span){ s.at + begin, n };
        at = begin + n;
    }
    return (span){ s.at, 0 };
}

static int64_t integer(span s)
{
    size_t at = 0;
    return (int64_t)varint(s, &at);
}

/* An event: its step, and the value of its summary. */
typedef struct event {
    span all, value;
    int64_t step;
    char tag[200];
} event;

enum { MOST = 400 };
static unsigned char *bytes;
static event events[MOST];
static int nevents;

static const char *only_file(const char *dir, int nth)
{
    static char path[1024];
    struct dirent **entry;
    int seen = 0;
    const int n = scandir(dir, &entry, NULL, alphasort);
    path[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (strstr(entry[i]->d_name, "tfevents") && seen++ == nth)
            snprintf(path, sizeof path, "%s/%.255s", dir, entry[i]->d_name);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return path;
}

/* Reads a file and checks every length and checksum. */
static void read_events(const char *path)
{
    struct stat s;
    FILE *f = fopen(path, "rb");
    cr_assert(f && fstat(fileno(f), &s) == 0, "%s", path);
    free(bytes);
    bytes = malloc((size_t)s.st_size + 1);
    cr_assert(bytes && fread(bytes, 1, (size_t)s.st_size, f) == (size_t)s.st_size);
    fclose(f);
    nevents = 0;
    for (size_t at = 0; at < (size_t)s.st_size; nevents++) {
        const span rest = { bytes + at, (size_t)s.st_size - at };
        const uint64_t n = fixed(rest, 0, 8);
        cr_assert(nevents < MOST && n + 16 <= rest.n, "a record is cut off");
        cr_assert_eq(fixed(rest, 8, 4), masked(rest.at, 8), "checksum of a length");
        cr_assert_eq(fixed(rest, 12 + n, 4), masked(rest.at + 12, n), "checksum of an event");
        event *e = &events[nevents];
        e->all = (span){ rest.at + 12, n };
        e->step = integer(field(e->all, 2));
        e->value = field(field(e->all, 5), 1);
        const span tag = field(e->value, 1);
        snprintf(e->tag, sizeof e->tag, "%.*s", (int)tag.n, (const char *)tag.at);
        at += n + 16;
    }
}

/* The nth event with this tag. */
static const event *find(const char *tag, int nth)
{
    for (int i = 0; i < nevents; i++)
        if (strcmp(events[i].tag, tag) == 0 && nth-- == 0) return &events[i];
    cr_assert_fail("no event '%s'", tag);
    return NULL;
}

static int count_of(const char *prefix)
{
    int n = 0;
    for (int i = 0; i < nevents; i++) n += strncmp(events[i].tag, prefix, strlen(prefix)) == 0;
    return n;
}

static bool is_text(span s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.at, text, s.n) == 0;
}

static void begin(void)
{
    make_folder();
    cr_assert(chdir(folder) == 0);
}

static void end(void)
{
    free(bytes);
    bytes = NULL;
    program_end();
}

/* ---- the library ---- */

/* The check value of CRC-32C in the catalogues. */
Test(events, the_reader_knows_its_checksum)
{
    cr_expect_eq(crc_of((const unsigned char *)"123456789", 9), 0xe3069283);
}

Test(events, every_kind)
{
    const unsigned char pixels[6] = { 0, 50, 100, 150, 200, 250 };
    const float x[] = { -1, 0, 0.5F, 1, NAN, INFINITY };
    begin();
    tp_events *E = tp_events_open("new/sub", 41);
    tp_events_scalar(E, "loss", 41, 0.25);
    tp_events_scalar(E, "of\xff/\xc3\xa4", 42, -(double)INFINITY);
    tp_events_image(E, "image", 43, 2, 3, 1, pixels);
    tp_events_histogram(E, "histogram", 44, x, 6);
    tp_events_histogram(E, "nothing", 44, x + 4, 2);
    tp_events_histogram(E, "nothing", 44, NULL, 0);
    tp_events_text(E, "text", (int64_t)1 << 40, "**bold**");
    cr_expect(tp_events_ok(E), "%s", tp_events_why(E));
    cr_expect_str_eq(tp_events_path(E), only_file("new/sub", 0));
    tp_events_close(E);
    read_events(only_file("new/sub", 0));
    cr_assert_eq(nevents, 7);
    cr_expect(is_text(field(events[0].all, 3), "brain.Event:2"));
    cr_expect_eq(events[1].step, 41);
    cr_expect_eq(integer(field(field(events[1].all, 7), 1)), 1, "SessionLog START");
    cr_expect_gt(number(field(events[1].all, 1)), 1.7e9, "the time");
    cr_expect_eq(small_number(field(find("loss", 0)->value, 2)), 0.25F);
    cr_expect(isinf(small_number(field(find("of\xef\xbf\xbd/\xc3\xa4", 0)->value, 2))));
    const span image = field(find("image", 0)->value, 4), png = field(image, 4);
    cr_expect_eq(integer(field(image, 1)), 2);
    cr_expect_eq(integer(field(image, 2)), 3);
    cr_expect_eq(integer(field(image, 3)), 1);
    cr_expect(png.n > 40 && memcmp(png.at, "\x89PNG", 4) == 0);
    const span spread = field(find("histogram", 0)->value, 5), buckets = field(spread, 7);
    const double sums[] = { -1, 1, 4, 0.5, 2.25 };
    for (int i = 0; i < 5; i++) cr_expect_eq(number(field(spread, i + 1)), sums[i], "%d", i);
    cr_assert_eq(buckets.n, 30 * 8);
    cr_assert_eq(field(spread, 6).n, 30 * 8);
    const int filled[] = { 0, 15, 22, 29 };
    for (int i = 0; i < 4; i++)
        cr_expect_eq(number((span){ buckets.at + 8 * filled[i], 8 }), 1, "bucket %d", filled[i]);
    const span text = find("text", 0)->value;
    cr_expect_eq(find("text", 0)->step, (int64_t)1 << 40);
    cr_expect(is_text(field(field(text, 8), 8), "**bold**"));
    cr_expect(is_text(field(field(field(text, 9), 1), 1), "text"));
    end();
}

/* A PNG that exists is stored as it is, with the sizes of its header. */
Test(events, a_png_as_it_is)
{
    begin();
    tp_events *E = tp_events_open(".", 0);
    tp_events_image(E, "a", 1, 7, 5, 4, (const unsigned char *)(unsigned char[140]){ 1 });
    read_events(tp_events_path(E));
    const span png = field(field(find("a", 0)->value, 4), 4);
    tp_events_png(E, "b", 2, png.at, png.n);
    cr_expect(tp_events_ok(E));
    tp_events_close(E);
    read_events(only_file(".", 0));
    const span a = field(find("a", 0)->value, 4), b = field(find("b", 0)->value, 4);
    cr_expect(a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
    end();
}

Test(events, errors)
{
    const struct {
        const char *tag;
        int what;
        const char *why;
    } cases[] = {
        { NULL, 0, "'': a value must have a tag" },
        { "", 0, "'': a value must have a tag" },
        { "a", 1, "'a': an image must have pixels, and sides from 1 to 16384" },
        { "b", 2, "'b': an image must have 1, 3 or 4 channels" },
        { "c", 3, "'c': the image is not a PNG" },
        { "d", 4, "'d': NULL was given in place of values" },
        { "e", 5, "'e': NULL was given in place of a text" },
    };
    const unsigned char grey[4] = { 0 };
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[2000];
        const char *tag = cases[i].tag;
        tp_events *E = tp_events_open("e", 0);
        if (cases[i].what == 0) tp_events_scalar(E, tag, 1, 1);
        if (cases[i].what == 1) tp_events_image(E, tag, 1, 2, 20000, 1, grey);
        if (cases[i].what == 2) tp_events_image(E, tag, 1, 2, 1, 2, grey);
        if (cases[i].what == 3) tp_events_png(E, tag, 1, "GIF", 3);
        if (cases[i].what == 4) tp_events_histogram(E, tag, 1, NULL, 1);
        if (cases[i].what == 5) tp_events_text(E, tag, 1, NULL);
        snprintf(why, sizeof why, "events %s: %s", tp_events_path(E), cases[i].why);
        cr_expect_not(tp_events_ok(E));
        cr_expect_str_eq(tp_events_why(E), why);
        tp_events_scalar(E, "later", 1, 1);
        read_events(tp_events_path(E));
        cr_expect_eq(nevents, 2, "nothing is written after an error");
        tp_events_close(E);
    }
    cr_assert(shell("touch file"));
    tp_events *E = tp_events_open("file", 0);
    cr_expect(strstr(tp_events_why(E), "events"), "%s", tp_events_why(E));
    cr_expect(strstr(tp_events_why(E), "Not a directory"), "%s", tp_events_why(E));
    tp_events_close(E);
    E = tp_events_open(NULL, 0);
    cr_expect_str_eq(tp_events_why(E), "events: NULL was given in place of a folder");
    tp_events_scalar(E, "a", 1, 1);
    tp_events_close(E);
    end();
}

/* What does not fit is removed: the file ends with a whole record. */
Test(events, a_full_disk)
{
    static const float x[100] = { 1, 2, 3 };
    const struct rlimit limit = { 2000, 2000 };
    begin();
    signal(SIGXFSZ, SIG_IGN);
    tp_events *E = tp_events_open(".", 0);
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (int i = 0; i < 100; i++) tp_events_histogram(E, "x", i, x, 100);
    cr_expect(strstr(tp_events_why(E), ": cannot be written: File too large; raise the limit on "
                                       "file sizes (ulimit -f)"),
              "%s", tp_events_why(E));
    tp_events_close(E);
    read_events(only_file(".", 0));
    cr_expect_eq(nevents, 2 + 3);
    end();
}

Test(events, null_objects)
{
    tp_events_scalar(NULL, "a", 1, 1);
    tp_events_image(NULL, "a", 1, 1, 1, 1, NULL);
    tp_events_png(NULL, "a", 1, NULL, 0);
    tp_events_histogram(NULL, "a", 1, NULL, 0);
    tp_events_text(NULL, "a", 1, NULL);
    tp_events_close(NULL);
    cr_expect_not(tp_events_ok(NULL));
    cr_expect_str_eq(tp_events_path(NULL), "");
    cr_expect(strstr(tp_events_why(NULL), "NULL"));
}

/* ---- runs ---- */

#define TRAIN "--run-dir run --eval-every 0 --log-every 2 "

Test(events, of_a_run)
{
    program_begin("first_text");
    succeed(TRAIN "--steps 5 --tensorboard --histograms both");
    read_events(only_file("run", 0));
    cr_expect_eq(events[1].step, 0, "takes the place of all steps");
    cr_expect_eq(count_of("loss"), 3);
    cr_expect_eq(find("loss", 2)->step, 5);
    cr_expect_float_eq(small_number(field(find("lr", 0)->value, 2)), 0.001, 1e-9);
    cr_expect_eq(find("accuracy", 0)->step, 5);
    cr_expect(count_of("grad_norm") == 3 && count_of("lines_per_s") == 3);
    cr_expect_eq(count_of("step"), 0, "it is the axis");
    cr_expect_gt(count_of("weights/"), 10);
    cr_expect_eq(count_of("weights/"), count_of("gradients/"));
    const span weights = field(find("weights/head.weight", 0)->value, 5);
    cr_expect_eq(find("gradients/head.weight", 0)->step, 5);
    cr_expect_eq(number(field(weights, 3)),
                 number(field(field(find("gradients/head.weight", 0)->value, 5), 3)));
    end();
}

/* A run killed after its last checkpoint has reported steps that it repeats. */
Test(events, no_step_twice)
{
    program_begin("first_text");
    succeed(TRAIN "--steps 4 --tensorboard");
    succeed(TRAIN "--resume --steps 8 --tensorboard");
    read_events(only_file("run", 1));
    cr_expect_eq(events[1].step, 5, "replaces what earlier files have from step 5 on");
    cr_expect_eq(find("loss", 0)->step, 6);
    succeed(TRAIN "--resume --steps 10");
    cr_expect_str_eq(only_file("run", 2), "", "the flag is not part of a checkpoint");
    succeed(TRAIN "--resume --steps 12 --tensorboard --tensorboard-dir other");
    cr_expect_str_eq(only_file("run", 2), "");
    read_events(only_file("other", 0));
    cr_expect_eq(find("loss", 0)->step, 12);
    end();
}

Test(events, refusals)
{
    program_begin("first_text");
    expect_refusal(TRAIN "--steps 5 --histograms weights", 1, "--histograms needs --tensorboard");
    expect_refusal(TRAIN "--steps 5 --tensorboard-dir d", 1,
                   "--tensorboard-dir needs --tensorboard");
    cr_assert(shell("touch file"));
    expect_refusal(TRAIN "--steps 5 --tensorboard --tensorboard-dir file/e", 1, "events: folder");
    end();
}

/* One warning, and the run goes on; with `write` failing half of a record is written first. */
Test(events, a_full_disk_costs_a_warning)
{
    char prefix[1000];
    program_begin("first_text");
    snprintf(prefix, sizeof prefix,
             "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=%s FAULT='write 6 %d "
             "tfevents'",
             TP_FAULT_CALLS, ENOSPC);
    cr_assert_eq(run_under(prefix, TRAIN "--steps 6 --tensorboard --histograms both"), 0, "%s",
                 errors);
    const char *warning = strstr(out, "warning: no more events for TensorBoard: events run/events");
    cr_assert(warning, "%s", out);
    cr_expect(strstr(warning, "No space left on device; make room on the disk"), "%s", out);
    cr_expect_null(strstr(warning + 1, "warning"), "one is enough: %s", out);
    cr_expect_eq(update_in("run/last.safetensors"), 6);
    read_events(only_file("run", 0));
    cr_expect_eq(nevents, 5, "whole records");
    end();
}
