/* fuzz_runs.c - the input damages the folder of a run, which a whole training program then resumes:
 * two bytes, the file and the way, and what is done to the file.
 *
 *     way 0   the rest is the file
 *     way 1   the rest are edits of the whole file, three bytes each: place (2) and new byte
 *     way 2   the file is cut off at that place (2)
 *
 * The whole files have no checksums, which would end almost every input.
 *
 * What must hold: the program ends with 0 or 1; done, its checkpoint is whole; refused, the
 * checkpoint is what it was. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/train.h>
#include <unistd.h>

enum { ROOM = 1 << 16, FILES = 4, FIRST = 2, LAST = 4 };

static const char *const name[FILES] = { "last.safetensors", "best.safetensors", "log.jsonl",
                                         "config.json" };

/* ---- the program: two weights become small ---- */

typedef struct state {
    tp_tensor w;
} state;

static void open_nothing(tp_run *R, tp_file *from)
{
    (void)from;
    R->batches = 2;
    R->data_hash = 5;
}

static void build(tp_run *R)
{
    ((state *)R->state)->w = tp_param(R->P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
}

static void next(tp_run *R)
{
    (void)R;
}

static tp_tensor loss(tp_run *R)
{
    const tp_tensor w = ((const state *)R->state)->w;
    return tp_sum(R->T, tp_mul(R->T, w, w), TP_ALL);
}

static double validate(tp_run *R, char *text, size_t size)
{
    float w[2];
    (void)text, (void)size;
    tp_param_get(R->P, ((const state *)R->state)->w, TP_F32, w, sizeof w);
    return (double)w[0];
}

static const tp_training program = {
    .command = { .name = "small", .summary = "fits", .about = "Fits.", .table = tp_train_options },
    .unit = "steps",
    .score = "weight",
    .score_text = "weight %.3f",
    .settings_size = sizeof(tp_train_settings),
    .state_size = sizeof(state),
    .defaults = "--threads 1 --epochs 9 --lr 0.1 --schedule constant --ema 0.9 --log-every 1",
    .open = open_nothing,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
};

/* What it prints goes nowhere. */
static int run(bool resume, int steps)
{
    char number[16];
    char *argv[] = { "--run-dir", "run", "--steps", number, resume ? "--resume" : "--overwrite" };
    snprintf(number, sizeof number, "%d", steps);
    fflush(NULL);
    const int out = dup(1), err = dup(2), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fuzz_demand(out >= 0 && err >= 0 && dup2(nowhere, 1) == 1 && dup2(nowhere, 2) == 2, "a place");
    const int status = tp_train_main(&program, 5, argv);
    fflush(NULL);
    fuzz_demand(dup2(out, 1) == 1 && dup2(err, 2) == 2, "standard streams come back");
    close(out);
    close(err);
    close(nowhere);
    return status;
}

/* ---- its folder ---- */

static struct {
    uint8_t bytes[ROOM];
    size_t size;
} whole[FILES], found;

static size_t read_file(const char *path, uint8_t bytes[ROOM])
{
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, ROOM, f) : 0;
    if (f) fclose(f);
    return n;
}

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    fuzz_demand(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "a file is written");
}

static const char *in_run(int file)
{
    static char path[64];
    snprintf(path, sizeof path, "run/%s", name[file]);
    return path;
}

static char folder[64];

static void leave(void)
{
    for (int i = 0; i < FILES; i++) remove(in_run(i));
    remove("run/lock");
    rmdir("run");
    if (chdir("/") == 0) rmdir(folder);
}

/* A folder that goes with the process, and the files of a run of FIRST updates. */
static void begin(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/fuzz-runs-XXXXXX", tmp ? tmp : "/tmp");
    fuzz_demand(mkdtemp(folder) && chdir(folder) == 0 && atexit(leave) == 0, "a folder is made");
    fuzz_demand(run(false, FIRST) == 0, "the program runs");
    for (int i = 0; i < FILES; i++) whole[i].size = read_file(in_run(i), whole[i].bytes);
    for (int i = 0; i < 2; i++)
        whole[i].size = fuzz_without_checksums(whole[i].bytes, whole[i].size);
}

static void damage(int file, int way, const uint8_t *input, size_t size)
{
    found = whole[file];
    if (way == 0) {
        memcpy(found.bytes, input, size);
        found.size = size;
    }
    for (size_t i = 0; way == 1 && i + 3 <= size; i += 3)
        found.bytes[(size_t)(input[i] | input[i + 1] << 8) % found.size] = input[i + 2];
    if (way == 2 && size >= 2) found.size = (size_t)(input[0] | input[1] << 8) % found.size;
    write_file(in_run(file), found.bytes, found.size);
}

/* Damaged settings may end a run early. */
static bool is_whole(void)
{
    int64_t update = -1;
    tp_file *F = tp_file_open(in_run(0));
    const bool whole_file = tp_file_ok(F) && tp_file_int(F, "update", &update) && update >= 0;
    tp_file_close(F);
    return whole_file;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static uint8_t last[ROOM];
    if (size < 2 || size > ROOM) return 0;
    if (!folder[0]) begin();
    for (int i = 0; i < FILES; i++) write_file(in_run(i), whole[i].bytes, whole[i].size);
    damage(input[0] % FILES, input[1] % 3, input + 2, size - 2);
    const size_t before = read_file(in_run(0), found.bytes);
    const int status = run(true, LAST);
    fuzz_demand(status == 0 || status == 1, "a run is done or refused");
    if (status == 0)
        fuzz_demand(is_whole(), "a run that is done has a whole checkpoint");
    else
        fuzz_demand(read_file(in_run(0), last) == before && memcmp(last, found.bytes, before) == 0,
                    "a run that is refused leaves the checkpoint alone");
    return 0;
}
