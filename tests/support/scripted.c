/* scripted.c - the program with scripted scores, run in processes of its own. */
#include "scripted.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "train_with.h"

typedef struct state {
    tp_tensor w;
} state;

static double scores[SCRIPTED_SCORES];
int64_t scripted_signal;
char scripted_output[20000];

static void open_nothing(tp_run *R, tp_file *from)
{
    (void)from;
    R->batches = 2;
}

static void build(tp_run *R)
{
    state *t = R->state;
    t->w = tp_param(R->P, "w", TP_SHAPE(64), (tp_init){ TP_INIT_NORMAL, 1, 0 }, 0);
}

tp_tensor scripted_weights(const tp_run *R)
{
    return ((const state *)R->state)->w;
}

static void next(tp_run *R)
{
    (void)R;
}

static tp_tensor loss(tp_run *R)
{
    const tp_tensor w = tp_dropout(R->T, scripted_weights(R), 0.5);
    return tp_mean(R->T, tp_mul(R->T, w, w), TP_ALL);
}

static double validate(tp_run *R, char *text, size_t size)
{
    (void)text, (void)size;
    if (scripted_signal > 0 && R->update == scripted_signal) raise(SIGTERM);
    return scores[(R->update + 1) / 2 - 1];
}

tp_training scripted;
static const tp_training original = {
    .command = { .name = "scripted",
                 .summary = "fits",
                 .about = "Fits.",
                 .table = tp_train_options },
    .unit = "steps",
    .score = "points",
    .score_text = "%.2f points",
    .settings_size = sizeof(tp_train_settings),
    .state_size = sizeof(state),
    .defaults = "--threads 1 --epochs 12 --lr 0.1 --schedule constant --log-every 1",
    .open = open_nothing,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
};

/* ---- running it ---- */

void scripted_run(const char *flags, int status, const char *text)
{
    int end;
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("said", "w", stdout) || !freopen("said", "a", stderr)) _exit(9);
        const int done = train_with(&scripted, NULL, flags);
        fflush(NULL);
        _exit(done);
    }
    cr_assert(waitpid(child, &end, 0) == child);
    const int found = WIFEXITED(end) ? WEXITSTATUS(end) : -1;
    slurp("said", scripted_output, sizeof scripted_output);
    cr_expect(found == status && strstr(scripted_output, text),
              "%s: status %d, not %d, or no '%s' in:\n%s", flags, found, status, text,
              scripted_output);
}

void scripted_scores(const double *score, int n)
{
    for (int i = 0; i < SCRIPTED_SCORES; i++) scores[i] = score[i < n ? i : n - 1];
}

void scripted_begin(void)
{
    program_begin("none"); /* makes a separate folder */
    scripted = original;
    scripted_signal = 0;
}

void scripted_end(void)
{
    program_end();
}

void expect_meta(const char *path, const char *key, const char *value)
{
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    const char *found = tp_file_meta(F, key);
    cr_expect(found ? value && strcmp(found, value) == 0 : !value, "%s: %s is '%s', not '%s'", path,
              key, found ? found : "missing", value ? value : "missing");
    tp_file_close(F);
}
