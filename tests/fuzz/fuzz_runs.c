/* fuzz_runs.c - the input damages the folder of a run (folder_damage), which a small training
 * program then resumes. fuzz_programs does the same to the programs enwik8 and imagenet, at a tenth
 * of the speed.
 *
 * The following must hold: the program exits with 0 or 1; after success its checkpoint is complete;
 * after a refusal the checkpoint is unchanged. */
#include <tapegrad/train.h>

#include "folder.h"
#include "fuzz.h"

/* ---- a program that shrinks two weights ---- */

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
    float w[2] = { 0 };
    (void)text, (void)size;
    if (!tp_param_get(R->P, ((const state *)R->state)->w, TP_F32, w, sizeof w))
        tp_run_fail(R, "%s", tp_params_why(R->P));
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

static int small_main(int argc, char **argv)
{
    return tp_train_main(&program, argc, argv);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static folder run = { .path = "run" };
    if (size < 2) return 0;
    if (!run.file[0].bytes) {
        folder_workplace();
        fuzz_demand(folder_run(small_main, "--run-dir run --steps 2") == 0, "the program runs");
        folder_read(&run);
    }
    folder_damage(&run, input, size);
    const uint64_t before = folder_checkpoint(&run);
    const int status = folder_run(small_main, "--run-dir run --resume --steps 4");
    fuzz_demand(status == 0 || status == 1, "a run is done or refused");
    if (status == 0)
        fuzz_demand(folder_is_whole(&run), "a run that is done has a whole checkpoint");
    else
        fuzz_demand(folder_checkpoint(&run) == before, "a refused run leaves the checkpoint alone");
    return 0;
}
