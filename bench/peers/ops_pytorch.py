"""Times PyTorch's ops like bench_ops: the same names and shapes, one JSON line for each direction.

    ops_pytorch.py [--device cpu|cuda] [--dtype f32|bf16] [--compile] [--filter text]
                   [--threads n] [--clock wall|cpu] [--seconds s] [--smoke] [--layout last|first]

On the CPU it runs attention (scaled_dot_product_attention on [B,heads,tokens,64] views of packed
[B,tokens,512] tensors, as a model calls it) and the ops of image models; on CUDA also the other ops of language
models, timed by GPU events and queued behind other work so that the GPU does not wait for the host. --compile
uses torch.compile for everything but attention. --smoke: small versions of the CUDA cases, on any device, to try
this program. --layout: the memory layout of images and convolution weights, channels last or first.
"""
import argparse
import collections
import functools
import json
import time

import torch
import torch.nn.functional as F

HEADS, WIDTH, ROWS = 8, 512, 65536
Ids = collections.namedtuple("Ids", "count below")
Map = collections.namedtuple("Map", "batch channels height width")
LAYOUTS = {"last": torch.channels_last, "first": torch.contiguous_format}


def attention(causal):
    def apply(*inputs):
        q, k, v = (x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2) for x in inputs)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2)  # the layout that the following projection reads
    return apply


