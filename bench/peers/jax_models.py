"""Models in JAX, for comparison in benchmarks: one jitted function takes a training step.

    jax_models.py --bench MODEL [options]    time a training step and print one JSON line

A step is forward, cross entropy, backward and AdamW on random images or tokens. It has dropout
where the PyTorch script has it: in ls_lm-small and roberta-base. jax_check.py compares the models
with PyTorch's. With bf16, parameters and moments stay f32, and so do norms, softmax and the loss.
XLA has a thread for each core, so --threads takes that many cores. With JAX_COMPILATION_CACHE_DIR
set, a step is compiled once.
"""
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

import jax_images
import jax_texts
import measure
from jax_layers import BUFFERS, Store, Weights, cross_entropy, drawn, listed

IMAGES = {  # name: (model, classes)
    "resnet50": (jax_images.resnet, 1000),
    "deit-s": (jax_images.deit, 1000),
    "vil-tiny": (jax_images.vil, 1000),
    "cvt-ls-13": (jax_images.cvt_ls, 1000),
    "vit_lsla": (jax_images.vit_lsla, 102),
}
TEXTS = {  # name: (model, smallest token, vocabulary, classes of a text or None: the next token)
    "ls_lm-small": (jax_texts.ls_lm, 4, 208, None),
    "gpt2": (jax_texts.gpt2, 0, 50257, None),
    "roberta-base": (jax_texts.roberta, 4, 50265, 2),
}


def batches(args):
    """A function that draws inputs and labels."""
    rng = np.random.default_rng(1)
    if args.bench in IMAGES:
        x = rng.standard_normal((args.batch, 224, 224, 3), np.float32)
        same = jnp.asarray(x), jnp.arange(args.batch) * 7 % IMAGES[args.bench][1]
        return lambda: same
    _, first, vocab, classes = TEXTS[args.bench]

    def draw():
        ids = rng.integers(first, vocab, (args.batch, args.tokens + 1), np.int32)
        labels = ids[:, 1:] if classes is None else rng.integers(classes, size=args.batch)
        return jnp.asarray(ids[:, :-1]), jnp.asarray(labels)

    return draw


def loss_of(model, dtype, values, key, x, y):
    """The loss, and the buffers' next values."""
    store = Store(values, key, dtype)
    return cross_entropy(model(Weights(store), x), y), store.fresh


def adamw(state, grads, lr=1e-4, decay=0.01, b1=0.9, b2=0.999, eps=1e-8):
    """state: (step, {name: (value, mean, square)})"""
    step, params = state[0] + 1, {}
    for name, (w, m, v) in state[1].items():
        g = grads[name]
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        size = jnp.sqrt(v / (1 - b2**step)) + eps
        params[name] = w - lr * (decay * w + m / (1 - b1**step) / size), m, v
    return step, params


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def train_step(model, dtype, state, buffers, key, x, y):
    def loss(values):
        return loss_of(model, dtype, {**values, **buffers}, key, x, y)

    values = {name: w for name, (w, _, _) in state[1].items()}
    (value, fresh), grads = jax.value_and_grad(loss, has_aux=True)(values)
    return adamw(state, grads), {**buffers, **fresh}, value


def bench(args):
    model = (IMAGES | TEXTS)[args.bench][0]
    dtype = jnp.bfloat16 if args.dtype == "bf16" else jnp.float32
    draw = batches(args)
    asked = listed(model, draw()[0])
    values = drawn(asked)
    buffers = {name: w for name, w in values.items() if asked[name][1] in BUFFERS}
    state = jnp.zeros(()), {name: (w, jnp.zeros_like(w), jnp.zeros_like(w))
                            for name, w in values.items() if name not in buffers}
    key, loss = jax.random.key(1), None
    del values

    def step(x, y):
        nonlocal state, buffers, key, loss
        key, drops = jax.random.split(key)
        state, buffers, loss = train_step(model, dtype, state, buffers, drops, x, y)

    wait = lambda: jax.block_until_ready((state, loss))
    seconds = measure.median(measure.times(args, draw, step, wait))
    figures = dict(model=args.bench, dtype=args.dtype, batch=args.batch, threads=args.threads)
    if args.bench in IMAGES:
        figures.update(seconds=seconds, images_per_s=args.batch / seconds)
    else:
        tokens_per_s = args.batch * args.tokens / seconds
        figures.update(tokens=args.tokens, seconds=seconds, tokens_per_s=tokens_per_s)
    if not jnp.isfinite(loss):
        raise SystemExit(f"jax_models.py: the loss of {args.bench} is {loss}")
    measure.show(f"JAX {jax.__version__}", **figures, peak_mb=measure.resident_mb())


def main():
    p = measure.parser(__doc__, 1, {**IMAGES, **TEXTS}, without=("device", "compile",
                                                                 "channels-last"))
    p.add_argument("--tokens", type=int, default=2048)
    args = p.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: args.threads])  # before XLA starts its threads
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")  # XLA's own generator
    if args.bench:
        bench(args)


if __name__ == "__main__":
    main()
