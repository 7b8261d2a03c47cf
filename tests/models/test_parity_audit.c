/* test_parity_audit.c - the audit of reference cases finds the keys without effect and compares
 * them with the case's list `inert`. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/fixtures.h"
#include "support/folder.h"

#include "parity.h"

#define FOLDER TP_SOURCE_DIR "/tests/fixtures/"

/* Audits a case whose `inert` lists the keys without effect. Returns the number of changes tried,
 * all if `out` is not stderr. */
static int expect_inert_keys(tp_device *D, const char *path, FILE *out)
{
    parity_audit a;
    const bool ran = parity_audit_run(&a, path, D, out != stderr, out);
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_meta(F, "inert"), "%s: the metadata lack 'inert'", path);
    cr_expect(ran, "%s: %s", path, a.why);
    cr_expect(a.wrong == 0, "%s: inert is wrong about %d keys", path, a.wrong);
    tp_file_close(F);
    return a.changes;
}

/* The keys without effect are those in the cases' lists. */
Test(parity_audit, keys_without_effect)
{
    static const char *const cases[] = {
        "lm/attn_r2_bias_window_lt_chunk",
        "lm/attnopt_paper",
        "lm/block_postln_relu",
        "lm/model_r2_mem_gt_segment",
        "lm/txl_attn_preln_samelen",
        "lm/data_enwik8_style",
        "cvt/conv_proj_dwbn_s2_train",
        "cvt/cvt_block_nocls_train",
        "cvt/cvtls_attn_rawcls_eval",
        "lsla/op_qxx_fixed_inner1_outer0",
        "lsla/shift_qkv_w4",
        "lsla/stem_train",
        "lsla/recipe_lr_ip102",
        "lsla/recipe_mix",
        "lsla/aug_image_ops",
        "vil/linformer_separate_g0",
        "vil/ls_w3_r2_g1_norpb_nobias",
        "vil/optim_adamw",
        "vil/patchembed_ape_g2",
        "vil/vilattn_shift6_cyclic_pad_rpb_g2",
    };
    device_cpu_only();
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    FILE *out = tmpfile();
    cr_assert(out);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[1024];
        snprintf(path, sizeof path, FOLDER "%s.safetensors", cases[i]);
        const int changes = expect_inert_keys(D, path, out);
        cr_expect(changes > 10, "%s: only %d changes", cases[i], changes);
    }
    fclose(out);
    tp_device_close(D);
}

/* The same for all other cases except full-size ones, which take minutes: tp-parity --audit. */
Test(parity_audit, all_areas)
{
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__)
    cr_skip_test("audits of all cases take minutes in this build");
#endif
    static const char *const areas[] = { "cvt",  "image_baselines", "lm",  "lra",
                                         "lsla", "roberta",         "vil", "window_baselines" };
    device_cpu_only();
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
        char path[1024];
        int cases = 0;
        snprintf(path, sizeof path, FOLDER "%s", areas[i]);
        DIR *d = opendir(path);
        cr_assert(d, "%s", path);
        for (const struct dirent *e; (e = readdir(d));) {
            if (!strstr(e->d_name, ".safetensors") || strncmp(e->d_name, "full_", 5) == 0) continue;
            snprintf(path, sizeof path, FOLDER "%s/%s", areas[i], e->d_name);
            expect_inert_keys(D, path, stderr);
            cases++;
        }
        closedir(d);
        cr_expect(cases > 2, "%s holds %d cases", areas[i], cases);
    }
    tp_device_close(D);
}

/* Audits a copy of a case and returns what was printed, to be freed. */
static char *audit_copy(const char *file, const parity_change *c, const char *left_out, bool *ran,
                        parity_audit *a)
{
    const char *copy = in_folder("case.safetensors");
    char path[1024], *text = calloc(4096, 1);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    FILE *out = tmpfile();
    cr_assert(text && out);
    snprintf(path, sizeof path, FOLDER "%s.safetensors", file);
    tp_file *F = tp_file_open(path);
    fixture_commit(F, fixture_copy(F, copy, c ? c->key : NULL, c ? c->value : NULL, left_out));
    *ran = parity_audit_run(a, copy, D, false, out);
    rewind(out);
    text[fread(text, 1, 4095, out)] = '\0';
    fclose(out);
    tp_device_close(D);
    return text;
}

/* A list is wrong if it omits a key without effect or has a key whose change is noticed. Without a
 * list nothing is wrong. */
