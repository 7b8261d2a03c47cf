/* train_options.c - the flags of every training program, and the optimiser and learning rate that
 * they select. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

#define O tp_train_settings

static const char *known_device(int i)
{
    static const char *const names[] = { "cpu", "cuda" };
    return i < 2 ? names[i] : NULL;
}

const tp_option tp_machine_options[] = {
    TP_STRING_OF("device", tp_machine_settings, device, "NAME", known_device, 0,
                 "cpu, cuda or cuda:1."),
    TP_CHOICE("dtype", tp_machine_settings, dtype, "f32|f64|bf16", TP_SAVED,
              "Element type of matrix products; f64 stores the weights in f64 too (CPU only)."),
    TP_INT(
        "threads", tp_machine_settings, threads, 0, 1024, 0,
        "CPU threads; 0: all cores, or as many as the CPU quota of a container allows. Results do "
        "not depend on it."),
    { 0 },
};

const tp_option tp_inspection_options[] = {
    TP_FLAG("check-finite", O, check_finite, 0,
            "Check every result and gradient for NaN and infinity, and name the op that produced "
            "the first one. Slow; does not change results."),
    TP_FLAG("profile", O, profile, 0, "Print the time spent in each op when the run ends."),
    { 0 },
};

const tp_option tp_device_options[] = {
    TP_ROWS(tp_machine_options),
    TP_ROWS(tp_inspection_options),
    TP_FLAG("graph", O, graph, 0,
            "CUDA: launch forward and backward as one captured graph. Faster for small models; "
            "does not change results. No effect with --accumulation."),
    { 0 },
};

const tp_option tp_run_options[] = {
    TP_STRING("run-dir", O, run_dir, "DIR", 0,
              "The run's folder: last.safetensors, best.safetensors, log.jsonl, config.json."),
    TP_FLAG("resume", O, resume, 0,
            "Resume the run in the folder from last.safetensors, bit for bit as if it had never "
            "stopped. Flags that would change its course are refused."),
    TP_FLAG("overwrite", O, overwrite, 0, "Start over in a folder that already holds a run."),
    TP_FLAG("plan", O, plan, 0,
            "Do not train: print the number of parameters, the memory of a step (for each value "
            "of --recompute, if the program has it) and the time that the run would take here."),
    TP_STRING("init", O, init, "FILE", 0,
              "Start from the weights of this checkpoint of the same model. Optimiser, schedule "
              "and data position start from the beginning."),
    { 0 },
};

const tp_option tp_length_options[] = {
    TP_INT("epochs", O, epochs, 0, 1000000, TP_SAVED,
           "Passes over the data; 0: --steps ends the run."),
    TP_INT("steps", O, steps, 0, TP_BIG, TP_FREE, "Total updates; 0: --epochs ends the run."),
    TP_NUM("time", O, time, 0, TP_BIG, 0,
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit."),
    TP_INT("batch", O, batch, 1, 65536, TP_SAVED, "Batch size, in examples."),
    TP_INT("accumulation", O, accumulation, 1, 65536, TP_SAVED,
           "Batches whose gradients are averaged over their targets for one update."),
    TP_INT("seed", O, seed, 0, TP_BIG, TP_SAVED,
           "Seed of initial weights, order of examples and dropout."),
    { 0 },
};

const tp_option tp_recompute_options[] = {
    TP_CHOICE("recompute", O, recompute, "none|attention|block", TP_SAVED,
              "What the backward pass recomputes instead of storing: less memory, more time."),
    { 0 },
};

const tp_option tp_rate_options[] = {
    TP_NUM("lr", O, lr, 0, 1000, TP_SAVED, "Learning rate."),
    TP_NUM("warmup", O, warmup, 0, TP_BIG, TP_SAVED,
           "Updates over which the learning rate rises linearly from 0."),
    TP_CHOICE("schedule", O, schedule, "constant|linear|cosine|step|onecycle", TP_SAVED,
              "Learning rate after the warm-up; linear and cosine reach --lr-end at the last "
              "update."),
    TP_NUM("lr-end", O, lr_end, 0, 1000, TP_SAVED, "Final learning rate of linear and cosine."),
    TP_INT("lr-every", O, lr_every, 1, TP_BIG, TP_SAVED,
           "Updates between the drops of --schedule step."),
    TP_NUM("lr-factor", O, lr_factor, 0, 1, TP_SAVED,
           "Factor by which each drop of --schedule step multiplies the learning rate."),
    { 0 },
};

const tp_option tp_optimizer_options[] = {
    TP_CHOICE(
        "optimizer", O, optimizer,
        "adamw|adam|sgd|qhm|adamw-vil|rmsprop|adagrad|lion|lamb|"
        "adafactor",
        TP_SAVED,
        "Update rule. qhm: quasi-hyperbolic momentum, whose average adds (1 - momentum) "
        "times each gradient. adamw-vil: AdamW with eps added before the bias correction, "
        "and weight decay applied after the update. lion: usual with --beta2 0.99 and a "
        "rate 3 to 10 times lower than adamw's. adafactor: PyTorch's, with moments of rows and "
        "columns; usual with a rate of 0.01."),
    TP_NUM("weight-decay", O, weight_decay, 0, 1000, TP_SAVED, "Weight decay."),
    TP_NUM("beta1", O, beta1, 0, 0.999999, TP_SAVED,
           "Decay of the first moment (adam, adamw, lion, lamb)."),
    TP_NUM("beta2", O, beta2, 0, 0.9999999, TP_SAVED,
           "Decay of the second moment (adam, adamw, lamb), or of lion's average."),
    TP_NUM("alpha", O, alpha, 0, 0.9999999, TP_SAVED, "rmsprop: decay of the second moment."),
    TP_FLAG("centered", O, centered, TP_SAVED,
            "rmsprop: divide by the standard deviation of the gradients."),
    TP_NUM("eps", O, eps, 0, 1, TP_SAVED, "Epsilon of adam, adamw, lamb, rmsprop and adagrad."),
    TP_NUM("momentum", O, momentum, 0, 0.999999, TP_SAVED, "Momentum of sgd, qhm and rmsprop."),
    TP_NUM("lr-decay", O, lr_decay, 0, TP_BIG, TP_SAVED,
           "adagrad: update n has the learning rate divided by 1 + (n - 1) times this."),
    TP_NUM("nu", O, nu, 0, 1, TP_SAVED,
           "qhm: weight of the average in a step; the gradient has the rest."),
    TP_FLAG("nesterov", O, nesterov, TP_SAVED, "Nesterov momentum for sgd."),
    TP_NUM("clip", O, clip, 0, TP_BIG, TP_SAVED,
           "Largest norm of the gradient, which is scaled down to it; 0: no limit."),
    TP_NUM("ema", O, ema, 0, 0.9999999, TP_SAVED,
           "Decay of the moving average of the weights, which validation and best.safetensors "
           "then use; 0: no average."),
    TP_FLAG("ema-aside", O, ema_aside, TP_SAVED,
            "Keep the average in last.safetensors only: validation and best.safetensors use the "
            "weights themselves."),
    { 0 },
};

const tp_option tp_report_options[] = {
    TP_INT("log-every", O, log_every, 1, TP_BIG, TP_FREE, "Updates between reports."),
    TP_INT("eval-every", O, eval_every, 0, TP_BIG, TP_FREE,
           "Epochs between validations, or updates if the data has no epochs; 0: only at the end "
           "of the run."),
    TP_INT("checkpoint-every", O, checkpoint_every, 0, TP_BIG, TP_FREE,
           "Updates between checkpoints, in addition to those at the end of each epoch and of the "
           "run; 0: only those."),
    TP_FLAG("report", O, report, 0,
            "Write report.html into the run's folder after each validation: a page with curves, "
            "settings, memory and time, as tp-report does."),
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
    if (!run_dir) return (tp_train_settings){ 0 };
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
                                .alpha = 0.99,
                                .log_every = 50,
                                .eval_every = 1 };
}

tp_optim *tp_train_optimizer(tp_params *P, const tp_train_settings *o, bool raw_eps,
                             tp_factor_rule rule, void *env)
{
    if (!o) {
        tp_params_raise(P, TP_E_STATE, "train_optimizer: NULL was given in place of settings");
        return NULL;
    }
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
    const tp_rmsprop_opts rmsprop = { .alpha = o->alpha,
                                      .eps = o->eps,
                                      .momentum = o->momentum,
                                      .weight_decay = o->weight_decay,
                                      .centered = o->centered,
                                      .factors = rule,
                                      .env = env };
    const tp_adagrad_opts adagrad = { .eps = o->eps,
                                      .lr_decay = o->lr_decay,
                                      .weight_decay = o->weight_decay,
                                      .factors = rule,
                                      .env = env };
    const tp_lion_opts lion = { .beta1 = o->beta1,
                                .beta2 = o->beta2,
                                .weight_decay = o->weight_decay,
                                .factors = rule,
                                .env = env };
    const tp_lamb_opts lamb = { .beta1 = o->beta1,
                                .beta2 = o->beta2,
                                .eps = o->eps,
                                .weight_decay = o->weight_decay,
                                .factors = rule,
                                .env = env };
    const tp_adafactor_opts adafactor = { .weight_decay = o->weight_decay,
                                          .factors = rule,
                                          .env = env };
    switch (o->optimizer) {
    case TP_BY_ADAFACTOR: return tp_adafactor_new(P, &adafactor);
    case TP_BY_RMSPROP: return tp_rmsprop_new(P, &rmsprop);
    case TP_BY_ADAGRAD: return tp_adagrad_new(P, &adagrad);
    case TP_BY_LAMB: return tp_lamb_new(P, &lamb);
    case TP_BY_LION: return tp_lion_new(P, &lion);
    case TP_BY_SGD: return tp_sgd_new(P, &sgd);
    case TP_BY_QHM: return tp_qhm_new(P, &qhm);
    case TP_BY_ADAM: return tp_adam_new(P, &adam);
    default: return tp_adamw_new(P, &adam);
    }
}

double tp_train_rate(const tp_train_settings *o, int64_t u, int64_t total)
{
    if (!o) return 0;
    const int64_t warmup = (int64_t)o->warmup;
    switch (o->schedule) {
    case TP_RATE_LINEAR: return tp_lr_linear(u, warmup, total, o->lr, o->lr_end);
    case TP_RATE_COSINE: return tp_lr_cosine(u, warmup, total, o->lr, o->lr_end);
    case TP_RATE_STEP: return tp_lr_step(u, warmup, o->lr_every, o->lr_factor, o->lr);
    case TP_RATE_ONECYCLE: return tp_lr_onecycle(u, total, o->lr, 0.3, 25, 1e4);
    default: return tp_lr_constant(u, warmup, o->lr);
    }
}
