/* block.h - the size of a reduction block: sums over such blocks are added in order. */
#ifndef TP_GEOMETRY_BLOCK_H
#define TP_GEOMETRY_BLOCK_H

#define TP_BLOCK 4096

#endif
