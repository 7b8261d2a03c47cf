/* op_docs.c - writes docs/ops.md from the table of ops, or checks that the file is up to date.
 *
 *     op_docs                prints it
 *     op_docs --check FILE   exit status 1 if FILE differs */
#include <stdio.h>
#include <string.h>
#include <tapegrad/op.h>

#include "compare/expressed.h"
#include "tools/op_calls/op_calls.h"

extern const tp_op *const tp_op_table[];

#define SIZE (1 << 16)

static void count(char *text, const char *what, int n)
{
    char *end = text + strlen(text);
    if (n < 0)
        sprintf(end, "any number of %ss", what);
    else
        sprintf(end, "%d %s%s", n, what, n == 1 ? "" : "s");
}

/* A bar would end the cell. */
static void cell(char *text, const char *s)
{
    char *end = text + strlen(text);
    for (; *s; s++) {
        if (*s == '|') *end++ = '\\';
        *end++ = *s;
    }
    *end = 0;
}

/* The op's name, with its function's parameters if that has the same name; "x, .." for a list of
 * tensors. */
static void call(char *text, const char *op)
{
    const op_signature *s = op_signature_of(op);
    const char *between = "(";
    strcat(text, op);
    for (const op_field *p = s ? s->parameters : NULL; p && p->name; p++) {
        if (p[1].kind == OP_TENSORS) continue;
        sprintf(text + strlen(text), "%s%s%s", between, p->name,
                p->kind == OP_TENSORS ? ", .." : "");
        between = ", ";
    }
    if (s) strcat(text, ")");
}

/* The header that declares the op's function. */
static void header(char *text, const char *op)
{
    const op_signature *s = op_signature_of(op);
    if (s)
        sprintf(text + strlen(text), " | `%s` | ", strchr(s->header, '/') + 1);
    else
        strcat(text, " | | ");
}

static void describe(char *text, const tp_op *op)
{
    strcat(text, "| `");
    call(text, op->name);
    strcat(text, "` | ");
    cell(text, op->doc ? op->doc : "");
    header(text, op->name);
    count(text, "input", op->nx);
    strcat(text, ", ");
    count(text, "output", op->ny);
    strcat(text, " |");
    const struct {
        unsigned flag;
        const char *text;
    } notes[] = {
        { TP_RANDOM, "random" },
        { TP_NOT_DIFFERENTIABLE, "no gradient" },
        { TP_COMPUTES, "compute dtype" },
        { TP_ACCUMULATES, "adds" },
    };
    const char *between = " ";
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (op->flags & notes[i].flag) {
            sprintf(text + strlen(text), "%s%s", between, notes[i].text);
            between = ", ";
        }
    strcat(text, " |\n");
}

static void express(char *text)
{
#define LINE(NAME, TORCH, EXPRESSION) { TORCH, #EXPRESSION },
    static const struct {
        const char *torch, *expression;
    } lines[] = { EXPRESSED(LINE) };
    strcat(
        text,
        "\n## Expressed by others\n\n"
        "Functions of PyTorch that other ops express. Each op of an expression is a pass over its\n"
        "operands; `torch.cdist` holds all differences. The expressions are compiled and compared "
        "with\n"
        "PyTorch (`tests/compare/expressed.h`).\n\n"
        "| PyTorch | here |\n|---|---|\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        sprintf(text + strlen(text), "| `%s` | `%s` |\n", lines[i].torch, lines[i].expression);
}

static int check(const char *text, const char *file)
{
    static char old[SIZE];
    FILE *f = fopen(file, "rb");
    const size_t n = f ? fread(old, 1, sizeof old - 1, f) : 0;
    if (f) fclose(f);
    old[n] = 0;
    if (strcmp(old, text) == 0) return 0;
    fprintf(stderr, "%s is not up to date: run op_docs > docs/ops.md\n", file);
    return 1;
}

int main(int argc, char **argv)
{
    static char text[SIZE];
    strcpy(
        text,
        "# Ops\n\n"
        "Made by `op_docs` from the op table and the prototypes in `include/tapegrad/ops/`, which "
        "say more. Where a\n"
        "function has the op's name, its parameters after the tape follow, and the header that "
        "declares it.\n"
        "Outputs count hidden ones, which only backward reads. *compute dtype*: inputs are\n"
        "brought to the tape's; *adds*: backward can add to a gradient, which saves a pass.\n\n"
        "| op | what | header | inputs, outputs | notes |\n|---|---|---|---|---|\n");
    for (const tp_op *const *op = tp_op_table; *op; op++) describe(text, *op);
    express(text);
    if (argc == 3 && strcmp(argv[1], "--check") == 0) return check(text, argv[2]);
    fputs(text, stdout);
    return 0;
}
