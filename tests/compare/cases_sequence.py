"""Recurrent networks: layers, directions, lengths, states."""
import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from draw import MEANT, Call, case

MEANT["lstm, gru"] = ("sequences of length 0 and inputs without rows or steps are accepted; "
                      "PyTorch refuses them, so they are not drawn")


@case("lstm", "gru", stored=4)
def recurrent(d, name):
    b, n, hidden, channels = (d.int(1, most)
                              for most in ((3, 4, 3, 2) if d.flag(0.3) else (20, 12, 40, 9)))
    layers, both, bias = d.pick([1, 1, 2, 3]), d.flag(0.4), d.flag(0.8)
    lengths = 1 + d.ints([b], n) if d.flag() else None
    states = [layers * (1 + both), b, hidden]
    first = [d.normal(states) if d.flag(0.6) else None for _ in range(2 if name == "lstm" else 1)]
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](
        channels, hidden, layers, bias=bias, batch_first=True, bidirectional=both,
        dtype=torch.float64)
    params = {k: d.normal(list(v.shape), 0.4) for k, v in module.named_parameters()}

    def run(x, lengths=None, *first, params):
        first = [torch.zeros(states, dtype=x.dtype) if s is None else s for s in first]
        start = tuple(first) if name == "lstm" else first[0]
        packed = x if lengths is None else pack_padded_sequence(x, lengths.long(), True,
                                                                enforce_sorted=False)
        y, last = torch.func.functional_call(module, params, (packed, start))
        if lengths is not None:
            y = pad_packed_sequence(y, True, total_length=n)[0]
        return (y, *last) if name == "lstm" else (y, last)
    options = {"in": channels, "hidden": hidden, "layers": layers, "bidirectional": both,
               "bias_free": not bias}
    lengths = None if lengths is None else np.asarray(lengths)
    return Call([d.normal([b, n, channels]), lengths, *first], options, run, params=params)
