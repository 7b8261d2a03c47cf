"""Compares the JAX models with PyTorch's.

    jax_check.py [MODEL ...]    check these models, by default all

At the size that benchmarks measure, the parameters of both must have the same names and shapes.
At a small size, in f64, without dropout and with the same parameters, their losses and gradients
must agree to 1e-9. A model whose library is not installed is skipped with a line.
"""
import argparse
import functools
import sys

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import torch

import jax_models
from jax_layers import BUFFERS, listed

TOLERANCE = 1e-9


def resnet(small):
    import torchvision.models

    if not small:
        return torchvision.models.resnet50(), {}
    block = torchvision.models.resnet.Bottleneck
    model = torchvision.models.ResNet(block, [2, 1, 1, 1], num_classes=10)
    return model, dict(depths=(2, 1, 1, 1), classes=10)


def deit(small):
    import timm

    options = dict(embed_dim=32, depth=2, num_heads=2, img_size=64, num_classes=10)
    model = timm.create_model("deit_small_patch16_224", **(options if small else {}))
    return model, dict(dim=32, depth=2, heads=2, classes=10) if small else {}


def vil(small):
    import images_pytorch

    arch = jax_models.jax_images.VIL_TINY
    if not small:
        return images_pytorch.Vil(arch, [224, 224], 1000), {}
    arch = "l1,h1,d8,n1,s1,g1,p4,f3,a0_l2,h2,d16,n1,s1,g0,p2,f3,a0_l3,h2,d16,n1,s0,g1,p2,f7,a0"
    return images_pytorch.Vil(arch, [64, 64], 10), dict(arch=arch, classes=10)


def cvt(small):
    import images_pytorch

    if not small:
        return images_pytorch.MODELS["cvt-ls-13"](), {}
    sizes = dict(dims=(8, 16, 24), heads=(1, 2, 3), depth=(1, 1, 2), rank=(5, 4, 2), w=(8, 4, 2))
    return images_pytorch.CvtLs(*sizes.values(), [56, 56], 10), dict(sizes, classes=10)


def lsla(small):
    import vit_lsla_pytorch

    sizes = dict(dim=16, depths=(2, 2), heads=(1, 2), window=4, classes=10) if small else {}
    image = dict(image=(32, 32)) if small else {}
    return vit_lsla_pytorch.ViT(dict(vit_lsla_pytorch.PAPER, **sizes, **image)), sizes


def ls_lm(small):
    import ls_lm_pytorch

    sizes = dict(dim=16, heads=2, chunk=4, rank=2, hidden=24, vocab=50)
    if not small:
        return ls_lm_pytorch.LanguageModel(ls_lm_pytorch.config({})), {}
    sizes = dict(ls_lm_pytorch.config({}), **sizes, window=8, mem_len=16, layers=2)
    keys = "dim", "heads", "chunk", "rank", "hidden", "vocab"
    return ls_lm_pytorch.LanguageModel(sizes), {k: sizes[k] for k in keys} | dict(
        depth=2, w=8, drop=0)


def gpt2(small):
    import transformers

    sizes = dict(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=50) if small else {}
    config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes)
    model = transformers.GPT2LMHeadModel(config)
    return model, dict(zip(("dim", "depth", "heads", "places", "vocab"), sizes.values()))


def roberta(small):
    import roberta_transformers
    import transformers

    if not small:
        return roberta_transformers.build("roberta-base"), {}
    config = transformers.RobertaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        vocab_size=50, max_position_embeddings=34, type_vocab_size=1, layer_norm_eps=1e-5,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return transformers.RobertaForSequenceClassification(config), dict(
        dim=32, depth=2, heads=4, places=34, vocab=50, drop=0)


MODELS = {"resnet50": resnet, "deit-s": deit, "vil-tiny": vil, "cvt-ls-13": cvt, "vit_lsla": lsla,
          "ls_lm-small": ls_lm, "gpt2": gpt2, "roberta-base": roberta}


