/* test_fixtures.c - the reference cases, by the table of tp-parity, on the device of the suite.
 *
 * Full-size models take half a minute of processor time in an optimised build, and run there unless
 * TAPEGRAD_FULL is 0; they want ten times that elsewhere, and run if TAPEGRAD_FULL is 1. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_device.h"
#include "support_fixtures.h"

#include "parity.h"

static bool is_case(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".safetensors") == 0;
}

static bool is_affordable(void)
{
    const char *full = getenv("TAPEGRAD_FULL");
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    return !full || strcmp(full, "0") != 0;
#else
    return full && strcmp(full, "1") == 0;
#endif
}

static void run_area(const char *area, tp_dtype compute)
{
    char folder[512], path[1024];
    struct dirent **entries;
    int cases = 0;

    fixture_find(area, folder, sizeof folder);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    const bool large = compute == TP_F32 && is_affordable() && !device_is_emulated();
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        parity p;
        if (is_case(entries[i]->d_name)) {
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
            const int result = parity_run(&p, path, D, compute, large, NULL);
            cr_expect(result <= 0, "%s in %s: %s", path, tp_dtype_name(compute), p.why);
            cases += result == 0;
        }
        free(entries[i]);
    }
    free(entries);
    tp_device_close(D);
    cr_expect(cases > 0, "%s holds no case that could be run", folder);
}

Test(fixtures, lm_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("lm", TP_F64);
}

Test(fixtures, lm_f32)
{
    run_area("lm", TP_F32);
}

Test(fixtures, lm_bf16)
{
    run_area("lm", TP_BF16);
}

Test(fixtures, lsla_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("lsla", TP_F64);
}

Test(fixtures, lsla_f32)
{
    run_area("lsla", TP_F32);
}

Test(fixtures, lsla_bf16)
{
    run_area("lsla", TP_BF16);
}

Test(fixtures, cvt_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("cvt", TP_F64);
}

Test(fixtures, cvt_f32)
{
    run_area("cvt", TP_F32);
}

Test(fixtures, cvt_bf16)
{
    run_area("cvt", TP_BF16);
}

Test(fixtures, vil_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("vil", TP_F64);
}

Test(fixtures, vil_f32)
{
    run_area("vil", TP_F32);
}
