/* bpe_read.c - reads vocabularies: JSON objects (tokens to ids), merges, and fairseq's dict.txt. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include <tapegrad/file.h>

/* Parses a JSON object; NULL: X has failed. */
static json_t *parse(tp_bpe *X, tp_bpe_source s)
{
    json_error_t e;
    bool starved;
    json_t *root = tp_json_parse(s.text, strlen(s.text), JSON_REJECT_DUPLICATES, &e, &starved);
    if (starved) tp__fail(X, "%.500s: out of memory", s.file);
    if (!root)
        tp__fail(X, "%.500s, line %d, column %d: %.200s", s.file, e.line, e.column,
                 tp_json_reason(e.text));
    if (root && !json_is_object(root)) tp__fail(X, "%.500s is not a JSON object", s.file);
    if (root && !X->why[0]) return root;
    json_decref(root);
    return NULL;
}

/* ---- dict.txt: RoBERTa's ids of GPT-2's tokens ---- */

typedef struct renumbering {
    int64_t *id; /* new id by old id, -1: none; NULL: ids stay */
    int64_t old, lines;
} renumbering;

static bool is_filler(const char *line)
{
    return strncmp(line, "madeupword", 10) == 0;
}

/* Reads the line at *at, of *n bytes; false at the end. */
static bool next_line(const char **at, const char **line, size_t *n)
{
    if (!**at) return false;
    *line = *at;
    *n = strcspn(*at, "\n");
    *at += *n + ((*at)[*n] == '\n');
    if (*n > 0 && (*line)[*n - 1] == '\r') --*n;
    return true;
}

/* Reads the ids of `old` tokens; frees nothing on failure. */
static bool read_dict(tp_bpe *X, tp_bpe_source s, int64_t old, renumbering *r)
{
    const char *at = s.text, *line;
    size_t n;
    *r = (renumbering){ .old = old, .id = malloc(((size_t)old + 1) * sizeof *r->id) };
    if (!r->id) return tp__fail(X, "%.500s: out of memory", s.file);
    for (int64_t i = 0; i < old; i++) r->id[i] = -1;
    while (next_line(&at, &line, &n)) {
        char *end;
        const int64_t number = r->lines++ + 1;
        if (is_filler(line)) continue;
        const long long id = n > 0 && *line >= '0' && *line <= '9' ? strtoll(line, &end, 10) : -1;
        if (id < 0 || *end != ' ')
            return tp__fail(X, "%.500s, line %lld ('%.*s'): an id and a count are wanted", s.file,
                            (long long)number, (int)(n < 40 ? n : 40), line);
        if (id >= old || r->id[id] >= 0)
            return tp__fail(X, "%.500s, line %lld: the id %lld %s", s.file, (long long)number, id,
                            id >= old ? "is not in the vocabulary" : "is on an earlier line, too");
        r->id[id] = TP__BPE_FILLED + number - 1;
    }
    return true;
}

static void name_fillers(tp_bpe *X, tp_bpe_source s)
{
    const char *at = s.text, *line;
    size_t n;
    for (int64_t id = TP__BPE_FILLED; next_line(&at, &line, &n); id++) {
        char name[64];
        if (!is_filler(line)) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, " \r\n"), line);
        if (!tp__bpe_name(X, id, name))
            tp__fail(X,
                     tp_bpe_id(X, name) < 0 ? "%.500s: out of memory for the filler '%s'"
                                            : "%.500s: the filler '%s' is there twice",
                     s.file, name);
    }
    for (int k = 0; k < TP_BPE_SPECIALS; k++) {
        const int64_t id = k == TP_BPE_MASK ? X->size - 1 : k;
        if (!tp__bpe_name(X, id, tp_bpe_special_name((tp_bpe_special)k)))
            tp__fail(X, "%.500s: out of memory", s.file);
    }
}

/* ---- tokens ---- */

static bool check_tokens(tp_bpe *X, const char *file, json_t *vocab)
{
    const char *name;
    json_t *id;
    if (json_object_size(vocab) > TP__BPE_MOST)
        return tp__fail(X, "%.500s has more than %d tokens", file, TP__BPE_MOST);
    json_object_foreach(vocab, name, id) if (!json_is_integer(id)) return tp__fail(
        X, "%.500s: the id of the token '%.40s' is not a whole number", file, name);
    return true;
}

/* Fails: tp__bpe_name refused a name of the vocabulary, whose names are distinct. */
static bool not_named(tp_bpe *X, const char *file, const char *name, int64_t old, int64_t id)
{
    if (tp_bpe_id(X, name) >= 0)
        return tp__fail(X,
                        "%.500s: the token '%.40s' is special or a filler of the dictionary, too",
                        file, name);
    if (id >= 0 && id < X->size && !X->token[id]) return tp__fail(X, "%.500s: out of memory", file);
    return tp__fail(X, "%.500s: the id %lld of the token '%.40s' is %s", file, (long long)old, name,
                    id < 0 || id >= X->size ? "not below the number of tokens"
                                            : "another token's, too");
}

