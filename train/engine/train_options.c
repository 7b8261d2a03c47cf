/* train_options.c - the flags that every training program has, and what they mean for optimisers
 * and learning rates. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

#define O tp_train_settings

const tp_option tp_machine_options[] = {
    TP_STRING("device", tp_machine_settings, device, "NAME", 0, "cpu, cuda or cuda:1."),
    TP_CHOICE("dtype", tp_machine_settings, dtype, "f32|f64|bf16", TP_SAVED,
              "What products are computed in; f64 keeps the weights in f64 too (CPU only)."),
    TP_INT("threads", tp_machine_settings, threads, 0, 1024, 0,
           "CPU threads; 0: OMP_NUM_THREADS, or every core. Results do not depend on it."),
    { 0 },
};

const tp_option tp_device_options[] = {
    TP_ROWS(tp_machine_options),
    TP_FLAG("check-finite", O, check_finite, 0,
            "Look for NaN and infinity in every result and gradient, and name the op that made the "
            "first one. Slow; changes no result."),
    TP_FLAG("graph", O, graph, 0,
            "CUDA: launch forward and backward as one recorded graph: small models gain, results "
            "stay the same. No effect with --accumulation."),
    TP_FLAG("profile", O, profile, 0, "At the end, print the time that each op took."),
    { 0 },
};

const tp_option tp_run_options[] = {
    TP_STRING("run-dir", O, run_dir, "DIR", 0,
              "The run's folder: last.safetensors, best.safetensors, log.jsonl, config.json."),
    TP_FLAG("resume", O, resume, 0,
            "Continue the run of the folder from last.safetensors, bit for bit as if it had never "
            "stopped. Flags that would change its course are refused."),
    TP_FLAG("overwrite", O, overwrite, 0, "Begin anew in a folder that holds a run already."),
    TP_FLAG("plan", O, plan, 0,
            "Train nothing: print the parameters, the memory of a step (for each value of "
            "--recompute, where the program has it) and the time that a run would take here."),
    TP_STRING("init", O, init, "FILE", 0,
              "Begin with the weights of this checkpoint of the same model; optimiser, schedule "
              "and data position start afresh."),
    { 0 },
};

const tp_option tp_length_options[] = {
    TP_INT("epochs", O, epochs, 0, 1000000, TP_SAVED,
           "Passes over the data; 0: --steps ends the run."),
    TP_INT("steps", O, steps, 0, TP_BIG, TP_FREE, "Updates in all; 0: --epochs ends the run."),
    TP_NUM("time", O, time, 0, TP_BIG, 0,
           "Stop after so many seconds, with a validation and a checkpoint; 0: never."),
    TP_INT("batch", O, batch, 1, 65536, TP_SAVED, "Examples that run at once."),
    TP_INT("accumulation", O, accumulation, 1, 65536, TP_SAVED, "Batches in one update."),
    TP_INT("seed", O, seed, 0, TP_BIG, TP_SAVED, "Of initial weights, order and dropout."),
    { 0 },
};

const tp_option tp_recompute_options[] = {
    TP_CHOICE("recompute", O, recompute, "none|attention|block", TP_SAVED,
              "What backward recomputes instead of keeping it: less memory, more time."),
    { 0 },
};

const tp_option tp_rate_options[] = {
    TP_NUM("lr", O, lr, 0, 1000, TP_SAVED, "Learning rate."),
    TP_NUM("warmup", O, warmup, 0, TP_BIG, TP_SAVED, "Updates over which the rate rises from 0."),
    TP_CHOICE("schedule", O, schedule, "constant|linear|cosine|step|onecycle", TP_SAVED,
              "The rate after the warm-up; linear and cosine reach lr-end at the last step."),
    TP_NUM("lr-end", O, lr_end, 0, 1000, TP_SAVED, "Last rate of linear and cosine."),
    TP_INT("lr-every", O, lr_every, 1, TP_BIG, TP_SAVED, "Updates between the drops of step."),
    TP_NUM("lr-factor", O, lr_factor, 0, 1, TP_SAVED,
           "What a drop of step multiplies the rate by."),
    { 0 },
};

const tp_option tp_optimizer_options[] = {
    TP_CHOICE("optimizer", O, optimizer, "adamw|adam|sgd|qhm|adamw-vil", TP_SAVED,
              "Update rule. qhm: quasi-hyperbolic momentum, an average to which a gradient adds "
              "(1 - momentum) times itself. adamw-vil: eps is added to the uncorrected root, and "
              "decay follows the update."),
    TP_NUM("weight-decay", O, weight_decay, 0, 1000, TP_SAVED, "Weight decay."),
    TP_NUM("beta1", O, beta1, 0, 0.999999, TP_SAVED, "Decay of Adam's first moment."),
    TP_NUM("beta2", O, beta2, 0, 0.9999999, TP_SAVED, "Decay of Adam's second moment."),
    TP_NUM("eps", O, eps, 0, 1, TP_SAVED, "Adam's epsilon."),
    TP_NUM("momentum", O, momentum, 0, 0.999999, TP_SAVED, "Momentum of sgd and qhm."),
    TP_NUM("nu", O, nu, 0, 1, TP_SAVED,
           "qhm: the average's share of a step; the rest is the gradient itself."),
    TP_FLAG("nesterov", O, nesterov, TP_SAVED, "Nesterov's form of sgd's momentum."),
    TP_NUM("clip", O, clip, 0, TP_BIG, TP_SAVED, "Largest norm of the gradient; 0: no limit."),
    TP_NUM("ema", O, ema, 0, 0.9999999, TP_SAVED,
           "Decay of averaged weights, which validation and best.safetensors then use; 0: none."),
    { 0 },
};

const tp_option tp_report_options[] = {
    TP_INT("log-every", O, log_every, 1, TP_BIG, TP_FREE, "Updates between reports."),
    TP_INT("eval-every", O, eval_every, 0, TP_BIG, TP_FREE,
           "Epochs (where the data have none: updates) between validations; 0: only at the end."),
    TP_INT("checkpoint-every", O, checkpoint_every, 0, TP_BIG, TP_FREE,
           "Updates between checkpoints, beside those at the ends of epochs and of the run; 0: "
           "only these."),
    { 0 },
};

const tp_option tp_train_options[] = {
    TP_HEADING("RUN"),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_ROWS(tp_length_options),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

tp_train_settings tp_train_defaults(const char *run_dir)
{
    return (tp_train_settings){ .machine = { .device = strdup("cpu") },
                                .run_dir = strdup(run_dir),
                                .batch = 32,
                                .accumulation = 1,
                                .seed = 1,
                                .lr = 1e-3,
                                .lr_every = 1000,
                                .lr_factor = 0.5,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .momentum = 0.9,
                                .nu = 1,
                                .log_every = 50,
                                .eval_every = 1 };
}

tp_optim *tp_train_optimizer(tp_params *P, const tp_train_settings *o, bool raw_eps,
                             tp_factor_rule rule, void *env)
{
    const bool vil = o->optimizer == TP_BY_ADAMW_VIL;
    const tp_adam_opts adam = { .beta1 = o->beta1,
                                .beta2 = o->beta2,
                                .eps = o->eps,
                                .weight_decay = o->weight_decay,
                                .raw_eps = raw_eps || vil,
                                .decay_after = vil,
                                .factors = rule,
                                .env = env };
    const tp_sgd_opts sgd = { .momentum = o->momentum,
                              .weight_decay = o->weight_decay,
                              .nesterov = o->nesterov,
                              .factors = rule,
                              .env = env };
    const tp_qhm_opts qhm = { .momentum = o->momentum,
                              .nu = o->nu,
                              .weight_decay = o->weight_decay,
                              .factors = rule,
                              .env = env };
    switch (o->optimizer) {
    case TP_BY_SGD: return tp_sgd_new(P, &sgd);
    case TP_BY_QHM: return tp_qhm_new(P, &qhm);
    case TP_BY_ADAM: return tp_adam_new(P, &adam);
    default: return tp_adamw_new(P, &adam);
    }
}

double tp_train_rate(const tp_train_settings *o, int64_t u, int64_t total)
{
    const int64_t warmup = (int64_t)o->warmup;
    switch (o->schedule) {
    case TP_RATE_LINEAR: return tp_lr_linear(u, warmup, total, o->lr, o->lr_end);
    case TP_RATE_COSINE: return tp_lr_cosine(u, warmup, total, o->lr, o->lr_end);
    case TP_RATE_STEP: return tp_lr_step(u, warmup, o->lr_every, o->lr_factor, o->lr);
    case TP_RATE_ONECYCLE: return tp_lr_onecycle(u, total, o->lr, 0.3, 25, 1e4);
    default: return tp_lr_constant(u, warmup, o->lr);
    }
}
