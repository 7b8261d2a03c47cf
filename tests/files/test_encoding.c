/* test_encoding.c - byte order marks, encodings and zero bytes in the content of files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/file.h>

#define BYTES(s) (s), sizeof(s) - 1

static void expect(const char *text, size_t n, const char *left, const char *reason)
{
    char why[200] = "";
    const char *at = text;
    size_t m = n;
    const bool done = tp_skip_bom(&at, &m, why, sizeof why);
    cr_expect_eq(done, !reason, "%.20s: %s", text, why);
    if (reason)
        cr_expect(strncmp(why, reason, strlen(reason)) == 0, "'%s' is not '%s'", why, reason);
    if (reason)
        cr_expect(at == text && m == n, "what is refused stays as it was");
    else
        cr_expect(m == strlen(left) && (m == 0 || memcmp(at, left, m) == 0), "%.20s", text);
}

Test(encoding, utf8)
{
    expect(BYTES("a b\n"), "a b\n", NULL);
    expect(BYTES(""), "", NULL);
    expect(NULL, 0, "", NULL);
    expect(BYTES("\xef\xbb\xbf{}"), "{}", NULL);
    expect(BYTES("\xef\xbb\xbf"), "", NULL);
    expect(BYTES("\xef\xbb"), "\xef\xbb", NULL);
    expect(BYTES("caf\xe9"), "caf\xe9", NULL); /* UTF-8 readers say more */
    expect(BYTES("a\xef\xbb\xbf"), "a\xef\xbb\xbf", NULL);
}

Test(encoding, other_encodings)
{
    expect(BYTES("\xff\xfe{\0}\0"), NULL,
           "is UTF-16; convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8");
    expect(BYTES("\xfe\xff\0{\0}"), NULL, "is UTF-16;");
    expect(BYTES("\xff\xfe\x60\x4f\x7d\x59"), NULL, "is UTF-16;"); /* no zero byte */
    expect(BYTES("\xff\xfe\0\0{\0\0\0"), NULL, "is UTF-32;");
    expect(BYTES("\0\0\xfe\xff\0\0\0{"), NULL, "is UTF-32;");
    expect(BYTES("{\0}\0"), NULL, "is UTF-16LE;");
    expect(BYTES("\0{\0}"), NULL, "is UTF-16BE;");
    expect(BYTES("1\0\n\0\n\0"), NULL, "is UTF-16LE;");
    expect(BYTES("\x2d\x4e\x87\x65\n\0\x2d\x4e\n\0"), NULL, "is UTF-16LE;");
    expect(BYTES("{\0\0\0}\0\0\0"), NULL, "is UTF-32LE;");
    expect(BYTES("\0\0\0{\0\0\0}"), NULL, "is UTF-32BE;");
    expect(BYTES("\x60\x4f\0\0\0\xf6\x01\0"), NULL, "is UTF-32LE;");
}

Test(encoding, zero_bytes)
{
    static char text[10000];
    expect(BYTES("abc\0def"), NULL, "has a zero byte at offset 3:");
    expect(BYTES("\0\0\0\0\0\0\0\0"), NULL, "has a zero byte at offset 0:"); /* not UTF-32 */
    expect(BYTES("\xef\xbb\xbf"
                 "a\0bc"),
           NULL, "has a zero byte at offset 4:");
    expect(BYTES("a\0\0b"), NULL, "has a zero byte at offset 1:");
    expect(BYTES("a\0"), NULL, "has a zero byte at offset 1:");
    memset(text, 'a', sizeof text);
    text[9999] = 0;
    expect(text, sizeof text, NULL, "has a zero byte at offset 9999:");
    text[9999] = 'a', text[101] = 0;
    expect(text, sizeof text, NULL, "has a zero byte at offset 101:");
}

Test(encoding, json_reasons)
{
    cr_expect_str_eq(tp_json_reason("']' expected near '1'"), "']' expected near '1'");
    cr_expect(!strstr(tp_json_reason("\\u0000 is not allowed without JSON_ALLOW_NUL"), "JSON_"));
}
