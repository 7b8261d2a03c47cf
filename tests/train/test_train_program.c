/* test_train_program.c - runs of programs that omit functions, fail or return invalid scores, and
 * folders of incomplete runs. The program learns a constant. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/optim_kind.h>
#include <tapegrad/train.h>
#include <unistd.h>

#include "support/files.h"
#include "support/folder.h"
#include "support/program.h"
#include "support/train_with.h"

typedef struct settings {
    tp_train_settings train;
    int64_t nan_from; /* the first update whose score is NaN; 0: none */
} settings;

static char long_help[1600];

static tp_option options[] = {
    TP_INT("nan-from", settings, nan_from, 0, 100, TP_SAVED, long_help),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_tensor w;
} state;

static int opened, closed, bests;

static void open_nothing(tp_run *R, tp_file *from)
{
    (void)from;
    opened += !R->trial;
    R->batches = 4;
}

static void build(tp_run *R)
{
    state *t = R->state;
    t->w = tp_param(R->P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
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
    const settings *s = R->settings;
    float w[2];
    (void)text, (void)size;
    cr_expect(tp_param_get(R->P, ((const state *)R->state)->w, TP_F32, w, sizeof w));
    return s->nan_from > 0 && R->update >= s->nan_from ? (double)NAN : (double)w[0];
}

/* Draws a picture of 2 x 3 pixels, or its beginning. */
static void best(tp_run *R)
{
    static const unsigned char png[33] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\3\0\0\0\2\10";
    char path[1000];
    write_bytes(tp_run_path(R, "drawn.png", path, sizeof path), png, sizeof png);
    tp_events_text(tp_run_events(R), "remark", R->update, "the best so far");
    bests++;
}

static void close_nothing(tp_run *R)
{
    closed += !R->trial;
}

static const tp_training whole = {
    .command = { .name = "constant", .summary = "fits", .about = "Fits.", .table = options },
    .unit = "steps",
    .score = "weight",
    .score_text = "weight %.3f",
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .defaults = "--threads 1 --epochs 3 --lr 0.1 --checkpoint-every 1 --schedule constant",
    .open = open_nothing,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
    .best = best,
    .close = close_nothing,
};

/* ---- running it ---- */

static char said[20000];

static int train(const tp_training *t, const char *flags)
{
    cr_assert(freopen("said", "w", stdout) && freopen("said", "a", stderr));
    const int status = train_with(t, NULL, flags);
    fflush(NULL);
    slurp("said", said, sizeof said);
    return status;
}

static void expect(const tp_training *t, const char *flags, int status, const char *what)
{
    const int found = train(t, flags);
    cr_expect(found == status && strstr(said, what), "%s: status %d, not %d, or no '%s' in:\n%s",
              flags, found, status, what, said);
}

static void begin(void)
{
    make_folder();
    cr_assert(chdir(folder) == 0);
    memset(long_help, 'x', sizeof long_help - 1);
}

static void end(void)
{
    cr_assert(chdir("/") == 0);
    remove_folder();
}

TestSuite(train_program, .init = begin, .fini = end);

/* ---- programs ---- */

Test(train_program, is_refused_if_it_lacks_something)
{
#define LACKS(member)                                                                              \
    {                                                                                              \
        whole, "lacks " #member                                                                    \
    }
    struct {
        tp_training t;
        const char *what;
    } cases[] = { LACKS(unit),  LACKS(score), LACKS(score_text), LACKS(settings_size), LACKS(open),
                  LACKS(build), LACKS(next),  LACKS(loss),       LACKS(validate) };
    int k = 0;
    cases[k++].t.unit = NULL;
    cases[k++].t.score = NULL;
    cases[k++].t.score_text = NULL;
    cases[k++].t.settings_size = 8;
    cases[k++].t.open = NULL;
    cases[k++].t.build = NULL;
    cases[k++].t.next = NULL;
    cases[k++].t.loss = NULL;
    cases[k++].t.validate = NULL;
    for (int i = 0; i < k; i++) expect(&cases[i].t, "--run-dir run", 1, cases[i].what);
    cr_expect(access("run", F_OK) != 0);
}

Test(train_program, has_a_score_of_its_own)
{
    tp_training t = whole;
    t.score = "loss";
    expect(&t, "--run-dir run", 1, "such as 'valid_loss'");
}

static bool refuse_all(void *s, const void *asked, const tp_given_flags *given, char *why,
                       size_t size)
{
    (void)s, (void)asked, (void)given, (void)why, (void)size;
    return false;
}

static double fail_silently(tp_run *R, char *text, size_t size)
{
    (void)text, (void)size;
    tp_run_fail(R, "%s", "");
    return 0;
}

Test(train_program, fails_without_a_reason)
{
    tp_training t = whole;
    t.settings_of = refuse_all;
    expect(&t, "--run-dir run", 1, "constant: failed without a reason");
    t = whole;
    t.validate = fail_silently;
    expect(&t, "--run-dir run", 1, "constant: failed without a reason");
}

static void open_too_few(tp_run *R, tp_file *from)
{
    (void)from;
    R->batches = -2;
}

Test(train_program, has_a_number_of_batches)
{
    tp_training t = whole;
    t.open = open_too_few;
    expect(&t, "--run-dir run", 1, "set -2 batches an epoch");
}

/* close frees what open allocated, so it requires open. */
Test(train_program, is_closed_where_it_was_opened)
{
    tp_training t = whole;
    expect(&whole, "--help", 0, long_help + sizeof long_help - 2);
    expect(&whole, "--version", 0, "constant (tapegrad ");
    expect(&whole, "--epochz 3", 2, "did you mean --epochs?");
    cr_expect(opened == 0 && closed == 0);
    expect(&whole, "--run-dir run", 0, "Done: 12 updates; best weight");
    cr_expect(opened == 1 && closed == 1);
    t.close = NULL;
    expect(&t, "--run-dir run2", 0, "Done");
}

/* ---- scores ---- */

Test(train_program, nan_score)
{
    expect(&whole, "--run-dir none --nan-from 1", 0, "no validation gave a score");
    cr_expect(strstr(said, "the weight of this validation is nan"), "%s", said);
    cr_expect(access("none/best.safetensors", F_OK) != 0);
    expect(&whole, "--run-dir some --nan-from 5", 0, "Done: 12 updates; best weight 0.6");
}

/* After a fault between writing best.safetensors and last.safetensors, the validation is repeated
 * and is again the best. */
Test(train_program, best_of_an_update_that_is_done_again)
{
    expect(&whole, "--run-dir run --steps 7", 0, "stopped by --steps after update 7");
    cr_assert(system("cp run/last.safetensors before") == 0);
    expect(&whole, "--resume --run-dir run --steps 8", 0, "(best)");
    cr_assert(system("cp before run/last.safetensors") == 0);
    bests = 0;
    expect(&whole, "--resume --run-dir run --steps 8", 0, "(best)");
    cr_expect_eq(bests, 1);
    bests = 0;
    cr_assert(system("cp before run/last.safetensors") == 0);
    expect(&whole, "--resume --run-dir run --steps 12", 0, "(best)");
    cr_expect_eq(bests, 2, "not only the one of update 8: %d", bests);
}

/* ---- folders ---- */

Test(train_program, adds_events_of_its_own)
{
    expect(&whole, "--run-dir run --epochs 1", 0, "Done");
    cr_expect(!shell("ls run/events*"), "none unless asked for");
    expect(&whole, "--run-dir run --overwrite --epochs 1 --tensorboard", 0, "Done");
    cr_expect(shell("grep -q remark.*best run/events*"));
}

Test(train_program, adds_the_pictures_of_validations)
{
    cr_assert(shell("mkdir run && printf x >run/old.png && ln -s old.png run/link.png"));
    expect(&whole, "--run-dir run --epochs 2 --tensorboard", 0, "Done");
    cr_expect(shell("grep -q drawn.png run/events*"));
    cr_expect_not(shell("grep -q -e old.png -e link.png run/events*"), "not changed, a link");
}

Test(train_program, best_model_is_not_overwritten)
{
    expect(&whole, "--run-dir run", 0, "Done");
    expect(&whole, "--run-dir run", 1, "already holds a run: continue it with --resume");
    cr_assert(remove("run/last.safetensors") == 0);
    expect(&whole, "--run-dir run", 1, "holds the best model of a run without a last checkpoint");
    cr_expect(access("run/best.safetensors", F_OK) == 0);
    expect(&whole, "--run-dir run --overwrite", 0, "Done");
}

Test(train_program, start_that_fails_leaves_no_folder)
{
    tp_training t = whole;
    t.open = open_too_few;
    expect(&whole, "--run-dir no/run --resume", 1, "cannot resume: there is no folder no/run");
    cr_expect(access("no", F_OK) != 0);
    expect(&t, "--run-dir no", 1, "batches");
    expect(&whole, "--run-dir no --device gpu", 1, "gpu");
    expect(&whole, "--run-dir no --init nowhere", 1, "nowhere");
    cr_expect(access("no", F_OK) != 0);
    cr_assert(system("mkdir no; touch no/mine") == 0);
    expect(&t, "--run-dir no", 1, "batches");
    cr_expect(access("no/mine", F_OK) == 0);
}

/* The temporary files of a killed process, including the program's own, are removed. */
Test(train_program, leftovers_are_cleared)
{
    expect(&whole, "--run-dir run --steps 2", 0, "Continue");
    cr_assert(system("cd run; touch curve.png.tmp-12 log.jsonl.tmp-7 my.tmp-notes .tmp-3") == 0);
    expect(&whole, "--run-dir run --resume --steps 3", 0, "Continue");
    cr_expect(access("run/curve.png.tmp-12", F_OK) != 0);
    cr_expect(access("run/log.jsonl.tmp-7", F_OK) != 0);
    cr_expect(access("run/my.tmp-notes", F_OK) == 0 && access("run/.tmp-3", F_OK) == 0);
}

Test(train_program, checkpoint_of_another_program)
{
    tp_training t = whole;
    t.program = "other";
    expect(&whole, "--run-dir run", 0, "Done");
    expect(&t, "--run-dir run --resume", 1, "last.safetensors is a checkpoint of constant, not of");
}

/* ---- an optimiser of the program ---- */

static tp_code pull_step(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    const tp_view *w = &c->y[0];
    for (const tp_segment *s = a->s.at; s < a->s.at + a->s.n; s++)
        for (int64_t i = s->at; i < s->at + s->numel; i++)
            tp_st(w, i, tp_ld(w, i) - s->lr * a->k[0]);
    return TP_OK;
}

static const tp_optim_kind pulling = {
    .name = "pulling",
    .about = "the same step for all elements.",
    .options = { { .name = "pull_by", .usual = 1.0, .high = 10.0, .help = "How far" } },
    .step = { [TP_CPU] = pull_step },
};

/* Its row makes it a choice of --optimizer with its own flag. */
Test(train_program, optimiser_of_its_own)
{
    const tp_optim_kind other = pulling;
    cr_expect(tp_optim_register(&pulling) && tp_optim_register(&pulling));
    cr_expect_not(tp_optim_register(&other), "the name is taken");
    expect(&whole, "--help", 0, "|lamb|adafactor|muon|schedulefree|pulling\n");
    expect(&whole, "--help", 0, "with the averages. pulling: the same");
    expect(&whole, "--help", 0, "How far (pulling). Range: 0 to 9.999999. Default: 1.");
    expect(&whole, "--help", 0, "Weight decay (adamw, adam, sgd, ");
    expect(&whole, "--completion bash", 0, " lamb adafactor muon schedulefree pulling'");
    expect(&whole, "--run-dir a --optimizer pulling --pull-by 10", 2, "--pull-by: 10 is out of");
    expect(&whole, "--run-dir a --optimizer pulling --pull-by 0.5 --steps 3", 0, "weight 0.850");
    expect(&whole, "--run-dir a --resume --steps 4", 0, "weight 0.800");
    expect(&whole, "--run-dir a --resume --pull-by 1", 1, "--pull-by 1 (checkpoint: 0.5)");
    expect(&whole, "--run-dir b --optimizer pull", 2, "did you mean 'pulling'?");
}

/* ---- an optimiser that averages ---- */

static float weight_in(const char *path)
{
    float w[2] = { 0, 0 };
    tp_file *F = tp_file_open(path);
    const tp_file_tensor *t = tp_file_find(F, "w");
    cr_expect(t && tp_file_read(F, t, TP_F32, w), "%s: %s", path, tp_file_why(F));
    tp_file_close(F);
    return w[0];
}

/* Validation and the best model have the averages, the last checkpoint the values of training,
 * whose bits depend neither on validation nor on a pause. */
Test(train_program, averages_of_the_optimiser)
{
#define FREE "--optimizer schedulefree --epochs 4 --eval-every "
    char text[40];
    expect(&whole, "--run-dir a " FREE "1", 0, "Done");
    const float best = weight_in("a/best.safetensors"), last = weight_in("a/last.safetensors");
    snprintf(text, sizeof text, "weight %.3f", (double)best);
    cr_expect(strstr(said, text), "%s: %s", text, said);
    cr_expect(last < best - 0.01f, "%g, averaged %g", (double)last, (double)best);
    expect(&whole, "--run-dir b " FREE "16", 0, "Done");
    cr_expect_eq(weight_in("b/last.safetensors"), last);
    expect(&whole, "--run-dir c --steps 7 " FREE "1", 0, "stopped by --steps");
    expect(&whole, "--run-dir c --resume --steps 16", 0, "Done");
    cr_expect_eq(weight_in("c/last.safetensors"), last);
    cr_expect_eq(weight_in("c/best.safetensors"), best);
    expect(&whole, "--run-dir d --ema 0.5 " FREE "1", 1,
           "--ema 0.5: this optimiser keeps averages of its own; give --ema 0");
}

/* ---- ends ---- */

Test(train_program, says_how_to_continue)
{
    expect(&whole, "--run-dir a(b) --steps 2", 0, "--resume --run-dir 'a(b)' --steps N\n");
    expect(&whole, "--run-dir a(b) --resume", 0, "Continue with: constant --resume");
    expect(&whole, "--run-dir a(b) --resume --steps 12", 0, "Done: 12 updates");
}

Test(train_program, schedule_keeps_its_end)
{
    expect(&whole, "--run-dir run --schedule cosine --steps 5", 0, "Done: 5 updates");
    expect(&whole, "--run-dir run --resume --steps 6", 1,
           "its schedule ends at update 5, which --steps cannot change");
    expect(&whole, "--run-dir all --schedule cosine", 0, "Done: 12 updates");
    expect(&whole, "--run-dir all --resume --steps 6", 1, "ends at update 12, which --steps");
    expect(&whole, "--run-dir all --resume --steps 2000", 0, "Done: 12 updates");
}

/* ---- signals ---- */

static int killer_of(pid_t child)
{
    int status;
    cr_assert(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

Test(signals_of_a_process, the_second_kills)
{
    const pid_t child = fork();
    if (child == 0) {
        tp_catch_signals();
        raise(SIGTERM);
        if (tp_stop_signal() == SIGTERM) raise(SIGHUP);
        _exit(0);
    }
    cr_expect_eq(killer_of(child), SIGHUP);
}

Test(signals_of_a_process, ignored_ones_stay_so)
{
    signal(SIGINT, SIG_IGN);
    tp_catch_signals();
    raise(SIGINT);
    cr_expect_eq(tp_stop_signal(), 0);
    raise(SIGTERM);
    cr_expect_eq(tp_stop_signal(), SIGTERM);
}
