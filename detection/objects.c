/* objects.c - detections. */
#include <stdlib.h>

#include <tapegrad/detection/objects.h>

void tp_detected_free(tp_detected *d)
{
    free(d->found);
    free(d->mask);
    *d = (tp_detected){ 0 };
}
