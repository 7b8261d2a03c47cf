/* objects.c - detections in an image: memory, and their place in the original image. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/objects.h>

void tp_detected_free(tp_detected *d)
{
    if (!d) return;
    free(d->found);
    free(d->mask);
    *d = (tp_detected){ 0 };
}

void tp_detected_to_original(tp_detected *d, const int64_t resized[2], const int64_t original[2])
{
    if (!d) return;
    const size_t mask = (size_t)(d->side * d->side);
    int64_t kept = 0;
    for (int64_t i = 0; i < d->n; i++) {
        tp_found f = d->found[i];
        if (!tp_to_original(&f, 1, resized, original)) continue;
        d->found[kept] = f;
        if (d->mask && kept < i)
            memcpy(d->mask + (size_t)kept * mask, d->mask + (size_t)i * mask,
                   mask * sizeof *d->mask);
        kept++;
    }
    d->n = kept;
}
