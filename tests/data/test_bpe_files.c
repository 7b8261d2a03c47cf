/* test_bpe_files.c - vocabulary files of byte-pair encoding, and the message for each refused
 * one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <tapegrad/file.h>

#include "support/bpe.h"
#include "support/folder.h"

/* ---- messages ---- */

Test(bpe_files, bad_vocabularies_are_refused)
{
    static char whole[1 << 14], bytes[1 << 14];
    bpe_small(whole, "ab");
    strcpy(bytes, "{");
    const int next = bpe_put_bytes(bytes + 1, 0);
    strcpy(bytes + strlen(bytes) - 2, "}");
    cr_assert_eq(next, 256);
    const struct {
        const char *vocab, *merges, *dict, *why;
    } cases[] = {
        { "{\"a\": }", "", NULL, "vocabulary of test, line 1, column 7" },
        { "[]", "", NULL, "vocabulary of test is not a JSON object" },
        { "{\"a\": 0, \"a\": 1}", "", NULL, "duplicate" },
        { "{\"a\": 0.5}", "", NULL, "the id of the token 'a' is not a whole number" },
        { "{\"a\": 1}", "", NULL, "the id 1 of the token 'a' is not below the number of tokens" },
        { "{\"a\": -1}", "", NULL, "the id -1 of the token 'a' is not below" },
        { "{\"a\": 0, \"b\": 0}", "", NULL, "the id 0 of the token 'b' is another token's, too" },
        { "{\"a\": 0}", "", NULL,
          "no token stands for the byte 0 ('\xc4\x80'), and there is no <unk>" },
        { whole, "a b\nab\n", NULL,
          "merges of test, line 2 ('ab'): a merge is two tokens with a blank" },
        { whole, "a b c\n", NULL, "line 1 ('a b c'): a merge is two tokens" },
        { whole, "a  b\n", NULL, "line 1 ('a  b'): a merge is two tokens" },
        { whole, "#version: 1\na xx\n", NULL,
          "line 2 ('a xx'): a side of the merge is not in the vocabulary" },
        { whole, "a\rx b\n", NULL, "a merge has no line ends in it" },
        { whole, "b a\n", NULL, "line 1 ('b a'): its result is not in the vocabulary" },
        { whole, "a b\na b\n", NULL, "line 2 ('a b'): the pair has a merge already" },
        { whole, "<s> a\n", NULL, "its result is not in the vocabulary" },
        { bytes, "", "0 5\nx 1\n",
          "dictionary of test, line 2 ('x 1'): an id and a count are wanted" },
        { bytes, "", "0 5\n0 1\n",
          "dictionary of test, line 2: the id 0 is on an earlier line, too" },
        { bytes, "", "256 5\n", "line 1: the id 256 is not in the vocabulary" },
        { bytes, "", "0 5\n", "for which the dictionary has no line" },
        { bytes, "", "0 5\nmadeupword0000 0\nmadeupword0000 0\n",
          "the filler 'madeupword0000' is there twice" },
        { "{\"<s>\": 0}", "", "0 5\n",
          "vocabulary of test: the token '<s>' is special or a filler of the dictionary, too" },
        { "{\"madeupword0\": 0}", "", "0 5\nmadeupword0 0\n",
          "the token 'madeupword0' is special or a filler" },
        { "{\"a\": 0, \"b\": 0}", "", "0 5\n",
          "the id 0 of the token 'b' is another token's, too" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n;
        tp_bpe *X = tp_bpe_from("test", cases[i].vocab, cases[i].merges, cases[i].dict);
        cr_expect(!tp_bpe_ok(X) && strstr(tp_bpe_why(X), cases[i].why), "%s: %s", cases[i].why,
                  tp_bpe_why(X));
        cr_expect_eq(tp_bpe_size(X), 0);
        cr_expect_null(tp_bpe_token(X, 0));
        cr_expect_null(tp_bpe_vocab_text(X));
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        cr_expect_null(tp_bpe_encode(C, "a", 1, &n));
        tp_bpe_coder_free(C);
        tp_bpe_close(X);
    }
}

Test(bpe_files, bad_tokenizers_are_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "{", "test, line 1" },
        { "{}", "test: it has no model of byte-pair encoding" },
        { "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}, \"merges\": []}}",
          "it has no model of byte-pair" },
        { "{\"model\": {\"vocab\": {}, \"merges\": [], \"dropout\": 0.1}}",
          "its model has 'dropout'" },
        { "{\"model\": {\"vocab\": {}, \"merges\": []}, \"normalizer\": {}}",
          "it has a normalizer" },
        { "{\"model\": {\"vocab\": {}, \"merges\": []}}", "its pre_tokenizer is not ByteLevel" },
        { "{\"model\": {\"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": "
          "\"ByteLevel\", \"add_prefix_space\": true}}",
          "its pre_tokenizer adds a blank" },
        { "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"pre_tokenizer\": {\"type\": "
          "\"ByteLevel\"}, \"added_tokens\": [{\"id\": 1, \"content\": \"a\"}]}",
          "added_tokens[0] ('a') has another id" },
        { "{\"model\": {\"vocab\": {\"a\": 0, \"<unk>\": 1}, \"merges\": [[\"a\"]]}, "
          "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
          "merges[0]: a merge is a text or two texts" },
        { "{\"model\": {\"vocab\": {\"a\\n\": 0, \"<unk>\": 1}, \"merges\": [[\"a\\n\", \"b\"]]}, "
          "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
          "merges[0]: a merge has no line ends in it" },
        { "{\"model\": {\"vocab\": {\"a\": 0, \"<unk>\": 1}, \"merges\": [\"a b\\r\"]}, "
          "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
          "merges[0]: a merge has no line ends in it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_bpe *X = tp_bpe_from_json("test", cases[i].text);
        cr_expect(!tp_bpe_ok(X) && strstr(tp_bpe_why(X), cases[i].why), "%s: %s", cases[i].why,
                  tp_bpe_why(X));
        tp_bpe_close(X);
    }
}

