/* dtypes.c - the dtypes of the safetensors format, and after them those that only PyTorch's files have. */
#include <string.h>

#include "tensor/file/inner.h"

static const tp_stored table[] = {
    { "F64", 8, TP_STORED_FLOAT, TP_F64 },         { "F32", 4, TP_STORED_FLOAT, TP_F32 },
    { "BF16", 2, TP_STORED_FLOAT, TP_BF16 },       { "F16", 2, TP_STORED_FLOAT, TP_NDTYPES },
    { "I64", 8, TP_STORED_INT, TP_I64 },           { "I32", 4, TP_STORED_INT, TP_I32 },
    { "I16", 2, TP_STORED_INT, TP_NDTYPES },       { "I8", 1, TP_STORED_INT, TP_NDTYPES },
    { "U64", 8, TP_STORED_INT, TP_NDTYPES },       { "U32", 4, TP_STORED_INT, TP_NDTYPES },
    { "U16", 2, TP_STORED_INT, TP_NDTYPES },       { "U8", 1, TP_STORED_INT, TP_U8 },
    { "BOOL", 1, TP_STORED_INT, TP_NDTYPES },      { "C64", 8, TP_STORED_OTHER, TP_NDTYPES },
    { "F8_E4M3", 1, TP_STORED_OTHER, TP_NDTYPES }, { "F8_E5M2", 1, TP_STORED_OTHER, TP_NDTYPES },
    { "F8_E8M0", 1, TP_STORED_OTHER, TP_NDTYPES }, { "C128", 16, TP_STORED_OTHER, TP_NDTYPES },
    { "QI8", 1, TP_STORED_OTHER, TP_NDTYPES },     { "QU8", 1, TP_STORED_OTHER, TP_NDTYPES },
    { "QI32", 4, TP_STORED_OTHER, TP_NDTYPES },
};

const tp_stored *tp__stored(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const tp_stored *tp__stored_as(tp_dtype dt)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].dt == dt) return &table[i];
    return NULL;
}