def conv_case(batch, size, channels, by=1):
    return ("conv2d", f"{batch}x{size}x{size}x{channels} k3", functools.partial(F.conv2d, padding=1),
            [Map(max(batch // by, 1), channels, size, size), Map(channels, channels, 3, 3)])


def depthwise_case(batch, size, channels, stride=1, by=1):
    apply = functools.partial(F.conv2d, padding=1, stride=stride, groups=channels)
    return ("depthwise_conv2d", f"{batch}x{size}x{size}x{channels} k3" + (" s2" if stride == 2 else ""), apply,
            [Map(max(batch // by, 1), channels, size, size), Map(channels, 1, 3, 3)])


def batch_norm(x, w, b):
    return F.batch_norm(x, torch.zeros_like(w), torch.ones_like(w), w, b, training=True)


def resize(mode):
    return functools.partial(F.interpolate, size=(112, 112), mode=mode)


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


def adamw(x):
    """An update of x from its existing gradient; it has no backward."""
    return torch.optim.AdamW([x], lr=1e-3, fused=x.is_cuda)


def cases(device, smoke):
    """(op, shape, function, shapes of the inputs)"""
    if device == "cpu" and not smoke:
        return [("attention", "4096 d512 h8" + (" causal" if c else ""), attention(c), [(1, 4096, WIDTH)] * 3)
                for c in (False, True)] + [
            conv_case(8, 56, 64), conv_case(8, 28, 128), conv_case(8, 14, 256), conv_case(8, 7, 512),
            depthwise_case(8, 56, 64), depthwise_case(8, 56, 64, 2), depthwise_case(8, 28, 192),
            depthwise_case(8, 28, 192, 2), depthwise_case(8, 14, 384), depthwise_case(8, 14, 384, 2),
            ("batchnorm", "8x56x56x64", batch_norm, [Map(8, 64, 56, 56), (64,), (64,)]),
            ("batchnorm", "8x14x14x384", batch_norm, [Map(8, 384, 14, 14), (384,), (384,)]),
            ("max_pool2d", "8x112x112x64 k3 s2", functools.partial(F.max_pool2d, kernel_size=3, stride=2, padding=1),
             [Map(8, 64, 112, 112)]),
            ("avg_pool2d", "8x56x56x64 k2", functools.partial(F.avg_pool2d, kernel_size=2), [Map(8, 64, 56, 56)]),
            ("interpolate", "8x56x56x64 to 112x112", resize("bilinear"), [Map(8, 64, 56, 56)]),
            ("interpolate", "8x56x56x64 to 112x112 bicubic", resize("bicubic"), [Map(8, 64, 56, 56)]),
            ("instancenorm", "8x56x56x64", F.instance_norm, [Map(8, 64, 56, 56)]),
        ] + [recurrent_case(kind, *sizes) for kind in ("lstm", "gru")
             for sizes in ((32, 128, 256), (8, 512, 512), (64, 128, 128))]
    by = 64 if smoke else 1
    n, side, texts = ROWS // by, 8192 // by, 1 if smoke else 8
    rows, long = (n, WIDTH), 134217728 // by // by
    return [
        ("matmul", "8192x8192x8192", torch.matmul, [(side, side)] * 2),
        ("copy", "y = 2x, 128M elements", lambda x: x * 2.0, [(long,)]),
        ("linear", "65536x512->512", F.linear, [rows, (512, 512), (512,)]),
        ("linear", "65536x2048->512", F.linear, [(n, 2048), (512, 2048), (512,)]),
        ("linear_gelu", "65536x512->2048", lambda x, w, b: F.gelu(F.linear(x, w, b)), [rows, (2048, 512), (2048,)]),
        ("mul", "65536x512", lambda x, y: x * y, [rows, rows]),
        ("gelu", "65536x512", F.gelu, [rows]),
        ("softmax", "65536x512", lambda x: x.softmax(-1), [rows]),
        ("layernorm", "65536x512", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), [rows, (WIDTH,), (WIDTH,)]),
        ("dropout_add", "65536x512", lambda x, r: r + F.dropout(x, 0.2), [rows, rows]),
        ("cross_entropy", "65536x208", lambda x, t: F.cross_entropy(x.float(), t), [(n, 208), Ids(n, 208)]),
        ("cross_entropy", "8192x50265", lambda x, t: F.cross_entropy(x.float(), t), [(side, 50265), Ids(side, 50265)]),
        ("embedding", "65536 of 208x512", lambda w, t: F.embedding(t, w), [(208, WIDTH), Ids(n, 208)]),
        ("permute", "8x8192x8x64 to 0213", lambda x: x.transpose(1, 2).contiguous(), [(8, side, 8, 64)]),
        depthwise_case(64, 56, 96, 1, by),
        conv_case(64, 56, 64, by),
        conv_case(64, 14, 256, by),
        ("adamw", "64M elements", adamw, [(long // 2,)]),
        ("attention", "8x4096 d512 h8", attention(False), [(texts, 4096 // by, WIDTH)] * 3),
        ("attention", "8x4096 d512 h8 causal", attention(True), [(texts, 4096 // by, WIDTH)] * 3),
    ]


class HostClock:
    def __init__(self, processor):
        self.now = time.process_time if processor else time.perf_counter

    def seconds(self, work):
        start = self.now()
        result = work()
        return result, self.now() - start


class CardClock:
    def __init__(self):
        self.other = torch.zeros(134217728, device="cuda")

    def seconds(self, work):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(4):
            self.other.max()
        begin.record()
        result = work()
        end.record()
        torch.cuda.synchronize()
        return result, 1e-3 * begin.elapsed_time(end)


def make(shape, args):
    if isinstance(shape, Ids):
        return torch.randint(0, shape.below, (shape.count,), device=args.device)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    layout = LAYOUTS[args.layout] if isinstance(shape, Map) else torch.contiguous_format
    return (torch.rand(tuple(shape), device=args.device) * 2 - 1).to(dtype, memory_format=layout).requires_grad_()


def directions(op, apply, shapes, args, clock):
    """Seconds by direction, without the first two repetitions."""
    inputs = [make(s, args) for s in shapes]
    if op == "adamw":
        inputs[0].grad = torch.rand_like(inputs[0])
        optimiser = apply(*inputs)
    probe, times = None, []
    while len(times) < 4 or sum(map(sum, times)) < 2 * args.seconds:
        if op == "adamw":
            times.append((clock.seconds(optimiser.step)[1],))
            continue
        y, forward = clock.seconds(lambda: apply(*inputs))
        if probe is None:
            probe = torch.rand_like(y) - 0.5
        _, backward = clock.seconds(lambda: y.backward(probe))
        for x in inputs:
            x.grad = None
        times.append((forward, backward))
    return zip(("forward", "backward"), map(sorted, zip(*times[2:])))


def measure(op, name, apply, shapes, args, clock):
    if args.compile and op not in ("attention", "adamw"):
        apply = torch.compile(apply)
    for direction, seconds in directions(op, apply, shapes, args, clock):
        print(json.dumps({
            "peer": f"PyTorch {torch.__version__}" + (", compiled" if args.compile else ""), "op": op,
            "direction": direction, "shape": name, "device": args.device, "dtype": args.dtype,
            "threads": args.threads, "ms": round(1e3 * seconds[len(seconds) // 2], 4),
            "best_ms": round(1e3 * seconds[0], 4), "smoke": args.smoke,
        }), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--filter", default="", help="only ops whose name and shape contain this")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    p.add_argument("--seconds", type=float, default=0.5, help="of each case and direction")
    p.add_argument("--layout", choices=LAYOUTS, default="last")
    p.add_argument("--smoke", action="store_true", help="small shapes; the figures mean nothing")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    clock = HostClock(args.clock == "cpu") if args.device == "cpu" else CardClock()
    for op, name, apply, shapes in cases(args.device, args.smoke):
        if args.filter in f"{op} {name}" and (op != "adamw" or args.dtype == "f32"):
            measure(op, name, apply, shapes, args, clock)


if __name__ == "__main__":
    main()
