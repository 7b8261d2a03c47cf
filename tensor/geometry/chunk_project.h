/* chunk_project.h - attributes of the dynamic projection. */
#ifndef TP_CHUNK_PROJECT_H
#define TP_CHUNK_PROJECT_H

#include <tapegrad/op.h>

typedef struct tp__chunk_attr {
    int64_t heads, chunk, rank;
} tp__chunk_attr;

#endif