Test(parity_audit, compares_with_the_list, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        const char *list;
        int wrong;
        const char *found;
    } cases[] = {
        { "mode", 0, "" },
        { "mode dropout", 0, "" }, /* the library only supports 0 */
        { "", 1, "mode: no change of 'train' makes a difference, but inert lacks it\n" },
        { "use_bias mode", 1, "use_bias: inert lists it, but '0' -> '1' is noticed\n" },
        { "mode B", 1, "B: inert lists it, but '2' -> '3' is noticed\n" },
        { "kind", 2, "kind: inert lists it, but 'lm.attention' -> 'lm.block' is noticed\n" },
        { NULL, 0, "mode: no change of 'train' makes a difference\n" },
    };
    device_cpu_only();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *list = cases[i].list ? cases[i].list : "none";
        bool ran;
        parity_audit a;
        char *text = audit_copy("lm/attn_r1_basic", &(parity_change){ "inert", cases[i].list }, "",
                                &ran, &a);
        cr_expect(ran, "%s: %s", list, a.why);
        cr_expect(a.inert == 1 && a.wrong == cases[i].wrong, "%s: %d without effect, %d wrong",
                  list, a.inert, a.wrong);
        cr_expect(strstr(text, cases[i].found), "%s: not reported: %s", list, cases[i].found);
        cr_expect(*cases[i].found || !*text, "%s: %s", list, text);
        free(text);
    }
}

/* A list may only name settings: no missing keys, and none that configure nothing. */
Test(parity_audit, refuses_other_names, .init = make_folder, .fini = remove_folder)
{
    static const char *const lists[][2] = { { "mode heads", "heads" },
                                            { "note mode", "note" },
                                            { "mode inert", "inert" } };
    device_cpu_only();
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        bool ran;
        parity_audit a;
        char why[128], *text = audit_copy("lm/attn_r1_basic",
                                          &(parity_change){ "inert", lists[i][0] }, "", &ran, &a);
        snprintf(why, sizeof why, "metadata inert names '%s', which is not a setting", lists[i][1]);
        cr_expect(!ran && strstr(a.why, why), "%s: %s", lists[i][0], a.why);
        free(text);
    }
}

/* A value of an effective key and its neighbours may have no effect; the list omits the key. */
Test(parity_audit, values_without_effect, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        const char *file;
        parity_change change;
    } cases[] = {
        { "lm/attn_r1_basic", { "clamp_len", "8" } },
        { "lm/attn_r1_basic", { "cpos_clamp_len", "8" } },
        { "lm/attnopt_segment_window", { "clamp_len", "16" } },
        { "lm/attnopt_masked_no_cache", { "cpos_clamp_len", "20" } },
        { "lm/trace_ls_adam", { "clip_norm", "1000" } },
    };
    device_cpu_only();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const parity_change *c = &cases[i].change;
        bool ran;
        parity_audit a;
        char found[128], *text = audit_copy(cases[i].file, c, "", &ran, &a);
        snprintf(found, sizeof found,
                 "%s: no change of '%s' makes a difference, but inert lacks it", c->key, c->value);
        cr_expect(ran, "%s: %s", cases[i].file, a.why);
        cr_expect(a.wrong == 1 && strstr(text, found), "%s with %s = %s: %d wrong, %s",
                  cases[i].file, c->key, c->value, a.wrong, text);
        free(text);
    }
}

/* Options whose outputs are not stored are reported; a failing case is not audited. */
Test(parity_audit, reports, .init = make_folder, .fini = remove_folder)
{
    static const char *const found[] = {
        "outer: no change of '0' makes a difference, but inert lacks it\n",
        "scale: no change of 'fixed' makes a difference, but inert lacks it\n",
    };
    static const char file[] = "lsla/op_qxx_fixed_inner1_outer0";
    bool ran;
    parity_audit a;

    device_cpu_only();
    char *text = audit_copy(file, NULL, "output.y output.attn grad input.probe", &ran, &a);
    cr_expect(ran, "%s", a.why);
    cr_expect(a.wrong == 2, "%d keys are wrong", a.wrong);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        cr_expect(strstr(text, found[i]), "not reported: %s", found[i]);
    free(text);

    text = audit_copy(file, NULL, "input.x", &ran, &a);
    cr_expect(!ran, "a case without input is audited");
    cr_expect(strstr(a.why, "the file has no tensor input.x"), "%s", a.why);
    free(text);
}
