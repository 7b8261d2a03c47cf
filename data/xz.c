/* xz.c - finds the largest dictionary that an .xz file declares. liblzma allocates it before
 * reading any data of a block, so all blocks are checked first, without unpacking:
 *
 *     stream   header 12 | blocks | index | footer 12        streams, with zeros between them
 *     block    header | LZMA2 chunks, a zero | padding to 4 | check
 *     chunk    01, 02: size - 1 in 2 bytes | as many          80 and above: 2 bytes | packed
 *              size - 1 in 2 bytes | properties, from c0 on | packed bytes
 *
 * The walk ends at damaged data, where liblzma stops as well. */
#include <string.h>

#include "load.h"

enum { HEADER = 12, LZMA2 = 0x21 };

typedef struct walk {
    const uint8_t *at, *end;
    size_t check; /* bytes of a block's check */
    int largest;  /* dictionary so far        */
} walk;

static size_t left(const walk *w)
{
    return (size_t)(w->end - w->at);
}

static bool skip(walk *w, size_t n)
{
    if (n > left(w)) return false;
    w->at += n;
    return true;
}

static size_t two(const uint8_t *p)
{
    return (size_t)p[0] << 8 | p[1];
}

static bool number(walk *w, uint64_t *x)
{
    *x = 0;
    for (int k = 0; k < 9 && left(w) > 0; k++) {
        const uint8_t b = *w->at++;
        *x |= (uint64_t)(b & 0x7f) << (7 * k);
        if (!(b & 0x80)) return true;
    }
    return false;
}

/* Reads a header: flags, the sizes that the flags announce, and filters: id, length, properties. */
static bool block_header(walk *w)
{
    const size_t size = 4 * ((size_t)w->at[0] + 1);
    uint64_t x, id, n;
    if (size > left(w)) return false;
    walk h = { w->at + 2, w->at + size, 0, 0 };
    const uint8_t flags = w->at[1];
    for (int sizes = (flags >> 6 & 1) + (flags >> 7); sizes > 0; sizes--)
        if (!number(&h, &x)) return false;
    for (int filters = (flags & 3) + 1; filters > 0; filters--) {
        if (!number(&h, &id) || !number(&h, &n) || n > left(&h)) return false;
        if (id == LZMA2 && n == 1 && *h.at > w->largest) w->largest = *h.at;
        h.at += n;
    }
    w->at += size;
    return true;
}

static bool block(walk *w)
{
    const uint8_t *begin;
    if (!block_header(w)) return false;
    for (begin = w->at; left(w) > 0 && *w->at;) {
        const uint8_t kind = *w->at;
        const size_t head = kind >= 0xc0 ? 6 : kind >= 0x80 ? 5 : 3;
        if (head > left(w) || !skip(w, head + two(w->at + (kind >= 0x80 ? 3 : 1)) + 1))
            return false;
    }
    if (!skip(w, 1)) return false;
    const size_t bytes = (size_t)(w->at - begin);
    return skip(w, (4 - bytes % 4) % 4 + w->check);
}

/* Skips the index: a zero, the number of records, two numbers each, padding to 4 bytes, a check. */
static bool index_and_footer(walk *w)
{
    const uint8_t *begin = w->at++;
    uint64_t records, unpadded, unpacked;
    if (!number(w, &records)) return false;
    for (; records > 0; records--)
        if (!number(w, &unpadded) || !number(w, &unpacked)) return false;
    return skip(w, (4 - (size_t)(w->at - begin) % 4) % 4 + 4 + HEADER);
}

static bool stream(walk *w)
{
    static const uint8_t check[16] = { 0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64 };
    static const uint8_t magic[] = { 0xfd, '7', 'z', 'X', 'Z', 0 };
    if (left(w) < HEADER || memcmp(w->at, magic, sizeof magic) != 0) return false;
    w->check = check[w->at[7] & 15];
    w->at += HEADER;
    while (left(w) > 0 && *w->at)
        if (!block(w)) return false;
    return left(w) > 0 && index_and_footer(w);
}

bool tp__immodest_xz(const uint8_t *bytes, size_t n)
{
    enum { LARGEST = 32 /* 2^(32 / 2 + 12) */ };
    walk w = { .at = bytes, .end = bytes + n };
    while (stream(&w))
        while (left(&w) > 0 && *w.at == 0) w.at++;
    return w.largest > LARGEST;
}
