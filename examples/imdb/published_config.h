/* published_config.h - what the shapes in a published file do not tell: the config.json beside it. */
#ifndef PUBLISHED_CONFIG_H
#define PUBLISHED_CONFIG_H

#include <tapegrad/file.h>
#include <tapegrad/roberta.h>

/* Sets heads and Longformer's window from the config.json in the folder of F, as the package transformers writes it.
 * What it lacks stays as it is, and so does everything if there is no such file or it is another model's. False with
 * the reason in why if it cannot be read, contradicts c, or asks for another activation than GELU. */
bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size);

#endif
