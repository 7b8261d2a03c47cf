/* test_model_members.c - configuration members set by name: every member of every row accepts the
 * text of its value, and impossible texts are refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vision.h>

static tp_model_cfg preset(const char *name)
{
    tp_model_cfg c;
    char why[512] = "";
    cr_assert(tp_model_preset(&c, name, why, sizeof why), "%s: %s", name, why);
    cr_assert(c.model, "%s", name);
    return c;
}

/* Every member accepts its value's text, separately and with all others. */
Test(model_members, members_take_their_own_text)
{
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++) {
        const tp_model_cfg c = preset(row->name);
        char all[4096] = "", why[512];
        for (const tp_model_member *m = c.model->members; m->kind != TP_MEMBER_END; m++) {
            char value[512], type[256];
            const size_t used = strlen(all);
            tp_model_cfg same = c;
            if (m->kind == TP_MEMBER_HIDDEN) continue;
            tp_model_member_get(m, &c.at, value, sizeof value);
            tp_model_member_type(m, type, sizeof type);
            cr_expect(type[0], "%s: %s has no type", row->name, m->key);
            snprintf(all + used, sizeof all - used, "%s%s=%s", used ? "," : "", m->key, value);
            cr_expect(tp_model_change(&same, all + used + (used > 0), NULL, why, sizeof why),
                      "%s: %s", row->name, why);
            cr_expect(memcmp(&same, &c, sizeof c) == 0, "%s: %s", row->name, all + used);
        }
        tp_model_cfg same = c;
        cr_expect(tp_model_change(&same, all, NULL, why, sizeof why), "%s: %s", all, why);
        cr_expect(memcmp(&same, &c, sizeof c) == 0, "%s: %s", row->name, all);
    }
}

Test(model_members, changes_by_name)
{
    static const char *const set_by[TP_COMMON_KINDS] = {
        [TP_COMMON_IMAGE] = "--size", [TP_COMMON_DROP_PATH] = "--drop-path"
    };
    static const struct {
        const char *model, *text, *why;
    } bad[] = {
        { "swin-t", "depths", "'depths' is not KEY=VALUE" },
        { "swin-t", "", "'' is not KEY=VALUE" },
        { "swin-t", "=3", "'=3' is not KEY=VALUE" },
        { "swin-t", "4,depths=1,1,1,1", "'4' is not KEY=VALUE" },
        { "swin-t", "depth=1", "'depth' is no member of swin; did you mean 'depths'?" },
        { "swin-t", "qqq=1", "'qqq' is no member of swin; tp-models --members NAME lists them" },
        { "swin-t", "mlp_ratio=wide", "mlp_ratio = 'wide' is not a finite number" },
        { "swin-t", "mlp_ratio=inf", "mlp_ratio = 'inf' is not a finite number" },
        { "swin-t", "dim=96x", "dim = '96x' is not a whole number" },
        { "swin-t", "dim=", "dim = '' is not a whole number" },
        { "swin-t", "ape=2", "ape = 2 is out of range" },
        { "swin-t", "window=129", "window = 129 must be 1 to 128" },
        { "swin-t", "depths=1,0,1,1", "depths = 1,0,1,1: each must be 1 to 128" },
        { "lra-text-ls", "dropout_prob=1", "dropout_prob must be in [0,1), not 1" },
        { "swin-t", "depths=1,2", "depths has 2 numbers for 4 stages" },
        { "swin-t", "depths=1,2,heads=3,6,12", "heads has 3 numbers for 2 stages" },
        { "swin-t", "depths=1,,2,2", "is not a list of at most" },
        { "swin-t", "window=5", "a map of 56 x 56 does not divide into windows of 5" },
        { "swin-t", "image=448,448", "image is set by --size" },
        { "swin-t", "drop_path=0.3", "drop_path is set by --drop-path" },
        { "vil-tiny-rpb", "image_height=64", "image_height is set by --size" },
        { "vil-tiny-rpb", "edge=open",
          "edge = 'open' is not known: it is neither 'mask' nor 'exact'" },
        { "vil-tiny-rpb", "arch=l1,q3", "" },
    };
    char why[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_model_cfg c = preset(bad[i].model);
        const tp_model_cfg before = c;
        cr_expect(!tp_model_change(&c, bad[i].text, set_by, why, sizeof why) &&
                      strstr(why, bad[i].why) && why[0],
                  "%s: %s", bad[i].text, why);
        cr_expect(memcmp(&c, &before, sizeof c) == 0, "%s changes nothing", bad[i].text);
    }
    tp_model_cfg c = preset("swin-t");
    const tp_swin_cfg *s = (const tp_swin_cfg *)&c.at;
    cr_expect(tp_model_change(&c, "depths=1,2,1,1,mlp_ratio=2.5,ape=1", set_by, why, sizeof why),
              "%s", why);
    cr_expect(s->depths[1] == 2 && s->stages == 4 && s->mlp_ratio == 2.5 && s->ape);
    cr_expect(tp_model_change(&c, "depths=1,2,heads=3,6", set_by, why, sizeof why), "%s", why);
    cr_expect(s->stages == 2 && s->heads[1] == 6);
    cr_expect(s->depths[2] == 0 && s->heads[3] == 0, "equal models have equal unused entries");
}

/* Integers just outside the range are refused; the type names both limits. */
Test(model_members, ranges)
{
    const tp_model *before = NULL;
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); before = tp_model_of(row), i++) {
        if (tp_model_of(row) == before) continue;
        const tp_model_cfg c = preset(row->name);
        int ranges = 0;
        for (const tp_model_member *m = c.model->members; m->kind != TP_MEMBER_END; m++) {
            if (m->kind != TP_MEMBER_INT && m->kind != TP_MEMBER_INT64) continue;
            if (m->least == 0 && m->most == 0) continue;
            char range[64], type[128], text[128], why[512];
            ranges++;
            snprintf(range, sizeof range, "%lld to %lld", (long long)m->least, (long long)m->most);
            tp_model_member_type(m, type, sizeof type);
            cr_expect(strstr(type, range), "%s: %s: %s", row->name, m->key, type);
            for (int above = 0; above < 2; above++) {
                const long long x = above ? (long long)m->most + 1 : (long long)m->least - 1;
                tp_model_cfg changed = c;
                snprintf(text, sizeof text, "%s=%lld", m->key, x);
                cr_expect(!tp_model_change(&changed, text, NULL, why, sizeof why) &&
                              strstr(why, range) && strstr(why, m->key),
                          "%s: %s: %s", row->name, text, why);
            }
        }
        cr_expect(ranges > 0, "%s has no ranges", row->name);
    }
}
