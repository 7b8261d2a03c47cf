/* configs.h - the descriptions beside published files: config.json of transformers,
 * adapter_config.json of peft. */
#ifndef REPORTS_CONFIGS_H
#define REPORTS_CONFIGS_H

#include <jansson.h>
#include <stddef.h>
#include <tapegrad/model.h>

/* Reads the config.json in the folder of `file`, whose path it writes to `path`; the caller
 * releases the result. flag: what to give where it cannot be read, in the message. NULL with the
 * reason in why, empty if there is no such file. */
json_t *config_beside(const char *file, const char *flag, char *path, size_t path_size, char *why,
                      size_t size);
/* The same of a file of another name. flag NULL: nothing can be given in its place. */
json_t *description_beside(const char *file, const char *name, const char *flag, char *path,
                           size_t path_size, char *why, size_t size);

/* The GPT-2 or Llama that the config.json beside F describes; c has no model if there is none.
 * False with a sentence in why if it cannot be read, describes another model, or asks for what is
 * not built. */
bool config_gpt(tp_model_cfg *c, const tp_file *F, char *why, size_t size);

/* The alpha that tp_lora_apply needs for the adaptations in F: 0 if F says it itself, else as the
 * adapter_config.json beside F describes it. False with a sentence in why if it cannot be read, is
 * missing, contradicts F, or asks for what is not built. */
bool config_adapter(const tp_file *F, double *alpha, char *why, size_t size);

#endif
