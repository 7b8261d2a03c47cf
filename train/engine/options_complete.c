/* options_complete.c - prints completion scripts for bash and zsh.
 *
 * A script has a function for each command, made from its table, and one registered for the
 * program. In bash the command functions only describe what is valid at the cursor; zsh's
 * _arguments does the rest itself. */
#include <string.h>

#include "options_inner.h"

/* ---- kinds of values ---- */

typedef enum value_kind { NOTHING, WORDS, FILES, FOLDERS, VALUE_KINDS } value_kind;

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* NOTHING: no completions are known. */
static value_kind kind_of(const tp_option *o)
{
    if (o->known || o->kind == TP_OPTION_CHOICE || (o->kind == TP_OPTION_HELP && o->value))
        return WORDS;
    if (o->kind == TP_OPTION_WORDS) return FILES;
    if (o->kind != TP_OPTION_TEXT) return NOTHING;
    return begins(o->value, "FILE") ? FILES : begins(o->value, "DIR") ? FOLDERS : NOTHING;
}

static bool takes_value(const tp_option *o)
{
    return o->kind != TP_OPTION_BOOL && (o->kind != TP_OPTION_HELP || o->value);
}

static bool is_flag(const tp_option *o)
{
    return tp__option_is_flag(o) || o->kind == TP_OPTION_HELP;
}

/* ---- text ---- */

/* Prints text within single quotes, escaping `special`. */
static void print(const char *text, size_t n, const char *special, FILE *out)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr(special, text[i]) ? "\\" : "", text[i]);
}

/* Prints a value's words, with blanks. */
static void print_words(const tp_option *o, FILE *out)
{
    const char *word;
    for (int i = 0; o->known && (word = o->known(i)); i++) {
        if (i > 0) fputc(' ', out);
        print(word, strlen(word), "", out);
    }
    for (const char *s = o->known ? "" : o->value; *s; s++) print(*s == '|' ? " " : s, 1, "", out);
}

/* "enwik8 train" has the function _enwik8_train. zsh's script file is named like the program's. */
static void print_function(const char *command, FILE *out)
{
    fputc('_', out);
    for (const char *s = command; *s; s++) fputc(*s == ' ' ? '_' : *s, out);
}

static bool is_part(const tp_command *c)
{
    return strchr(c->name, ' ') != NULL;
}

/* ---- bash ---- */

static void print_flags(const tp_option *const *row, int n, FILE *out)
{
    fputs("    flags='", out);
    for (int i = 0, k = 0; i < n; i++) {
        if (!is_flag(row[i])) continue;
        fprintf(out, "%s--%s", k++ ? " " : "", row[i]->name);
        if (row[i]->kind == TP_OPTION_BOOL) fprintf(out, " --no-%s", row[i]->name);
    }
    fputs("'\n", out);
}

/* Prints the case of flags that take files, folders etc. */
static void print_case(const tp_option *const *row, int n, value_kind kind, FILE *out)
{
    static const char *const names[VALUE_KINDS] = { "nothing", "words", "files", "folders" };
    int k = 0;
    for (int i = 0; i < n; i++)
        if (is_flag(row[i]) && takes_value(row[i]) && kind_of(row[i]) == kind)
            fprintf(out, "%s--%s", k++ ? " | " : "    ", row[i]->name);
    if (k > 0) fprintf(out, ") kind=%s ;;\n", names[kind]);
}

static void bash_function(const tp_command *c, FILE *out)
{
    const tp_option *row[TP_MAX_ROWS], *arguments = NULL;
    const int n = tp__options_all(c->table, row);
    print_function(c->name, out);
    fputs(is_part(c) ? "() {\n" : "_flags() {\n", out);
    print_flags(row, n, out);
    fputs("    case $before in\n", out);
    for (int i = 0; i < n; i++) {
        if (row[i]->kind == TP_OPTION_WORDS) arguments = row[i];
        if (!is_flag(row[i]) || !takes_value(row[i]) || kind_of(row[i]) != WORDS) continue;
        fprintf(out, "    --%s) kind=words words='", row[i]->name);
        print_words(row[i], out);
        fputs("' ;;\n", out);
    }
    print_case(row, n, FILES, out);
    print_case(row, n, FOLDERS, out);
    print_case(row, n, NOTHING, out);
    fputs("    *) kind=", out);
    if (arguments && kind_of(arguments) == WORDS) {
        fputs("arguments words='", out);
        print_words(arguments, out);
        fputs("' ;;\n", out);
    } else {
        fputs(arguments ? "arguments_files ;;\n" : "flags ;;\n", out);
    }
    fputs("    esac\n}\n\n", out);
}

/* Prints the function that bash calls; rows: NULL for a program of one command. File names are left
 * to readline, which knows quotes and tildes. */