/* Blank lines are no merges; more than 2^22 possible merges are refused. */
Test(bpe_files, number_of_merges)
{
    static char vocab[1 << 14];
    const size_t most = 1 << 22;
    char *merges = malloc(4 * (most + 1) + 1);
    bpe_small(vocab, "ab");
    memset(merges, '\n', 4 * (most + 1));
    strcpy(merges + 4 * (most + 1) - 3, "a b");
    tp_bpe *X = tp_bpe_from("test", vocab, merges, NULL);
    cr_expect(tp_bpe_merges(X) == 1, "%s", tp_bpe_why(X));
    tp_bpe_close(X);
    for (size_t i = 0; i <= most; i++) memcpy(merges + 4 * i, "a b\n", 4);
    X = tp_bpe_from("test", vocab, merges, NULL);
    cr_expect(strstr(tp_bpe_why(X), "merges of test has more than 4194304 merges"), "%s",
              tp_bpe_why(X));
    tp_bpe_close(X);
    merges[4 * most] = '\0'; /* the maximum: the second merge is at fault */
    X = tp_bpe_from("test", vocab, merges, NULL);
    cr_expect(strstr(tp_bpe_why(X), "line 2 ('a b'): the pair has a merge already"), "%s",
              tp_bpe_why(X));
    tp_bpe_close(X);
    free(merges);
}

/* ---- files ---- */

