/* parity_meta.c - the metadata of a case: typed, checked, and marked as read.
 *
 * An invalid value fails the case with a message; the getter then returns the default or a harmless
 * value. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity_case.h"

/* ---- prose ---- */

/* Keys that configure nothing, according to the cases' README. A final '*' matches any characters,
 * a final '#' a number. */
#define ENCODERS                                                                                   \
    "op cls mask global tied slice zero_gradient no_gradient kernel perf chunk buckets "           \
    "num_buckets inv_coeff_init_option"
#define BASELINES "model lam mode_ ln_eps ln_eps_sr arg.* mask"
static const struct {
    const char *kind; /* prefix of the kinds; "": all kinds */
    const char *keys;
} prose[] = {
    { "", "what case upstream source note note_* loss meaning layout tokens cache memory init" },
    { "", "fill input weights config buffers logits_train precision dtype reference* softmax" },
    { "", "key_max reduced_map targets stageK_norm item# float32_* inert" },
    { "lra.", ENCODERS },
    { "lra.", "optimizer batches final shared parameters task" },
    { "roberta.", ENCODERS },
    { "roberta.", "window one_sided parameters" },
    { "roberta.longformer_attention", "attention" },
    { "image_baselines.", BASELINES },
    { "window_baselines.", BASELINES },
    { "detection.",
      "sizes aspect_ratios weights bbox_reg_weights top_block backbone cfg sampling" },
    { "detection.", "masks proposals loss_normalizer image thr# unused_params_not_stored" },
    { "detection.", "no_grad_params backbone_upstream" },
    { "detection.maskrcnn", "post_nms_topk" },
};

/* True if the pattern of n characters matches the key. */
static bool matches(const char *word, size_t n, const char *key)
{
    const char last = word[n - 1];
    const size_t stem = last == '*' || last == '#' ? n - 1 : n;

    if (strncmp(key, word, stem) != 0) return false;
    key += stem;
    if (last == '*') return true;
    if (last == '#') return *key && key[strspn(key, "0123456789")] == '\0';
    return !*key;
}

bool par_is_prose(const parity *p, const char *key)
{
    const char *kind = p->kind ? p->kind->kind : "";

    if (strncmp(kind, "detection.", 10) == 0 && strpbrk(key, " ([")) return true;
    for (size_t i = 0; i < sizeof prose / sizeof *prose; i++) {
        if (strncmp(kind, prose[i].kind, strlen(prose[i].kind)) != 0) continue;
        for (const char *word = prose[i].keys; *word; word += strspn(word, " ")) {
            const size_t n = strcspn(word, " ");
            if (matches(word, n, key)) return true;
            word += n;
        }
    }
    return false;
}

/* ---- values ---- */

static par_key *find(const parity *p, const char *key)
{
    for (int i = 0; i < p->keys; i++)
        if (strcmp(p->key[i].key, key) == 0) return &p->key[i];
    return NULL;
}

bool par_given(const parity *p, const char *key)
{
    return find(p, key) != NULL;
}

/* The value, marked as read in that form. NULL if it is missing, which fails if it is needed. */
static const char *get(parity *p, const char *key, par_form form, bool needed)
{
    par_key *k = find(p, key);

    if (!k) {
        if (needed) par_fail(p, "the metadata lack '%s'", key);
        return NULL;
    }
    k->read = true;
    k->form = form;
    return k->value;
}

const char *par_text(parity *p, const char *key)
{
    return get(p, key, PAR_TEXT, false);
}

const char *par_model_name(parity *p)
{
    return get(p, par_given(p, "preset") ? "preset" : "model", PAR_MODEL, false);
}

/* Parses the number at the start of `text`, which must be followed by one of the characters `ends`
 * or by the end of the text; *rest is what follows. */
static bool to_number(const char *text, const char *ends, double *x, const char **rest)
{
    char *end;
    *x = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*x) && (!*end || strchr(ends, *end));
}

