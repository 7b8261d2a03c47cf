/* support_fixtures.c - finding the reference cases. */
#include "support_fixtures.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support_device.h"

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
