"""What the cases of ops_pytorch.py share: how inputs are described. A tuple is the shape of floats in [-1, 1)."""
import collections

HEADS, WIDTH = 8, 512
Ids = collections.namedtuple("Ids", "count below")  # integers; count is a number or a shape
Map = collections.namedtuple("Map", "batch channels height width")  # floats in the layout of images
Numbers = collections.namedtuple("Numbers", "shape unit fixed", defaults=(False, False))
"""Floats: `unit` ones lie in [0, 1), `fixed` ones have no gradient."""