def in_jax(tensor, kind):
    """PyTorch's layout to JAX's."""
    x = tensor.detach().numpy()
    return x.T if kind == "linear" else x.transpose(2, 3, 1, 0) if kind == "conv" else x


def inputs(name):
    """Of the small sizes, for PyTorch."""
    if name in jax_models.IMAGES:
        side = {"vit_lsla": 32, "cvt-ls-13": 56}.get(name, 64)  # 56: windows that lap over
        return torch.randn(2, 3, side, side, dtype=torch.float64), torch.tensor([3, 7])
    x = torch.randint(4, 50, (2, 17))
    return x[:, :-1], torch.tensor([0, 1]) if name == "roberta-base" else x[:, 1:]


def to_jax(x):
    x = x.numpy()
    return jnp.asarray(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x)


def check_names(name):
    """Names and shapes at the size that is measured; returns the number of parameters."""
    model = (jax_models.IMAGES | jax_models.TEXTS)[name][0]
    x = (1, 224, 224, 3) if name in jax_models.IMAGES else (1, 512)
    asked = listed(model, jax.ShapeDtypeStruct(x, jnp.float32 if len(x) == 4 else jnp.int32))
    with torch.device("meta"):
        theirs = dict(MODELS[name](False)[0].named_parameters())
    flip = dict(linear=lambda s: s[::-1], conv=lambda s: (s[3], s[2], s[0], s[1]))
    ours = {k: flip.get(kind, tuple)(shape) for k, (shape, kind) in asked.items()
            if kind not in BUFFERS}
    want = {k: tuple(p.shape) for k, p in theirs.items()}
    if ours != want:
        sys.exit(f"{name}: parameters differ: {sorted(ours.items() ^ want.items())}")
    return sum(p.numel() for p in theirs.values())


def relative_error(got, want):
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-5))


def check_values(name):
    """The largest relative error of loss and gradients."""
    module, sizes = MODELS[name](True)
    module = module.double().train()
    for p in module.parameters():
        torch.nn.init.normal_(p, 0.5 if p.dim() == 1 else 0.0, 0.3)
    model = functools.partial((jax_models.IMAGES | jax_models.TEXTS)[name][0], **sizes)
    x, y = inputs(name)
    asked = listed(model, to_jax(x))
    theirs, stored = dict(module.named_parameters()), dict(module.named_buffers())
    stored |= {k: torch.randn(shape, dtype=torch.float64) for k, (shape, kind) in asked.items()
               if kind in BUFFERS and k not in stored}  # the caches of a language model
    values = {k: jnp.array(in_jax((theirs | stored)[k], kind)) for k, (_, kind) in asked.items()}

    caches = [stored.pop(k) for k in list(stored) if k.endswith("cache")]
    z = module(x, caches)[0] if caches else module(x)
    z = getattr(z, "logits", z)
    loss = torch.nn.functional.cross_entropy(z.flatten(0, -2), y.flatten())
    loss.backward()
    grad = jax.value_and_grad(functools.partial(jax_models.loss_of, model, jnp.float64),
                              has_aux=True)
    (got, fresh), grads = jax.jit(grad)(values, None, to_jax(x), to_jax(y))
    errors = [relative_error(np.asarray(got), loss.item())]
    errors += [relative_error(np.asarray(grads[k]), in_jax(p.grad, asked[k][1]))
               for k, p in theirs.items()]
    errors += [relative_error(np.asarray(v), stored[k].numpy()) for k, v in fresh.items()
               if k in stored]
    return max(errors)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    torch.manual_seed(1)
    for name in p.parse_args().models or MODELS:
        try:
            count = check_names(name)
        except ImportError as missing:
            print(f"{name}: skipped, {missing}")
            continue
        error = check_values(name)
        print(f"{name}: {count} parameters, error {error:.1e}", flush=True)
        if not error < TOLERANCE:
            sys.exit(f"{name}: differs from PyTorch")


if __name__ == "__main__":
    main()
