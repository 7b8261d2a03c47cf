/* block.h - elements of a fixed reduction block: sums over blocks of this size are added in order. */
#ifndef TP_GEOMETRY_BLOCK_H
#define TP_GEOMETRY_BLOCK_H

#define TP_BLOCK 4096

#endif