Test(bpe_files, files_of_all_kinds, .init = make_folder, .fini = remove_folder)
{
    static char vocab[1 << 14], json[1 << 15];
    char why[1024];
    bpe_small(vocab, "ab \xc4\xa0"
                     "ab");
    tp_bpe *X = tp_bpe_from("test", vocab, "a b\n\xc4\xa0 ab\n", NULL);
    cr_assert(tp_bpe_save(X, in_folder("saved"), why, sizeof why), "%s", why);
    tp_bpe *Y = tp_bpe_open(in_folder("saved"));
    bpe_expect_same(X, Y);
    tp_bpe_close(Y);
    Y = tp_bpe_open(in_folder("saved/vocab.json"));
    bpe_expect_same(X, Y);
    tp_bpe_close(Y);
    snprintf(
        json, sizeof json,
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\"}], \"pre_tokenizer\": {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\", \"dropout\": "
        "null, \"vocab\": %s, \"merges\": [\"a b\", [\"\xc4\xa0\", \"ab\"]]}}",
        vocab);
    write_text("saved/tokenizer.json", json);
    Y = tp_bpe_open(in_folder("saved")); /* it comes first */
    bpe_expect_same(X, Y);
    tp_bpe_close(Y);
    tp_bpe_close(X);
    Y = tp_bpe_open(in_folder("missing"));
    cr_expect(strstr(tp_bpe_why(Y), "missing: No such file"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
    Y = tp_bpe_open(folder);
    cr_expect(strstr(tp_bpe_why(Y), "the folder has no tokenizer.json"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
    write_text("vocab.json", vocab);
    Y = tp_bpe_open(folder);
    cr_expect(strstr(tp_bpe_why(Y), "merges.txt: cannot be opened"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
}

/* Windows editors begin files with a byte order mark or write UTF-16. */
Test(bpe_files, encodings, .init = make_folder, .fini = remove_folder)
{
    static char vocab[1 << 14], marked[(1 << 14) + 4];
    char why[1024];
    bpe_small(vocab, "ab");
    tp_bpe *X = tp_bpe_from("test", vocab, "a b\n", NULL);
    snprintf(marked, sizeof marked, "\xef\xbb\xbf%s", vocab);
    write_text("vocab.json", marked);
    write_text("merges.txt", "\xef\xbb\xbf#version: 0.2\na b\n");
    tp_bpe *Y = tp_bpe_open(folder);
    cr_assert(tp_bpe_ok(Y), "%s", tp_bpe_why(Y));
    bpe_expect_same(X, Y);
    tp_bpe_close(Y);
    tp_bpe_close(X);
    cr_assert(tp_file_replace(in_folder("merges.txt"),
                              "\xff\xfe"
                              "a\0 \0b\0\n",
                              10, why, sizeof why));
    Y = tp_bpe_open(folder);
    cr_expect(strstr(tp_bpe_why(Y), "merges.txt is UTF-16; convert it"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
    write_text("vocab.json", "{\"a\\u0000\": 1}");
    Y = tp_bpe_open(in_folder("vocab.json"));
    cr_expect(*tp_bpe_why(Y) && !strstr(tp_bpe_why(Y), "JSON_"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
    tp_bpe_trainer *R = tp_bpe_trainer_new(NULL);
    cr_expect_not(tp_bpe_trainer_add_file(R, in_folder("merges.txt"), why, sizeof why));
    cr_expect(strstr(why, "merges.txt is UTF-16;"), "%s", why);
    tp_bpe_trainer_free(R);
}

/* fairseq's dictionary gives GPT-2's tokens RoBERTa's ids. */
Test(bpe_files, dictionary)
{
    static char vocab[1 << 14], dict[1 << 14];
    strcpy(vocab, "{");
    bpe_put_bytes(vocab + 1, 0);
    strcat(vocab, "\"ab\": 256}");
    *dict = '\0';
    for (int i = 256; i >= 0; i--) sprintf(dict + strlen(dict), "%d %d\n", i, i);
    strcat(dict, "madeupword0000 0\n");
    tp_bpe *X = tp_bpe_from("test", vocab, "a b\n", dict);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    cr_expect_eq(tp_bpe_size(X), 4 + 258 + 1);
    cr_expect_eq(tp_bpe_id(X, "ab"), 4);
    cr_expect_eq(tp_bpe_id(X, "!"), 4 + 256);
    cr_expect_eq(tp_bpe_id(X, "madeupword0000"), 4 + 257);
    cr_expect_eq(tp_bpe_id(X, "<mask>"), 4 + 258);
    cr_expect_eq(tp_bpe_id(X, "<unk>"), 3);
    tp_bpe_close(X);
}
