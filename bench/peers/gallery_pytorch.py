"""Steps per second of programs of examples/gallery beside the same models in PyTorch.

    gallery_pytorch.py [--bin DIR] [--threads N] [--rounds N] [--no-compile] [PROGRAM ...]

The programs run in turns with PyTorch, eager and compiled, and the fastest round of each counts.
The clock is CPU time, with one thread unless --threads says otherwise, so that other work on the
machine disturbs little. A program is timed by the difference between two numbers of steps, without
start and test. Its steps include drawing the data; PyTorch's take random batches that were drawn
before.
"""
import argparse
import math
import os
import resource
import subprocess
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.GroupNorm(4, cout),
                         nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1, bias=False),
                         nn.GroupNorm(4, cout), nn.SiLU())


class LstmText(nn.Module):
    clip = 1.0

    def __init__(self):
        super().__init__()
        self.letters, self.out = nn.Embedding(256, 128), nn.Linear(128, 256)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.memory = tuple(torch.zeros(1, 32, 128) for _ in range(2))

    def batch(self):
        return torch.randint(97, 123, (32, 65))

    def forward(self, text):
        y, memory = self.lstm(self.letters(text[:, :-1]), self.memory)
        self.memory = tuple(m.detach() for m in memory)
        return F.cross_entropy(self.out(y).flatten(0, 1), text[:, 1:].flatten())


class Adder(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.symbols = nn.Embedding(12, width)
        self.question = nn.Parameter(torch.randn(7, width))
        self.answer = nn.Parameter(torch.randn(4, width))
        options = dict(dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoderLayer(width, heads, 4 * width, **options)
        self.decoder = nn.TransformerDecoderLayer(width, heads, 4 * width, **options)
        self.out = nn.Linear(width, 10)
        self.mask = nn.Transformer.generate_square_subsequent_mask(4)

    def batch(self):
        return torch.randint(0, 10, (128, 12))

    def forward(self, s):
        memory = self.encoder(self.symbols(s[:, :7]) + self.question)
        given, wanted = s[:, 7:11], s[:, 8:]
        y = self.decoder(self.symbols(given) + self.answer, memory, tgt_mask=self.mask,
                         tgt_is_causal=True)
        return F.cross_entropy(self.out(y).flatten(0, 1), wanted.flatten())


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(256, 128), nn.Tanh(), nn.Linear(128, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 256))

    def batch(self):
        return torch.rand(64, 256)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        pixels = F.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="sum")
        kl = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum()
        return (pixels + kl) / len(x)


class UnetDenoiser(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.down = nn.ModuleList([conv_block(1, w), conv_block(w, 2 * w)])
        self.middle = conv_block(2 * w, 4 * w)
        self.up = nn.ModuleList([conv_block(2 * w, w), conv_block(4 * w, 2 * w)])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2),
                                   nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)])
        self.out = nn.Conv2d(w, 1, 1)

    def batch(self):
        return torch.rand(16, 1, 32, 32).to(memory_format=torch.channels_last)

    def forward(self, image):
        noisy = image + 0.3 * torch.randn_like(image)
        a = self.down[0](noisy)
        b = self.down[1](F.max_pool2d(a, 2))
        x = self.grow[1](self.middle(F.max_pool2d(b, 2)))
        x = self.grow[0](self.up[1](torch.cat([b, x], 1)))
        return F.mse_loss(noisy - self.out(self.up[0](torch.cat([a, x], 1))), image)


PEERS = {"lstm_text": (LstmText, 40), "adder": (Adder, 60), "vae": (Vae, 400),
         "unet_denoiser": (UnetDenoiser, 15)} # and the steps of a round


class Peer:
    def __init__(self, make, compiled):
        torch.manual_seed(1)
        self.model = make().to(memory_format=torch.channels_last)
        self.loss = torch.compile(self.model) if compiled else self.model
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batches = [self.model.batch() for _ in range(8)]

    def steps(self, n):
        """Seconds of a step"""
        began = time.process_time()
        for i in range(n):
            self.optim.zero_grad()
            self.loss(self.batches[i % 8]).backward()
            if hasattr(self.model, "clip"):
                nn.utils.clip_grad_norm_(self.model.parameters(), self.model.clip)
            self.optim.step()
        return (time.process_time() - began) / n


def children():
    """CPU seconds of the processes that have ended"""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(program, n, threads, folder):
    """Seconds of a step: of a run with 3 n steps, less one with n"""
    took = []
    for steps in (n, 3 * n):
        began = children()
        subprocess.run([program, "--steps", str(steps), "--threads", str(threads)], cwd=folder,
                       stdout=subprocess.DEVNULL, check=True)
        took.append(children() - began)
    return (took[1] - took[0]) / (2 * n)


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--bin", default="build/release/bin")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--no-compile", action="store_true", help="eager only")
    a.add_argument("programs", nargs="*", metavar="PROGRAM")
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    print("program         tapegrad     eager  compiled  steps/s   ratio to the best")
    for name in a.programs or PEERS:
        make, n = PEERS[name]
        peers = [Peer(make, compiled) for compiled in (False, True)[: 1 if a.no_compile else 2]]
        best = [math.inf] * 3 # of a way that was not tried: 0 steps/s
        for p in peers:
            p.steps(4) # compiles, warms up
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(a.rounds):
                program = os.path.abspath(os.path.join(a.bin, name))
                turn = [ours(program, n, a.threads, folder)] + [p.steps(n) for p in peers]
                best[: len(turn)] = [min(b, t) for b, t in zip(best, turn)]
        print(f"{name:14} " + " ".join(f"{1 / b:9.1f}" for b in best) +
              f"           {min(best[1:]) / best[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