int64_t par_int(parity *p, const char *key, int64_t dflt, int64_t least, int64_t most)
{
    const char *text = get(p, key, PAR_NUMBERS, dflt == PAR_NEEDED);
    char *end = NULL;

    if (!text) return dflt == PAR_NEEDED ? least : dflt;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (end != text && !*end && errno == 0 && x >= least && x <= most) return x;
    par_illegal(p, "metadata %s = '%.40s' is not a whole number from %lld to %lld", key, text,
                (long long)least, (long long)most);
    return dflt >= least && dflt <= most ? dflt : least;
}

int64_t par_size(parity *p, const char *key, int64_t dflt)
{
    return par_int(p, key, dflt, 1, INT32_MAX);
}

int64_t par_count(parity *p, const char *key, int64_t dflt)
{
    return par_int(p, key, dflt, 0, INT32_MAX);
}

bool par_flag(parity *p, const char *key, bool dflt)
{
    const char *text = get(p, key, PAR_FLAG, false);

    if (!text) return dflt;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        par_illegal(p, "metadata %s = '%.40s' is neither 0 nor 1", key, text);
    return text[0] == '1';
}

double par_num(parity *p, const char *key, double dflt)
{
    const char *text = get(p, key, PAR_NUMBERS, dflt == PAR_NEEDED), *rest;
    double x;

    if (!text) return dflt;
    if (to_number(text, "", &x, &rest)) return x;
    par_illegal(p, "metadata %s = '%.40s' is not a number", key, text);
    return dflt;
}

int par_word(parity *p, const char *key, int dflt, const char *const *words)
{
    const char *text = get(p, key, PAR_WORD, dflt == PAR_NEEDED);
    char legal[256] = "";
    size_t used = 0;

    if (!text) return dflt == PAR_NEEDED ? 0 : dflt;
    find(p, key)->words = words;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) return i;
        if (used < sizeof legal)
            used += (size_t)snprintf(legal + used, sizeof legal - used, "%s%s", i ? ", " : "",
                                     words[i]);
    }
    par_illegal(p,
                words[1] ? "metadata %s = '%.40s' is not one of %s"
                         : "metadata %s = '%.40s': the library only supports %s",
                key, text, legal);
    return 0;
}

/* ---- lists ---- */

const double *par_list(parity *p, const char *key, int64_t *n)
{
    const char *text = get(p, key, PAR_NUMBERS, false), *s = text ? text : "";
    double *x = par_alloc(p, (int64_t)strlen(s) + 1, sizeof *x);
    static const double none[1];
    bool good = x && (!text || *text);

    *n = 0;
    while (good && *s) {
        good = to_number(s, ",", &x[*n], &s) && (*s != ',' || s[1]);
        *n += good;
        s += *s == ',';
    }
    if (good) return x;
    par_illegal(p, "metadata %s = '%.80s' is not a list of numbers", key, text ? text : "");
    *n = 0;
    return none;
}

const int64_t *par_sizes(parity *p, const char *key, int64_t least, int64_t *n)
{
    const double *x = par_list(p, key, n);
    int64_t *size = par_alloc(p, *n, sizeof *size);
    static const int64_t none[1];

    for (int64_t i = 0; size && i < *n; i++) {
        size[i] = x[i] >= (double)least && x[i] <= INT32_MAX ? (int64_t)x[i] : least;
        if ((double)size[i] != x[i])
            par_illegal(p, "metadata %s: %g is not a whole number from %lld to %d", key, x[i],
                        (long long)least, INT32_MAX);
    }
    return size ? size : none;
}

void par_stages(parity *p, const char *key, int64_t least, int most, int64_t *x, int *n)
{
    int64_t count;
    const int64_t *given = par_sizes(p, key, least, &count);
    if (count < 1 || count > most)
        par_illegal(p, "metadata %s: %lld numbers, not 1 to %d", key, (long long)count, most);
    else if (*n != 0 && count != *n)
        par_illegal(p, "metadata %s: %lld numbers for %d stages", key, (long long)count, *n);
    for (int64_t i = 0; i < count && i < most; i++) x[i] = given[i];
    *n = (int)count;
}

void par_stage_ints(parity *p, const char *key, int least, int most, int *x, int *n)
{
    int64_t *all = par_alloc(p, most, sizeof *all);
    if (!all) return;
    par_stages(p, key, least, most, all, n);
    for (int i = 0; i < *n && i < most; i++) x[i] = (int)all[i];
}

