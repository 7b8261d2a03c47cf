"""Reductions, and what normalises along an axis."""
CASES = [
    ("softmax", "4096x512", lambda x: x.softmax(-1), [(4096, 512)]),
]
