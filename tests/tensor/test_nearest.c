/* test_nearest.c - the name suggested for a mistyped one, or none if none is near. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/nearest.h>

static const char flags[] =
    "layers length lr lr-end log-every batch eval-every size preset same-length";
static const char models[] = "cvt-13-224 cvt-13 CvT-13 cvt_ls-13-224 vil-tiny-rpb vil-small tiny";

Test(nearest, names)
{
    static const struct {
        const char *names, *typed, *nearest;
    } cases[] = {
        { flags, "layrs", "layers" },   /* a letter is missing    */
        { flags, "llayers", "layers" }, /* doubled            */
        { flags, "lxyers", "layers" },  /* wrong                  */
        { flags, "lyaers", "layers" },  /* swapped              */
        { flags, "lenght", "length" },  /* not same-length        */
        { flags, "rl", "lr" },          /* even if all are short */
        { flags, "l", "lr" },
        { flags, "LAYERS", "layers" },         /* case                   */
        { flags, "eval_every", "eval-every" }, /* _ for -               */
        { flags, "batch-size", "batch" },      /* a shared word          */
        { flags, "image-size", "size" },
        { flags, "eval-interval", "eval-every" },
        { flags, "log", "log-every" },
        { flags, "pres", "preset" }, /* the beginning          */
        { flags, "workers", "" },    /* too far                */
        { flags, "lx-xyz", "" },     /* words of two letters may be shared by chance */
        { flags, "x", "" },
        { flags, "", "" },
        { models, "cvt13", "cvt-13" },
        { models, "CVT-13", "cvt-13" }, /* first of equals    */
        { models, "cvt-ls-13-224", "cvt_ls-13-224" },
        { models, "vil-tiny-rbp", "vil-tiny-rpb" },
        { models, "resnet-tiny", "tiny" },
        { models, "resnet-50", "" },
        { "f32|f64|bf16", "fp32", "f32" },
        { "f32|f64|bf16", "fb16", "bf16" },
        { "f32|f64|bf16", "double", "" },
        { "", "double", "" },
        { " | ||", "", "" },
        { NULL, "double", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_nearest n = tp_nearest_to(cases[i].typed);
        tp_nearest_try(&n, cases[i].names);
        cr_expect_str_eq(n.name, cases[i].nearest, "'%s': '%s', not '%s'", cases[i].typed, n.name,
                         cases[i].nearest);
    }
}

/* Names from several lists compete. */
Test(nearest, several_lists)
{
    tp_nearest n = tp_nearest_to("lenght");
    tp_nearest_try(&n, "same-length");
    cr_expect_str_eq(n.name, "");
    tp_nearest_try(&n, "lengths");
    cr_expect_str_eq(n.name, "lengths");
    tp_nearest_try(&n, "length");
    cr_expect_str_eq(n.name, "length");
    tp_nearest_try(&n, "lengthy");
    cr_expect_str_eq(n.name, "length");
}

Test(nearest, long_names)
{
    char longest[64], longer[65], huge[5000];
    memset(longest, 'a', 63), longest[63] = '\0';
    memset(longer, 'a', 64), longer[64] = '\0';
    memset(huge, 'a', sizeof huge - 1), huge[sizeof huge - 1] = '\0';
    tp_nearest n = tp_nearest_to(longest);
    tp_nearest_try(&n, longer);
    tp_nearest_try(&n, huge);
    cr_expect_str_eq(n.name, "", "a name that has no room is left out");
    tp_nearest_try(&n, longest);
    cr_expect_str_eq(n.name, longest);
    n = tp_nearest_to(huge);
    tp_nearest_try(&n, longest);
    cr_expect_str_eq(n.name, "");
}