static bool add_tokens(tp_bpe *X, const char *file, json_t *vocab, const renumbering *r)
{
    const char *name;
    json_t *value;
    json_object_foreach(vocab, name, value)
    {
        const int64_t old = json_integer_value(value);
        const int64_t id = !r->id ? old : old >= 0 && old < r->old ? r->id[old] : -1;
        if (r->id && id < 0)
            return tp__fail(
                X,
                "%.500s: the token '%.40s' has the id %lld, for which the dictionary has no line",
                file, name, (long long)old);
        if (!tp__bpe_name(X, id, name)) return not_named(X, file, name, old, id);
    }
    return true;
}

/* ---- merges ---- */

/* Returns the id of a token of n bytes; `name` has room for it. -1: none. */
static int32_t find(const tp_bpe *X, const char *text, size_t n, char *name)
{
    memcpy(name, text, n);
    name[n] = '\0';
    return tp_bpe_id(X, name);
}

/* Adds the merge "a b" of n bytes. Returns NULL or an error. */
static const char *add_merge(tp_bpe *X, const char *line, size_t n, char *name)
{
    if (memchr(line, '\n', n) || memchr(line, '\r', n)) return "a merge has no line ends in it";
    const char *blank = memchr(line, ' ', n);
    const size_t a = blank ? (size_t)(blank - line) : 0, b = blank ? n - a - 1 : 0;
    if (a == 0 || b == 0 || memchr(blank + 1, ' ', b))
        return "a merge is two tokens with a blank between them";
    const int32_t left = find(X, line, a, name), right = find(X, blank + 1, b, name);
    if (left < 0 || right < 0) return "a side of the merge is not in the vocabulary";
    memcpy(name, line, a);
    memcpy(name + a, blank + 1, b);
    name[a + b] = '\0';
    const int32_t made = tp_bpe_id(X, name);
    return made < 0 ? "its result is not in the vocabulary" : tp__bpe_merge(X, left, right, made);
}

/* Counts lines with a blank; only these are merges. */
static int64_t count_merges(const char *text)
{
    int64_t lines = 0;
    for (; *text; text += *text != '\0') {
        text += strcspn(text, " \n");
        lines += *text == ' ';
        if (*text == ' ') text += strcspn(text, "\n");
    }
    return lines;
}

static bool make_room(tp_bpe *X, const char *file, int64_t size, int64_t merges)
{
    if (merges <= TP__BPE_MOST) return tp__bpe_room(X, size, merges);
    return tp__fail(X, "%.500s has more than %d merges", file, TP__BPE_MOST);
}

static size_t longest_line(const char *text)
{
    size_t longest = 0;
    while (*text) {
        const size_t n = strcspn(text, "\n");
        longest = n > longest ? n : longest;
        text += n + (text[n] == '\n');
    }
    return longest;
}

static bool read_merges(tp_bpe *X, tp_bpe_source s)
{
    const char *at = s.text, *line;
    size_t n;
    char *name = malloc(longest_line(s.text) + 1);
    if (!name) return tp__fail(X, "%.500s: out of memory", s.file);
    for (int64_t number = 1; next_line(&at, &line, &n) && !X->why[0]; number++) {
        if (n == 0 || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        const char *wrong = add_merge(X, line, n, name);
        if (wrong)
            tp__fail(X, "%.500s, line %lld ('%.*s'): %s", s.file, (long long)number,
                     (int)(n < 60 ? n : 60), line, wrong);
    }
    free(name);
    return !X->why[0];
}

bool tp__bpe_read(tp_bpe *X, tp_bpe_source vocab, tp_bpe_source merges, tp_bpe_source dict)
{
    renumbering r = { 0 };
    json_t *root = parse(X, vocab);
    if (!root) return false;
    int64_t size = (int64_t)json_object_size(root);
    bool ok = check_tokens(X, vocab.file, root) && (!dict.text || read_dict(X, dict, size, &r));
    if (ok && dict.text) {
        size = TP__BPE_FILLED + r.lines + 1;
        ok = size <= TP__BPE_MOST ||
             tp__fail(X, "%.500s has more than %d lines", dict.file, TP__BPE_MOST);
    }
    ok = ok && make_room(X, merges.file, size, count_merges(merges.text));
    if (ok && dict.text) name_fillers(X, dict);
    ok = ok && !X->why[0] && add_tokens(X, vocab.file, root, &r) && tp__bpe_index(X, vocab.file) &&
         read_merges(X, merges);
    free(r.id);
    json_decref(root);
    return ok;
}

/* ---- tokenizer.json ---- */

static bool says(json_t *object, const char *key, const char *word)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && strcmp(value, word) == 0;
}

