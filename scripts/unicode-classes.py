#!/usr/bin/env python3
"""Prints data/text/unicode_classes.inc: letters, numbers and white space of Python's Unicode.

    scripts/unicode-classes.py >data/text/unicode_classes.inc
"""
import unicodedata

SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
         0x205F, 0x3000}

def class_of(c):
    return "S" if c in SPACE else {"L": "L", "N": "N"}.get(unicodedata.category(chr(c))[0], "")

ranges, c = [], 0
while c < 0x110000:
    kind, first = class_of(c), c
    while c < 0x110000 and class_of(c) == kind:
        c += 1
    if kind:
        ranges.append(f"{kind}({first:X}, {c - 1:X})")
print("/* unicode_classes.inc - ranges of letters L, numbers N and white space S, in order. "
      "Printed by")
print(f" * scripts/unicode-classes.py from Unicode {unicodedata.unidata_version}. */")
print("/* clang-format off */")
for i in range(0, len(ranges), 5):
    print(" ".join(ranges[i:i + 5]))