void par_sides(parity *p, const char *key, int64_t sides[2])
{
    int64_t n;
    const int64_t *x = par_sizes(p, key, 1, &n);
    if (n != 2) par_illegal(p, "metadata %s must be a height and a width", key);
    for (int i = 0; i < 2; i++) sides[i] = n == 2 ? x[i] : 1;
}

void par_square(parity *p, const char *key, int64_t sides[2])
{
    int64_t n;
    const int64_t *x = par_sizes(p, key, 1, &n);
    if (n == 1)
        sides[0] = sides[1] = x[0];
    else
        par_sides(p, key, sides);
}

const char *par_next_name(parity *p, const char *key, const char **at)
{
    const char *list = get(p, key, PAR_NAMES, false);

    if (!*at) *at = list ? list : "";
    *at += strspn(*at, " ");
    const size_t n = strcspn(*at, " ");
    const char *name = n ? par_name(p, "%.*s", (int)n, *at) : NULL;
    *at += n;
    return name;
}

bool par_names(parity *p, const char *key, const char *name)
{
    const char *list = get(p, key, PAR_NAMES, false);
    const size_t n = strlen(name);

    for (const char *at = list; at && (at = strstr(at, name)); at++)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* ---- JSON ---- */

json_t *par_json(parity *p, const char *key)
{
    const char *text = get(p, key, PAR_JSON, false);
    json_error_t error;
    json_t *object = json_loads(text ? text : "{}", JSON_REJECT_DUPLICATES, &error);

    if (!json_is_object(object)) {
        par_illegal(p, "metadata %s = '%.80s' is not a JSON object: %s", key, text,
                    object ? "" : error.text);
        json_decref(object);
        return NULL;
    }
    if (!p->json) p->json = json_object();
    if (json_object_set_new(p->json, key, object) == 0) return object;
    par_fail(p, "metadata %s: out of memory", key);
    return NULL;
}

double par_json_num(parity *p, const char *key, json_t *object, const char *member, double dflt)
{
    const json_t *x = json_object_get(object, member);

    if (!x) return dflt;
    if (!json_is_number(x)) par_illegal(p, "metadata %s: %s is not a number", key, member);
    const double value = json_number_value(x);
    json_object_del(object, member);
    return value;
}

/* All numbers of a list of lists, one after the other; false: it is no such list, or the lists
 * differ in length. */
static bool read_nested(const json_t *rows, double *x, int64_t columns)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if ((int64_t)json_array_size(row) != columns || columns < 1) return false;
        for (size_t k = 0; k < (size_t)columns; k++) {
            const json_t *number = json_array_get(row, k);
            if (!json_is_number(number)) return false;
            *x++ = json_number_value(number);
        }
    }
    return true;
}

const double *par_nested(parity *p, const char *key, int64_t *rows, int64_t *columns)
{
    static const double none[1];
    const char *text = get(p, key, PAR_JSON, true);
    json_t *list = json_loads(text ? text : "", 0, NULL);
    *rows = (int64_t)json_array_size(list);
    *columns = (int64_t)json_array_size(json_array_get(list, 0));
    double *x = par_alloc(p, *rows * *columns, sizeof *x);
    const bool good = x && *rows > 0 && read_nested(list, x, *columns);
    json_decref(list);
    if (good) return x;
    par_illegal(p, "metadata %s = '%.80s' is not a list of equally long lists of numbers", key,
                text ? text : "");
    *rows = *columns = 0;
    return none;
}

/* ---- comparing with the actual values ---- */

void par_same(parity *p, const char *key, int64_t actual)
{
    if (par_given(p, key) && par_int(p, key, actual, INT64_MIN, INT64_MAX) != actual)
        par_fail(p, "metadata %s = '%.40s': the case's tensors say %lld", key, find(p, key)->value,
                 (long long)actual);
}

void par_fixed(parity *p, const char *key, double actual)
{
    const double x = par_num(p, key, actual);
    if (fabs(x - actual) > 4.0 * DBL_EPSILON * fabs(actual))
        par_illegal(p, "metadata %s = %g: the library only supports %g", key, x, actual);
}
