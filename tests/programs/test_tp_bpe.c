/* test_tp_bpe.c - the program tp-bpe: learning, encoding, decoding, refusals. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "support/folder.h"

TestSuite(tp_bpe, .init = make_folder, .fini = remove_folder);

Test(tp_bpe, learns_encodes_and_decodes)
{
    static const struct {
        const char *command;
        int status;
        const char *output;
    } cases[] = {
        { "printf 'the cat the hat the mat at the end\\n%.0s' 1 2 3 | gzip >text.gz; "
          "$B train text.gz --size 268 --output v",
          0, "v: 268 ids, 7 merges\n" },
        { "$B train text.gz --output v", 1,
          "tp-bpe train: v/vocab.json already exists: choose another --output\n" },
        { "$B train --output w", 2, NULL },
        { "$B train none --output w", 1,
          "tp-bpe train: text none: cannot be opened: No such file or directory; check the "
          "path\n" },
        { "printf 'the mat\\n\\nat' | $B encode --vocab v --tokens --specials", 0,
          "<s> the \xc4\xa0 m at </s>\n<s> </s>\n<s> at </s>\n" },
        { "printf 'the hat\\nan end\\n' | $B encode --vocab v | $B decode --vocab v", 0,
          "the hat\nan end\n" },
        { "printf 'a\\nb' | $B encode --vocab v --whole --tokens", 0, "a \xc4\x8a b\n" },
        { "printf 'a\\0b\\nc' >zero; $B encode --vocab v --whole --tokens zero", 1,
          "tp-bpe encode: zero, line 1 has a zero byte at offset 1: it is not text in UTF-8\n" },
        { "printf 'a\\n\\0c' | $B encode --vocab v --tokens >/dev/null", 1,
          "tp-bpe encode: standard input, line 2 has a zero byte\n" },
        { "head -c 300000 /dev/zero | tr '\\0' z | $B encode --vocab v --whole | "
          "wc -lw | tr -s ' '",
          0, " 1 300000\n" },
        { "printf '\\357\\273\\277a\\nb' | $B encode --vocab v --tokens", 0, "a\nb\n" },
        { "printf '\\377\\376a\\0\\n\\0' | $B encode --vocab v", 1,
          "tp-bpe encode: standard input, line 1 is UTF-16; convert it to UTF-8, for example with "
          "iconv -f UTF-16 -t UTF-8\n" },
        { "printf 'a b' >e; ln -s e f; $B train e f --output w", 1,
          "tp-bpe train: e and f are one file: name it once\n" },
        { "mkdir x; printf '{\"<unk>\": 0, \"\\\\u001b[2J\": 1, \"a\": 2}' >x/vocab.json; "
          "echo '#version: 0.2' >x/merges.txt; echo ab | $B encode --vocab x",
          0, "2 0\ntp-bpe encode: 1 byte has no token in x and became <unk>\n" },
        { ": | $B encode --vocab v --whole --specials", 0, "0 2\n" },
        { "printf '1 2\\0 3\\n' | $B decode --vocab v", 1,
          "tp-bpe decode: standard input, line 1 has a zero byte at offset 3: it is not text in "
          "UTF-8\n" },
        { "echo 0 70 2 | $B decode --vocab v --skip-specials", 0, "c\n" },
        { "echo 1 268 | $B decode --vocab v", 1,
          "tp-bpe decode: standard input, line 1: '268' is not an id from 0 to 267\n" },
        { "echo 1 x | $B decode --vocab v", 1,
          "tp-bpe decode: standard input, line 1: 'x' is not an id from 0 to 267\n" },
        { "$B encode --vocab none", 1,
          "tp-bpe encode: vocabulary none: No such file or directory\n" },
        { "$B encode", 2, NULL },
        { "echo a >a; $B encode --vocab v a b", 1, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[2000], out[4000];
        snprintf(command, sizeof command, "cd '%s'; B='%s/tp-bpe'; { %s; } 2>&1", folder,
                 TP_BIN_DIR, cases[i].command);
        FILE *p = popen(command, "r");
        cr_assert(p);
        out[fread(out, 1, sizeof out - 1, p)] = '\0';
        const int status = pclose(p);
        cr_expect_eq(WEXITSTATUS(status), cases[i].status, "%s: %s", cases[i].command, out);
        if (cases[i].output)
            cr_expect_str_eq(out, cases[i].output, "%s: %s", cases[i].command, out);
    }
}