static void bash_program(const char *program, const tp_subcommand *rows, FILE *out)
{
    print_function(program, out);
    fputs("() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local kind=flags words= flags=\n"
          "    COMPREPLY=()\n"
          "    if [[ $cur == '=' ]]; then # --flag=VALUE is three words\n"
          "        cur=\n"
          "    elif [[ $before == '=' ]]; then\n"
          "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n",
          out);
    if (!rows) {
        fputs("    ", out);
        print_function(program, out);
        fputs("_flags\n", out);
    } else {
        fputs("    if ((COMP_CWORD == 1)); then\n        kind=arguments words='", out);
        for (const tp_subcommand *c = rows; c->name; c++)
            fprintf(out, "%s%s", c == rows ? "" : " ", c->name);
        fputs("' flags='--help --version --man --completion --commands'\n"
              "    elif [[ $before == --completion ]]; then\n"
              "        kind=words words='bash zsh'\n"
              "    else\n        case ${COMP_WORDS[1]} in\n",
              out);
        for (const tp_subcommand *c = rows; c->name; c++) {
            fprintf(out, "        %s) ", c->name);
            print_function(program, out);
            fprintf(out, "_%s ;;\n", c->name);
        }
        fputs("        esac\n    fi\n", out);
    }
    fputs("    if [[ $kind == flags || ($kind == arguments* && $cur == -*) ]]; then\n"
          "        kind=words words=$flags\n"
          "    fi\n"
          "    case $kind in\n"
          "    words | arguments) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
          "    files | arguments_files) compopt -o default ;;\n"
          "    folders) compopt -o dirnames ;;\n"
          "    esac\n}\ncomplete -F ",
          out);
    print_function(program, out);
    fprintf(out, " %s\n", program);
}

/* ---- zsh ---- */

/* The help's first sentence. */
static void print_sentence(const char *help, FILE *out)
{
    size_t n = strlen(help);
    for (size_t i = 0; i + 1 < n; i++)
        if (help[i] == '.' && help[i + 1] == ' ') n = i;
    if (n > 0 && help[n - 1] == '.') n--;
    print(help, n, "\\[]:", out);
}

static void print_action(const tp_option *o, FILE *out)
{
    fputc(':', out);
    print(o->value, o->kind == TP_OPTION_CHOICE ? 0 : strlen(o->value), "\\[]:", out);
    if (o->kind == TP_OPTION_CHOICE) fputs(o->name, out);
    switch (kind_of(o)) {
    case WORDS:
        fputs(":(", out);
        print_words(o, out);
        fputs(")'", out);
        break;
    case FILES: fputs(":_files'", out); break;
    case FOLDERS: fputs(":_files -/'", out); break;
    default: fputs(": '", out);
    }
}

static void zsh_row(const tp_option *o, FILE *out)
{
    if (o->kind == TP_OPTION_HEADING) return;
    fputs(" \\\n        ", out);
    if (o->kind == TP_OPTION_WORDS) {
        fputs("'*", out);
        print_action(o, out);
        return;
    }
    fprintf(out, "'--%s%s[", o->name, takes_value(o) ? "=" : "");
    print_sentence(o->help, out);
    fputc(']', out);
    if (takes_value(o))
        print_action(o, out);
    else
        fputc('\'', out);
    if (o->kind == TP_OPTION_BOOL)
        fprintf(out, " \\\n        '--no-%s[Not --%s]'", o->name, o->name);
}

static void zsh_function(const tp_command *c, FILE *out)
{
    const tp_option *row[TP_MAX_ROWS];
    const int n = tp__options_all(c->table, row);
    print_function(c->name, out);
    fputs("() {\n    _arguments", out);
    for (int i = 0; i < n; i++) zsh_row(row[i], out);
    fputs("\n}\n\n", out);
}

static void zsh_program(const char *program, const tp_subcommand *rows, FILE *out)
{
    print_function(program, out);
    fputs("() {\n    local -a commands=(", out);
    for (const tp_subcommand *c = rows; c->name; c++) {
        fprintf(out, "\n        '%s:", c->name);
        print(c->what, strlen(c->what), "\\:", out);
        fputc('\'', out);
    }
    fputs(")\n"
          "    ((CURRENT == 2)) && _describe command commands\n"
          "    if [[ CURRENT -eq 2 || $words[2] == -* ]]; then\n"
          "        _arguments --help --version --man '--completion=:shell:(bash zsh)' --commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n",
          out);
    for (const tp_subcommand *c = rows; c->name; c++) {
        fprintf(out, "    %s) ", c->name);
        print_function(program, out);
        fprintf(out, "_%s ;;\n", c->name);
    }
    fputs("    esac\n}\n\n", out);
}

/* Ends a script so that it works both in a folder of $fpath and when sourced. */
static void zsh_end(const char *program, FILE *out)
{
    fputs("if [[ $funcstack[1] == ", out);
    print_function(program, out);
    fputs(" ]]; then\n    ", out);
    print_function(program, out);
    fputs("\nelse\n    compdef ", out);
    print_function(program, out);
    fprintf(out, " %s\nfi\n", program);
}

/* ---- scripts ---- */

static void begin(const char *program, tp_shell shell, FILE *out)
{
    if (shell == TP_ZSH) fprintf(out, "#compdef %s\n", program);
    fprintf(out, "# Completion of %s, printed by %s --completion %s.\n\n", program, program,
            shell == TP_ZSH ? "zsh" : "bash");
}

void tp__complete_command(const tp_command *c, tp_shell shell, FILE *out)
{
    const bool whole = !is_part(c);
    if (whole) begin(c->name, shell, out);
    if (shell == TP_ZSH)
        zsh_function(c, out);
    else
        bash_function(c, out);
    if (whole && shell == TP_ZSH) zsh_end(c->name, out);
    if (whole && shell == TP_BASH) bash_program(c->name, NULL, out);
}

bool tp__complete_program(const char *program, const tp_subcommand *rows, tp_shell shell, FILE *out)
{
    char flag[] = "--completion", zsh[] = "zsh", bash[] = "bash";
    begin(program, shell, out);
    for (const tp_subcommand *c = rows; c->name; c++)
        if (c->run(2, (char *[]){ flag, shell == TP_ZSH ? zsh : bash, NULL }) != 0) return false;
    if (shell == TP_ZSH) {
        zsh_program(program, rows, out);
        zsh_end(program, out);
    } else {
        bash_program(program, rows, out);
    }
    return true;
}
