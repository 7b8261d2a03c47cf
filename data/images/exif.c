/* exif.c - the orientation given in the EXIF data of an image.
 *
 * EXIF data are a TIFF structure: "II" (little-endian) or "MM", 42, the offset of a directory. The
 * directory is a count and entries of 12 bytes: tag, type, count, value. */
#include "inner.h"

static uint32_t number(const uint8_t *at, int bytes, bool little)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | at[little ? bytes - 1 - i : i];
    return x;
}

int tp__exif_orientation(const uint8_t *tiff, size_t n)
{
    enum { ENTRY = 12, TAG = 0x112, SHORT = 3 };
    if (n < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M')) return 1;
    const bool little = tiff[0] == 'I';
    const size_t directory = number(tiff + 4, 4, little);
    if (number(tiff + 2, 2, little) != 42 || directory > n - 2) return 1;
    const size_t entries = number(tiff + directory, 2, little);
    const uint8_t *e = tiff + directory + 2;
    for (size_t i = 0; i < entries && ENTRY <= (size_t)(tiff + n - e); i++, e += ENTRY) {
        const uint32_t value = number(e + 8, 2, little);
        if (number(e, 2, little) == TAG && number(e + 2, 2, little) == SHORT && value >= 1 &&
            value <= 8)
            return (int)value;
    }
    return 1;
}