/* Is a member missing, null, false, or an empty text? */
static bool is_off(json_t *object, const char *key)
{
    json_t *x = json_object_get(object, key);
    return !x || json_is_null(x) || json_is_false(x) ||
           (json_is_string(x) && json_string_length(x) == 0);
}

/* Refuses options that would change the tokens of a text. */
static bool check_kind(tp_bpe *X, const char *file, json_t *root)
{
    json_t *model = json_object_get(root, "model"), *cut = json_object_get(root, "pre_tokenizer");
    static const char *const changes[] = { "dropout", "continuing_subword_prefix",
                                           "end_of_word_suffix", "byte_fallback", "ignore_merges" };
    if (!json_is_object(json_object_get(model, "vocab")) ||
        !json_is_array(json_object_get(model, "merges")) ||
        (json_object_get(model, "type") && !says(model, "type", "BPE")))
        return tp__fail(
            X, "%.500s: it has no model of byte-pair encoding with 'vocab' and 'merges'", file);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (!is_off(model, changes[i]))
            return tp__fail(X, "%.500s: its model has '%s', which this reader does not support",
                            file, changes[i]);
    if (!is_off(root, "normalizer"))
        return tp__fail(X, "%.500s: it has a normalizer, which this reader does not support", file);
    if (!says(cut, "type", "ByteLevel"))
        return tp__fail(X, "%.500s: its pre_tokenizer is not ByteLevel", file);
    if (!is_off(cut, "add_prefix_space") || json_is_false(json_object_get(cut, "use_regex")))
        return tp__fail(
            X,
            "%.500s: its pre_tokenizer adds a blank or does not cut into words, which this "
            "reader does not support",
            file);
    return true;
}

/* Adds the tokens of `added_tokens` that are missing from the vocabulary. */
static bool join_added(tp_bpe *X, const char *file, json_t *root, json_t *vocab)
{
    size_t i;
    json_t *token;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        const char *name = json_string_value(json_object_get(token, "content"));
        json_t *id = json_object_get(token, "id"),
               *there = name ? json_object_get(vocab, name) : NULL;
        if (!name || !json_is_integer(id))
            return tp__fail(X, "%.500s: added_tokens[%zu] has no content or no id", file, i);
        if (there && json_integer_value(there) != json_integer_value(id))
            return tp__fail(X,
                            "%.500s: added_tokens[%zu] ('%.40s') has another id in the vocabulary",
                            file, i, name);
        if (!there && json_object_set(vocab, name, id) != 0)
            return tp__fail(X, "%.500s: out of memory", file);
    }
    return true;
}

/* Adds a merge "a b" or ["a", "b"]. */
static const char *add_json_merge(tp_bpe *X, json_t *merge)
{
    const char *both = json_string_value(merge), *a = json_string_value(json_array_get(merge, 0)),
               *b = json_string_value(json_array_get(merge, 1));
    const bool pair = json_array_size(merge) == 2 && a && b;
    if (!both && !pair) return "a merge is a text or two texts";
    const size_t n = both ? strlen(both) : strlen(a) + strlen(b) + 1;
    char *line = malloc(n + 1), *name = malloc(n + 1);
    const char *wrong = "out of memory";
    if (line && name) {
        snprintf(line, n + 1, "%s%s%s", both ? both : a, both ? "" : " ", both ? "" : b);
        wrong = add_merge(X, line, n, name);
    }
    free(line);
    free(name);
    return wrong;
}

static bool read_json_merges(tp_bpe *X, const char *file, json_t *merges)
{
    size_t i;
    json_t *merge;
    json_array_foreach(merges, i, merge)
    {
        const char *wrong = add_json_merge(X, merge);
        if (wrong) return tp__fail(X, "%.500s: merges[%zu]: %s", file, i, wrong);
    }
    return true;
}

bool tp__bpe_read_json(tp_bpe *X, tp_bpe_source s)
{
    const renumbering stay = { 0 };
    json_t *root = parse(X, s);
    if (!root) return false;
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab"),
           *merges = json_object_get(model, "merges");
    const bool ok =
        check_kind(X, s.file, root) && join_added(X, s.file, root, vocab) &&
        check_tokens(X, s.file, vocab) &&
        make_room(X, s.file, (int64_t)json_object_size(vocab), (int64_t)json_array_size(merges)) &&
        add_tokens(X, s.file, vocab, &stay) && tp__bpe_index(X, s.file) &&
        read_json_merges(X, s.file, merges);
    json_decref(root);
    return ok;
}
