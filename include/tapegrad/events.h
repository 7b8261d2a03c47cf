/* events.h - event files for TensorBoard (train library): scalars, images, histograms and texts by
 * step.
 *
 * Training programs write them with --tensorboard; tp_run_events (train.h) lets a program add its
 * own. Everything else writes a file by itself:
 *
 *     tp_events *E = tp_events_open("runs/mine", 0);
 *     for (int64_t step = 1; step <= steps; step++) tp_events_scalar(E, "loss", step, loss);
 *     if (!tp_events_ok(E)) fprintf(stderr, "%s\n", tp_events_why(E));
 *     tp_events_close(E);
 *
 * and `tensorboard --logdir runs` shows it. A tag is the name of a curve; one with a '/' belongs to
 * the group before it ("weights/layers.0.weight"). Tags and texts are UTF-8; other bytes become
 * U+FFFD. NaN and infinity are written as they are.
 *
 * Format: records as TensorFlow's RecordIO frames them (length, masked CRC-32C of the length, data,
 * masked CRC-32C of the data), each a protobuf message Event (tensorflow/core/util/event.proto).
 * Each event is one write at the end of the file, so a killed process loses none and a reader may
 * follow. */
#ifndef TAPEGRAD_EVENTS_H
#define TAPEGRAD_EVENTS_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open event file. It may be used by one thread at a time. Like other objects it keeps its first
 * error, after which the calls below do nothing; what was written before stays readable. */
typedef struct tp_events tp_events;

/* Creates a new event file in the folder, which is made where missing. `first` is the first step
 * that it may hold: the file begins with a mark (SessionLog START) for which TensorBoard drops from
 * earlier files of the folder all steps from `first` on. A run that continues after step n opens
 * its file with n + 1, and no step appears twice; with 0 the folder starts over. TensorBoard orders
 * files by their names, which begin with the time. Never NULL. Close it with tp_events_close. */
TP_API tp_events *tp_events_open(const char *folder, int64_t first);

/* False after an error; why: its text, with the file's path; "" if there is none. path: of the
 * file, "" if it could not be named. The texts live until tp_events_close. */
TP_API bool tp_events_ok(const tp_events *E);
TP_API const char *tp_events_why(const tp_events *E);
TP_API const char *tp_events_path(const tp_events *E);

/* Closes the file and frees E, which may be NULL. The file needs no end mark. */
TP_API void tp_events_close(tp_events *E);

/* A point of the curve `tag`. TensorBoard keeps f32. */
TP_API void tp_events_scalar(tp_events *E, const char *tag, int64_t step, double value);

/* An image of height x width pixels, row by row from the top, with 1 (grey), 3 (RGB) or 4 (RGBA)
 * bytes each; written as PNG. */
TP_API void tp_events_image(tp_events *E, const char *tag, int64_t step, int64_t height,
                            int64_t width, int channels, const unsigned char *pixels);

/* An image that is a PNG already: the n bytes of the file. */
TP_API void tp_events_png(tp_events *E, const char *tag, int64_t step, const void *png, size_t n);

/* The distribution of n values in 30 buckets of equal width between the smallest and the largest.
 * NaN and infinities are not counted; without any other value nothing is written. */
TP_API void tp_events_histogram(tp_events *E, const char *tag, int64_t step, const float *x,
                                size_t n);

/* A text, which TensorBoard shows as Markdown. */
TP_API void tp_events_text(tp_events *E, const char *tag, int64_t step, const char *text);

#ifdef __cplusplus
}
#endif
#endif
