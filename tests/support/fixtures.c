/* fixtures.c - finds and copies reference cases. */
#include "support/fixtures.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/device.h"

void fixture_find(const char *name, char *path, size_t size)
{
    const char *roots[] = { getenv("TAPEGRAD_FIXTURES"), TP_SOURCE_DIR "/../shared/fixtures",
                            TP_SOURCE_DIR "/tests/fixtures" };
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (!roots[i] || (i == 1 && device_is_emulated())) continue;
        snprintf(path, size, "%s/%s", roots[i], name);
        if (access(path, R_OK) == 0) return;
    }
    cr_skip_test("no reference case %s: set TAPEGRAD_FIXTURES to their folder", name);
}

tp_file *fixture_open(const char *name)
{
    char path[1024];
    fixture_find(name, path, sizeof path);
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    return F;
}

/* True if the name begins with a word. */
static bool begins_with_any(const char *name, const char *words)
{
    while (*words) {
        const size_t n = strcspn(words, " ");
        if (strncmp(name, words, n) == 0) return true;
        words += n + strspn(words + n, " ");
    }
    return false;
}

void fixture_copy_tensor(tp_file *F, tp_writer *W, const tp_file_tensor *t, const char *name)
{
    const tp_dtype dt = t->stored[0] == 'F' ? TP_F32 : TP_I64;
    void *x = malloc((size_t)t->numel * tp_dtype_size(dt) + 1);

    cr_assert(x && tp_file_read(F, t, dt, x), "%s", tp_file_why(F));
    tp_writer_add(W, name, dt, t->shape, x, true);
    free(x);
}

tp_writer *fixture_copy(tp_file *F, const char *to, const char *key, const char *value,
                        const char *left_out)
{
    tp_writer *W = tp_writer_new(to);
    const char *own, *text;

    for (int i = 0; tp_file_meta_at(F, i, &own, &text); i++) {
        if (key && strcmp(key, own) == 0) text = value;
        if (text) tp_writer_meta(W, own, text);
    }
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        if (!begins_with_any(t->name, left_out)) fixture_copy_tensor(F, W, t, t->name);
    }
    return W;
}

void fixture_commit(tp_file *F, tp_writer *W)
{
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
}
