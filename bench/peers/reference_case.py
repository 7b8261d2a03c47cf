"""Reference cases, and the comparison of image models with them."""
import os
import sys

import torch


def load_case(path):
    """Tensors, with numbers in double, and metadata."""
    from safetensors import safe_open

    with safe_open(path, "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
        meta = dict(f.metadata())
    return {k: v.double() if v.is_floating_point() else v for k, v in tensors.items()}, meta


def relative_error(got, want):
    return (got.detach() - want).abs().max().item() / max(want.abs().max().item(), 1e-5)


def stored_state(tensors):
    """The case's parameters and buffers by the names in the model."""
    kinds = ("param.", "buffer.")
    return {k.split(".", 1)[1]: v for k, v in tensors.items() if k.startswith(kinds)}


def check_images(folder, names, make):
    """Compares logits and gradients with the cases; make(meta, image) builds a case's model."""
    for name in names:
        t, meta = load_case(os.path.join(folder, name + ".safetensors"))
        image = next(t[k] for k in ("input.image", "input.x") if k in t)
        model = make(meta, image).double().train(meta["mode"] == "train")
        stored, own = stored_state(t), model.state_dict()
        model.load_state_dict({k: stored.get(k, own[k]) for k in own})
        y = model(image)
        (y * t["input.probe"]).sum().backward()
        errors = [relative_error(y, next(t[k] for k in ("output.y", "output.logits") if k in t))]
        for key, p in model.named_parameters():
            if key not in meta.get("zero_grads", "").split():
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                errors.append(relative_error(grad, t["grad." + key]))
        print(f"{name}: {max(errors):.1e}")
        if not all(e < 1e-6 for e in errors):
            sys.exit(f"{name}: differs from the reference")
