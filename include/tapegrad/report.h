/* report.h - a page about training runs (train library): one HTML file that opens from disk, needs
 * no network and holds settings, machine, learning curves, validations, memory and time of each
 * run. */
#ifndef TAPEGRAD_REPORT_H
#define TAPEGRAD_REPORT_H

#include <stddef.h>
#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the page of n runs to path, which ends in .html, replacing the file as a whole. A run is a
 * folder, or NAME=FOLDER to choose its name on the page. Reads config.json, log.jsonl, pictures
 * (PNG, JPEG, SVG) and samples (sample*.txt) of the folders and of the folders in them; a run may
 * still be writing. Damaged parts are left out, and the page says so. Symbolic links in a folder
 * are not followed, as the page says, because it is meant to be shared. (The folder itself may be
 * one.) Long logs are thinned without losing extremes, and the page stays at about 2 MB. False with
 * the reason in why, path then unchanged. */
TP_API bool tp_report_write(const char *path, const char *const *runs, int n, char *why,
                            size_t size);

#ifdef __cplusplus
}
#endif
#endif
