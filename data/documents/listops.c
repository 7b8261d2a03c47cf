/* listops.c - expressions of ListOps: their tokens and their values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/listops.h>

static const char *const operators[] = { "[MIN", "[MAX", "[MED", "[SM" };

/* The id of a word of n bytes, or 0. */
static uint16_t id_of(const char *word, size_t n)
{
    if (n == 1 && word[0] >= '0' && word[0] <= '9')
        return (uint16_t)(TP_LISTOPS_DIGIT + word[0] - '0');
    if (n == 1 && word[0] == ']') return TP_LISTOPS_CLOSE;
    for (int k = 0; k < 4; k++)
        if (strlen(operators[k]) == n && memcmp(operators[k], word, n) == 0)
            return (uint16_t)(TP_LISTOPS_MIN + k);
    return 0;
}

static bool separates(char c)
{
    return c == ' ' || c == '(' || c == ')';
}

int64_t tp_listops_read(const char *text, size_t n, uint16_t *ids, char *why, size_t size)
{
    if (!text) {
        if (why) snprintf(why, size, "listops_read: NULL was given in place of a text");
        return 0;
    }
    int64_t count = 0;
    for (size_t i = 0; i < n;) {
        if (separates(text[i])) {
            i++;
            continue;
        }
        size_t k = i;
        while (k < n && !separates(text[k])) k++;
        const uint16_t id = id_of(text + i, k - i);
        if (!id) {
            snprintf(why, size,
                     "'%.*s' at byte %zu is not a token (0 to 9, [MIN, [MAX, [MED, [SM, ])",
                     (int)(k - i < 20 ? k - i : 20), text + i, i + 1);
            return -1;
        }
        ids[count++] = id;
        i = k;
    }
    return count;
}

/* ---- values ---- */

/* The value of an operator whose arguments are counted by value. */
static int8_t apply(int op, const int64_t times[10], int64_t n)
{
    int64_t sum = 0, below = 0;
    int least = 9, most = 0, middle[2] = { 0, 0 };
    for (int v = 0; v < 10; v++) {
        if (!times[v]) continue;
        if (v < least) least = v;
        if (v > most) most = v;
        sum += v * times[v];
        for (int k = 0; k < 2; k++) /* the middle two places, which are one if n is odd */
            if (below <= (n - 1 + k) / 2 && (n - 1 + k) / 2 < below + times[v]) middle[k] = v;
        below += times[v];
    }
    switch (op) {
    case TP_LISTOPS_MIN: return (int8_t)least;
    case TP_LISTOPS_MAX: return (int8_t)most;
    case TP_LISTOPS_MED: return (int8_t)((middle[0] + middle[1]) / 2);
    default: return (int8_t)(sum % 10);
    }
}

/* Replaces an operator and its arguments on top of the stack by their value. False if there is no operator,
 * or no argument. */
static bool reduce(int8_t *stack, int64_t *top)
{
    int64_t times[10] = { 0 }, n = 0;
    int64_t at = *top;
    for (; at > 0 && stack[at - 1] >= 0; n++) times[stack[--at]]++;
    if (at == 0 || n == 0) return false;
    stack[at - 1] = apply(-stack[at - 1], times, n);
    *top = at;
    return true;
}

bool tp_listops_evaluate(const uint16_t *ids, int64_t n, tp_listops_value *value, char *why,
                         size_t size)
{
    if (!ids) {
        if (why) snprintf(why, size, "listops_evaluate: NULL was given in place of tokens");
        return false;
    }
    const char *wrong = NULL;
    int64_t top = 0, i = 0;
    int depth = 0;
    int8_t *stack = n > 0 ? malloc((size_t)n) : NULL; /* values, and operators below 0 */
    *value = (tp_listops_value){ 0 };
    if (n > 0 && !stack) wrong = "out of memory";
    for (; !wrong && i < n; i++) {
        const int id = ids[i];
        if (i > 0 && depth == 0) {
            wrong = "the expression has ended before";
        } else if (id >= TP_LISTOPS_MIN && id <= TP_LISTOPS_SM) {
            stack[top++] = (int8_t)-id;
            if (++depth > value->depth) value->depth = depth;
        } else if (id >= TP_LISTOPS_DIGIT && id < TP_LISTOPS_MIN) {
            stack[top++] = (int8_t)(id - TP_LISTOPS_DIGIT);
        } else if (id != TP_LISTOPS_CLOSE) {
            wrong = "this is not a token";
        } else if (!reduce(stack, &top)) {
            wrong = "a bracket closes nothing, or an operator without arguments";
        } else {
            depth--;
        }
    }
    if (wrong)
        snprintf(why, size, "token %lld: %s", (long long)i, wrong);
    else if (n < 1 || depth)
        snprintf(why, size, n < 1 ? "there are no tokens" : "%d brackets are not closed", depth);
    else
        value->answer = (uint8_t)stack[0];
    free(stack);
    return !wrong && n > 0 && !depth;
}
