"""Recurrent layers."""
import torch


def recurrent(kind):
    """What torch.nn.LSTM and torch.nn.GRU call: one layer, batch first, from zeros."""
    def apply(x, *weights):
        h = x.new_zeros(1, x.shape[0], weights[1].shape[1])
        f, first = (torch.lstm, (h, h)) if kind == "lstm" else (torch.gru, h)
        return f(x, first, weights, True, 1, 0.0, True, False, True)[0]
    return apply


def recurrent_case(kind, batch, width, hidden):
    rows = hidden * {"lstm": 4, "gru": 3}[kind]
    return (kind, f"{batch}x500x{width} to {hidden}", recurrent(kind),
            [(batch, 500, width), (rows, width), (rows, hidden), (rows,), (rows,)])


CASES = [recurrent_case(kind, *sizes) for kind in ("lstm", "gru")
         for sizes in ((32, 128, 256), (8, 512, 512), (64, 128, 128))]
