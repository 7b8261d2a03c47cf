/* adaptations.c - low-rank adaptation by flags; how checkpoints say it. */
#include "adaptations.h"

#include <stdio.h>

void adaptation_begin(tp_params *P, const adaptation *a, const char *train)
{
    if (a->rank > 0)
        tp_lora(P, &(tp_lora_opts){ .rank = a->rank,
                                    .alpha = a->alpha,
                                    .dropout = a->dropout,
                                    .modules = a->modules,
                                    .train = train });
}

static double number(const tp_file *F, const char *key)
{
    char *end;
    const char *text = tp_file_meta(F, key);
    return text ? tp_number_read(text, &end) : 0;
}

bool adaptation_read(tp_params *P, const tp_file *F, char *why, size_t size)
{
    const double rank = number(F, "lora.rank");
    if (rank == 0) return true;
    if (!(rank >= 1 && rank <= 1 << 20)) {
        snprintf(why, size, "%s: 'lora.rank' is out of range", tp_file_path(F));
        return false;
    }
    tp_lora(P, &(tp_lora_opts){ .rank = (int64_t)rank,
                                .alpha = number(F, "lora.alpha"),
                                .modules = tp_file_meta(F, "lora.modules"),
                                .train = tp_file_meta(F, "lora.train") });
    return true;
}

bool adaptation_in(const tp_file *F)
{
    for (int i = 0; i < tp_file_count(F); i++)
        if (tp_lora_is_name(tp_file_at(F, i)->name)) return true;
    return false;
}

bool adaptation_fits(const adaptation *a, const tp_file *F, const char *merge, char *why,
                     size_t size)
{
    const double rank = number(F, "lora.rank"), given = number(F, "lora.alpha"),
                 alpha = given > 0 ? given : rank, own = a->alpha > 0 ? a->alpha : (double)a->rank;
    if (!adaptation_in(F)) return true;
    if (a->rank == 0)
        snprintf(why, size,
                 "%s has adaptations: add them to its weights with '%s', or train them on with "
                 "--lora %g --lora-alpha %g",
                 tp_file_path(F), merge, rank, alpha);
    else if (rank > 0 && (rank != (double)a->rank || alpha != own))
        snprintf(why, size,
                 "%s has adaptations of rank %g and alpha %g, not --lora %lld --lora-alpha %g; "
                 "give the same, or add them to its weights with '%s'",
                 tp_file_path(F), rank, alpha, (long long)a->rank, own, merge);
    else
        return true;
    return false;
}

void adaptation_write(const adaptation *a, const char *train, tp_writer *W)
{
    if (a->rank == 0) return;
    tp_writer_meta_int(W, "lora.rank", a->rank);
    tp_writer_meta_num(W, "lora.alpha", a->alpha);
    if (a->modules) tp_writer_meta(W, "lora.modules", a->modules);
    if (train) tp_writer_meta(W, "lora.train", train);
}

void adaptation_say(tp_run *R, const adaptation *a)
{
    int64_t trained = 0;
    if (a->rank == 0) return;
    for (tp_param_info it = { 0 }; tp_next_param(R->P, &it);)
        if (!it.alias_of && !it.buffer && !it.frozen) trained += tp_numel(it.tensor);
    tp_run_note_int(R, "trained_parameters", trained);
    tp_run_say(R, "adaptations of rank %lld to %d modules: %lld parameters are trained",
               (long long)a->rank, tp_lora_count(R->P), (long long)trained);
}

void adaptation_save(tp_run *R, const adaptation *a)
{
    char path[4400];
    if (a->rank == 0 || R->rank != 0) return;
    if (!tp_lora_save(R->P, tp_run_path(R, "adapter.safetensors", path, sizeof path)))
        tp_run_fail(R, "%s", tp_params_why(R->P));
}
