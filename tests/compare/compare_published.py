#!/usr/bin/env python3
"""Compares models that load other libraries' files with the modules that wrote these files.

    tests/compare/compare_published.py [--programs build/release/bin] [--all] [--only TEXT]
                                       [--kind images|texts|gpt] [--dtype f64] [--seed 0]

Each image case builds a module of torchvision, timm or Hugging Face's transformers with random
weights and statistics, saves it in the published format, runs it on two images and compares its
logits with those of `imagenet predict --weights`. Errors are relative to the largest difference
between the logits of both images, so a model that ignores its input cannot pass. Damaged files must
be refused with one clear message each.

Text cases do the same with RoBERTa and Longformer on texts of different lengths, padded and packed,
through the test program roberta_logits. So do GPT-2 and Llama, also decoding, through gpt_logits.

--all adds large models, --only selects the cases whose names contain TEXT. The exit status is 1 if
anything differs. Cases whose library is not installed are skipped with a message.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

try:
    import numpy as np
    import torch
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

import published  # noqa: E402
import published_gpt  # noqa: E402
import published_texts  # noqa: E402

TOLERANCE = {"f64": 1e-7, "f32": 1e-3}
ROUNDING = 2.0 ** -24  # printed logits are f32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def draw_image(rng, side):
    """Smooth colours and noise, so that neither a mean nor one pixel represents the image."""
    coarse = torch.from_numpy(rng.uniform(0, 1, (1, 3, 7, 7)))
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")[0].numpy()
    x = 255 * (0.7 * smooth + 0.3 * rng.uniform(0, 1, smooth.shape))
    return np.clip(x, 0, 255).astype(np.uint8).transpose(1, 2, 0)


def normalised(pixels, size):
    """The program's input from an image that need not be resized: its centre, normalised."""
    at = (pixels.shape[0] - size) // 2
    x = torch.from_numpy(pixels[at:at + size, at:at + size].copy()).permute(2, 0, 1).float() / 255
    return (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def theirs(module, images, dtype):
    """Logits [images, classes] of the module, in f64."""
    module = module.eval().to(torch.float64 if dtype == "f64" else torch.float32)
    with torch.no_grad():
        z = module(torch.stack(images).to(next(module.parameters()).dtype))
    return (z if isinstance(z, torch.Tensor) else z.logits).double().numpy()


def predict(args, paths, preset, weights, more=()):
    """The finished process of `imagenet predict`."""
    command = [args.programs / "imagenet", "predict", *paths, "--preset", preset, "--weights",
               weights, "--dtype", args.dtype,
               "--threads", "1", "--format", "json", "--logits", "--top", "1", *more]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def error_of(case, args, folder):
    """(error, None), or (None, what went wrong)."""
    rng = np.random.default_rng([args.seed, *case.name.encode()])
    torch.manual_seed(args.seed)
    module = published.randomised(case.build(), args.seed)
    weights = published.save(case, module, folder)
    side, paths, images = int(case.size / 0.875), [], []
    for i in range(2):
        pixels = draw_image(rng, side)
        paths.append(folder / f"{i}.png")
        Image.fromarray(pixels).save(paths[-1])
        images.append(normalised(pixels, case.size))
    want = theirs(case.reference(module) if case.reference else module, images, args.dtype)
    ran = predict(args, paths, case.preset, weights, case.flags)
    if ran.returncode:
        return None, ran.stderr.strip()
    got = np.array([json.loads(line)["logits"] for line in ran.stdout.splitlines()])
    if got.shape != want.shape:
        return None, f"logits of shape {got.shape}, not {want.shape}"
    beyond = np.maximum(np.abs(got - want) - ROUNDING * np.abs(want), 0)
    return float(beyond.max() / np.abs(want[0] - want[1]).max()), None


def check_logits(case, args):
    with tempfile.TemporaryDirectory() as folder:
        error, why = error_of(case, args, pathlib.Path(folder))
    bad = why is not None or not error <= TOLERANCE[args.dtype]
    print(f"{case.name:56} " + (f"error {error:.1e}" if why is None else "FAILS: " + why) +
          ("  DIFFERS" if bad and why is None else ""), flush=True)
    return not bad


def check_refusal(damage, args):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        weights, image = folder / "weights.pth", folder / "image.png"
        torch.save(damage.state(), weights)
        Image.fromarray(draw_image(np.random.default_rng(0), 256)).save(image)
        ran = predict(args, [image], damage.preset, weights)
    one = ran.returncode == 1 and ran.stderr.count("imagenet predict:") == 1
    good = one and all(text in ran.stderr for text in damage.texts)
    why = "refused" if good else f"FAILS: status {ran.returncode}: {ran.stderr.strip()}"
    print(f"{damage.name:56} {why}", flush=True)
    return good


def text_error(case, args, folder):
    """The error, or None and what is wrong."""
    torch.manual_seed(args.seed)
    module = published_texts.randomised(case.build(), args.seed)
    if case.form == "fairseq":
        module = published_texts.without_types(module)
    weights = published_texts.save(case, module, folder)
    ids, code = published_texts.texts(case, module.config.vocab_size)
    numbers = " ".join(map(str, [*ids.shape, *ids.flat, *code.flat]))
    command = [args.programs / "roberta_logits", weights, args.dtype,
               "other" if case.reference else "same",
               "packed" if case.packed else "padded", *published_texts.members(case, module)]
    ran = subprocess.run(command, input=numbers.encode(), capture_output=True)
    if ran.returncode:
        return None, ran.stderr.decode().strip()
    want = published_texts.theirs(case.reference(module) if case.reference else module, ids, code,
                                  args.dtype)
    got = np.frombuffer(ran.stdout)
    if got.size != want.size:
        return None, f"{got.size} logits, not {want.size}"
    spread = np.abs(want[0] - want[1]).max()
    return float(np.abs(got - want.ravel()).max() / spread), None


def gpt_error(case, args, folder):
    """The error, or None and what is wrong."""
    torch.manual_seed(args.seed)
    module = published_texts.randomised(case.build(), args.seed)
    weights = published_gpt.save(case, module, folder)
    ids = published_gpt.texts(case, module.config.vocab_size)
    command = [args.programs / "gpt_logits", weights, args.dtype, case.preset, ",".join(case.own),
               "decode" if case.decode else "forward"]
    ran = subprocess.run(command, input=" ".join(map(str, [*ids.shape, *ids.flat])).encode(),
                         capture_output=True)
    if ran.returncode:
        return None, ran.stderr.decode().strip()
    want, got = published_gpt.theirs(module, ids, args.dtype), np.frombuffer(ran.stdout)
    if got.size != want.size:
        return None, f"{got.size} logits, not {want.size}"
    spread = np.abs(want[0] - want[1]).max()
    return float(np.abs(got - want.ravel()).max() / spread), None


def check_gpt(case, args):
    with tempfile.TemporaryDirectory() as folder:
        error, why = gpt_error(case, args, pathlib.Path(folder))
    if case.refused:
        bad = why is None or not all(t in why for t in case.refused)
        print(f"{case.name:82} " + ("refused" if not bad else f"FAILS: {why}"), flush=True)
        return not bad
    bad = why is not None or not error <= TOLERANCE[args.dtype]
    print(f"{case.name:82} " + (f"error {error:.1e}" if why is None else "FAILS: " + why) +
          ("  DIFFERS" if bad and why is None else ""), flush=True)
    return not bad


def check_text(case, args):
    with tempfile.TemporaryDirectory() as folder:
        error, why = text_error(case, args, pathlib.Path(folder))
    if case.refused:
        bad = (why is None or why.count("roberta_logits:") != 1
               or not all(t in why for t in case.refused))
        print(f"{case.name:82} " + ("refused" if not bad else f"FAILS: {why}"), flush=True)
        return not bad
    bad = why is not None or not error <= TOLERANCE[args.dtype]
    print(f"{case.name:82} " + (f"error {error:.1e}" if why is None else "FAILS: " + why) +
          ("  DIFFERS" if bad and why is None else ""), flush=True)
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path,
                        default=HERE.parent.parent / "build/release/bin")
    parser.add_argument("--all", action="store_true", help="large models, too")
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("--kind", choices=("images", "texts", "gpt"),
                        help="only models of images or of texts, or GPT-2 and Llama")
    parser.add_argument("--dtype", choices=sorted(TOLERANCE), default="f64")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    images, texts, gpts = (args.kind in (None, kind) for kind in ("images", "texts", "gpt"))
    cases = [c for c in published.cases()
             if images and args.only in c.name and (args.all or not c.large)]
    damages = [d for d in published.damages() if images and args.only in d.name]
    texts = [c for c in published_texts.cases()
             if texts and args.only in c.name and (args.all or not c.large)]
    gpts = [c for c in published_gpt.cases()
            if gpts and args.only in c.name and (args.all or not c.large)]
    failed = (sum(not check_logits(c, args) for c in cases)
              + sum(not check_refusal(d, args) for d in damages))
    failed += sum(not check_text(c, args) for c in texts)
    failed += sum(not check_gpt(c, args) for c in gpts)
    print(f"{len(cases)} models of images, {len(damages)} damaged files and "
          f"{len(texts) + len(gpts)} text cases, {failed} fail")
    for text in published.MEANT + published_texts.MEANT + published_gpt.MEANT:
        print("  meant: " + text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
