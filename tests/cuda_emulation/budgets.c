/* budgets.c - files of budgets and of known fallbacks: words separated by blanks, # begins a
 * comment. */
#include "budgets.h"

#include <string.h>

/* ---- tallies ---- */

static void add(tally *t, const char *name, uint64_t calls)
{
    int i = 0;
    while (i < t->n && strcmp(t->at[i].name, name) != 0) i++;
    if (i == MOST_KERNELS) return;
    if (i == t->n) snprintf(t->at[t->n++].name, KERNEL_NAME, "%s", name);
    t->at[i].calls += calls;
}

static uint64_t calls_of(const tally *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->at[i].name, name) == 0) return t->at[i].calls;
    return 0;
}

const char *tally_name(const count_line *l, char text[KERNEL_NAME])
{
    static const char *const kinds[COUNT_KINDS] = { "",     "product", "upload",     "download",
                                                    "copy", "fill",    "allocation", "release",
                                                    "wait", "launch" };
    if (l->kind == COUNT_PRODUCT && strstr(l->name, " f32"))
        snprintf(text, KERNEL_NAME, "f32_product");
    else if (l->kind == COUNT_KERNEL)
        snprintf(text, KERNEL_NAME, "%.*s", (int)strcspn(l->name, "<"), l->name);
    else
        snprintf(text, KERNEL_NAME, "%s", kinds[l->kind]);
    return text;
}

tally tally_of(const count_line *lines, size_t n)
{
    char name[KERNEL_NAME];
    tally t = { 0 };
    for (size_t i = 0; i < n; i++) add(&t, tally_name(&lines[i], name), lines[i].calls);
    return t;
}

static uint64_t sum_of(const tally *t)
{
    uint64_t sum = 0;
    for (int i = 0; i < t->n; i++) sum += t->at[i].calls;
    return sum;
}

/* ---- budgets ---- */

/* What a file says of a model; lines without a number count as one call. */
static tally read_tally(const char *file, const char *model)
{
    char line[256], of[KERNEL_NAME], kernel[KERNEL_NAME];
    tally t = { 0 };
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long calls = 1;
        if (*line != '#' && sscanf(line, "%79s %79s %llu", of, kernel, &calls) >= 2 &&
            strcmp(of, model) == 0)
            add(&t, kernel, calls);
    }
    if (f) fclose(f);
    return t;
}

bool budget_keeps(const char *file, const char *model, const tally *t)
{
    const tally budget = read_tally(file, model);
    const uint64_t now = sum_of(t), most = sum_of(&budget);
    if (now < most)
        printf("%s: %llu calls in a step, %llu fewer than its budget\n", model,
               (unsigned long long)now, (unsigned long long)(most - now));
    if (now <= most) return true;
    printf("%s: %llu calls in a step, its budget is %llu\n", model, (unsigned long long)now,
           (unsigned long long)most);
    for (int i = 0; i < t->n; i++) {
        const uint64_t old = calls_of(&budget, t->at[i].name);
        if (t->at[i].calls > old)
            printf("  %-32s %5llu calls, before %llu\n", t->at[i].name,
                   (unsigned long long)t->at[i].calls, (unsigned long long)old);
    }
    return false;
}

void budget_write(FILE *f, const char *model, const tally *t)
{
    for (int i = 0; i < t->n; i++)
        fprintf(f, "%-16s %-32s %5llu\n", model, t->at[i].name, (unsigned long long)t->at[i].calls);
}

/* ---- fallbacks ---- */

bool is_fallback(const char *name)
{
    /* Kernels that compute no products of tiles: row sums, sums of parts, biases, orders. */
    static const char *const helpers[] = {
        "attn_f32_delta",   "sum_parts",        "win_delta",       "win_clear_queries",
        "ls_dots_kernel",   "ls_weigh_kernel",  "ls_sums_kernel",  "lsla_grad_slices",
        "lsla_grad_scale",  "lsla_grad_table",  "lin_join_kernel", "lin_add_tops",
        "lin_shift_kernel", "lin_widen_kernel", "lsh_hash_kernel", "lsh_order_kernel",
        "lsh_prepare",      "lsh_round_off",    "lsh_round_grad",  "lsh_join_grads"
    };
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++)
        if (strcmp(name, helpers[i]) == 0) return false;
    return !strstr(name, "mma") && strncmp(name, "tp_", 3) != 0; /* tp_: of cuda/kit */
}

void fallbacks_write(FILE *f, const char *model, const tally *attention)
{
    for (int i = 0; i < attention->n; i++)
        if (is_fallback(attention->at[i].name))
            fprintf(f, "%-24s %s\n", model, attention->at[i].name);
}

bool fallbacks_known(const char *file, const char *model, const tally *attention)
{
    const tally known = read_tally(file, model);
    bool all = true;
    for (int i = 0; i < attention->n; i++) {
        const char *name = attention->at[i].name;
        if (!is_fallback(name) || calls_of(&known, name)) continue;
        printf("%s falls back to %s\n", model, name);
        all = false;
    }
    for (int i = 0; i < known.n; i++)
        if (!calls_of(attention, known.at[i].name))
            printf("%s no longer falls back to %s: delete this line\n", model, known.at[i].name);
    return all;
}
