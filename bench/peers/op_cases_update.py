"""Updates of one parameter by PyTorch's optimisers."""
import torch


class Update:
    """An update of x from its existing gradient, which has no backward: the optimisers to choose the fastest of."""

    def __init__(self, kind, ways=("foreach", "fused")):
        self.kind, self.ways = kind, ways

    def optimisers(self, x):
        return [self.kind([x], lr=1e-3, **({way: True} if way else {})) for way in (None, *self.ways)]


MANY = [(4194304,)]
CASES = [
    ("adamw", "4M elements", Update(torch.optim.AdamW), MANY),
    ("rmsprop", "4M elements", Update(torch.optim.RMSprop, ["foreach"]), MANY),
    ("adafactor", "2048x2048", Update(torch.optim.Adafactor, ["foreach"]), [(2048, 2048)]),
    ("adagrad", "4M elements", Update(torch.optim.Adagrad), MANY),
]
