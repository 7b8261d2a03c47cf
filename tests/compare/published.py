"""The cases of compare_published.py: modules of other libraries and their published formats."""
import argparse
import importlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Callable, Optional

import torch
from torch.nn import functional

MEANT = [
    "timm resizes ViT's table of positions with antialiasing, for which PyTorch's cubic has "
    "another constant; the rule here is that of DeiT's code, without it.",
    "timm resizes Swin's tables of relative positions along distances that grow geometrically; the "
    "rule here is that of Swin's code, bicubic.",
    "transformers' CvT has GELU where the official code has x sigmoid(1.702 x); the comparison "
    "replaces it.",
    "transformers' PVT has eps 1e-6 in the norms of patches and reduced keys, the official code "
    "1e-5; the comparison sets it.",
    "transformers' ViT, DeiT, Swin, PVT and PVTv2 keep queries, keys and values in separate "
    "tensors; such files are refused, and PVT's are joined here to be compared.",
    "CSWin and MPViT are in none of these libraries: logits of the official code are among the "
    "reference cases.",
]


@dataclass
class Case:
    name: str
    preset: str
    build: Callable  # () -> module
    size: int = 224
    form: str = "pth"  # see save()
    state: Optional[Callable] = None  # state of the module -> that of the file
    # module -> the one to compare with, for another image size
    reference: Optional[Callable] = None
    flags: tuple = ()
    large: bool = False


@dataclass
class Damage:
    name: str
    preset: str
    state: Callable  # () -> what the file holds
    texts: tuple  # parts of the message


def randomised(module, seed):
    """Draws all weights and statistics, so that no default hides a tensor that was not loaded."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            table = p.shape[0] == 1 or name.endswith("bias_table")
            if p.ndim < 2 and not name.endswith("bias"):
                p.uniform_(0.5, 1.5, generator=g)
            elif p.ndim < 2 or table:
                p.normal_(0, 0.3, generator=g)
            else:
                p.normal_(0, (2 / p[0].numel()) ** 0.5, generator=g)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(0, 0.3, generator=g)
            elif name.endswith("running_var"):
                b.uniform_(0.5, 1.5, generator=g)
            elif name.endswith("num_batches_tracked"):
                b.fill_(1000)
    return module


def save(case, module, folder):
    """Writes the file in one of the published formats and returns its path."""
    state = module.state_dict()
    if case.state:
        state = case.state(state)
    if case.form == "safetensors":
        from safetensors.torch import save_file
        save_file({k: v.contiguous() for k, v in state.items()},
                  path := folder / "model.safetensors")
        return path
    path = folder / "model.pth"
    if case.form == "model":  # DeiT's, Swin's, CoaT's
        state = {"model": state}
    elif case.form == "training":  # with what a training program adds
        state = {"state_dict": OrderedDict(("module." + k, v) for k, v in state.items()),
                 "epoch": 300, "arch": case.preset, "args": argparse.Namespace(lr=0.1),
                 "optimizer": {"state": {}, "param_groups": []},
                 "state_dict_ema": {k: torch.zeros_like(v) for k, v in state.items()}}
    torch.save(state, path, _use_new_zipfile_serialization=case.form != "legacy")
    return path


# ---- changes of modules and states ----

def quick_gelu(module):
    """The official activation of CvT in transformers' module."""
    class QuickGelu(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(1.702 * x)
    for m in list(module.modules()):
        if hasattr(m, "activation"):
            m.activation = QuickGelu()
    return module


def official_eps(module):
    """The official eps of PVT's norms in transformers' module."""
    for name, m in module.named_modules():
        if isinstance(m, torch.nn.LayerNorm):
            m.eps = 1e-5 if re.search(r"patch_embeddings|attention\.self\.", name) else 1e-6
    return module


def official_pvt(state):
    """The state of transformers' PVT by its official names."""
    out = {}
    for name, t in state.items():
        if ".self.value." in name:
            continue
        if ".self.key." in name:  # rows of keys, then of values
            t = torch.cat([t, state[name.replace("key", "value")]])
        n = re.sub(r"^pvt\.encoder\.block\.(\d+)\.", lambda m: f"block{int(m[1]) + 1}.", name)
        n = re.sub(r"^pvt\.encoder\.patch_embeddings\.(\d+)\.",
                   lambda m: f"patch_embed{int(m[1]) + 1}.", n)
        n = re.sub(r"^patch_embed(\d)\.position_embeddings", r"pos_embed\1", n)
        n = re.sub(r"^patch_embed4\.cls_token", "cls_token", n)
        for a, b in [("pvt.encoder.layer_norm.", "norm."), ("classifier.", "head."),
                     (".projection.", ".proj."),
                     (".attention.self.query.", ".attn.q."), (".attention.self.key.", ".attn.kv."),
                     (".attention.self.sequence_reduction.", ".attn.sr."),
                     (".attention.self.layer_norm.", ".attn.norm."),
                     (".attention.output.dense.", ".attn.proj."), (".layer_norm_1.", ".norm1."),
                     (".layer_norm_2.", ".norm2."), (".layer_norm.", ".norm."),
                     (".mlp.dense1.", ".mlp.fc1."), (".mlp.dense2.", ".mlp.fc2.")]:
            n = n.replace(a, b)
        out[n] = t
    return out


def resized_table(t, extra, side, mode):
    """Resizes a table of positions [1, extra + n n, D] as DeiT's and PVT's code does."""
    n = round((t.shape[1] - extra) ** 0.5)
    grid = t[:, extra:].reshape(1, n, n, -1).permute(0, 3, 1, 2)
    grid = functional.interpolate(grid.double(), size=(side, side), mode=mode, align_corners=False)
    grid = grid.permute(0, 2, 3, 1).reshape(1, side * side, -1)
    return torch.cat([t[:, :extra].double(), grid], 1)


def resized_vit(build, extra, side):
    """The module that `build` makes for side x side patches, with the weights of another."""
    def reference(module):
        state = module.double().state_dict()
        state["pos_embed"] = resized_table(state["pos_embed"], extra, side, "bicubic")
        larger = build().double()
        larger.load_state_dict(state)
        return larger
    return reference


def resized_pvt(build, size):
    def reference(module):
        state = module.double().state_dict()
        for s in range(4):
            key = f"pvt.encoder.patch_embeddings.{s}.position_embeddings"
            state[key] = resized_table(state[key], s == 3, size // (4 << s), "bilinear")
        larger = build().double()
        larger.load_state_dict(state)
        return larger
    return reference


def resized_swin(build):
    """The module with larger windows; resizes relative positions as Swin's code does."""
    def reference(module):
        larger = build().double()
        own, state = larger.state_dict(), module.double().state_dict()
        for key, t in state.items():
            if key.endswith("bias_table") and own[key].shape != t.shape:
                a, b = (round(x.shape[0] ** 0.5) for x in (t, own[key]))
                grid = t.T.reshape(1, -1, a, a)
                grid = functional.interpolate(grid, size=(b, b), mode="bicubic",
                                              align_corners=False)
                state[key] = grid.reshape(-1, b * b).T
        larger.load_state_dict(state)
        return larger
    return reference


# ---- the cases ----

def torchvision_cases(v):
    m = v.models
    widths = {"groups": 32, "width_per_group": 4}
    for name, preset, large in [("resnet18", "resnet-18", False), ("resnet50", "resnet-50", False),
                                ("resnet101", "resnet-101", True),
                                ("resnet152", "resnet-152", True),
                                ("resnext101_64x4d", "resnext-101-64x4d", True),
                                ("vit_b_16", "vit-b", False),
                                ("vit_l_16", "vit-l", True), ("swin_t", "swin-t", False),
                                ("swin_s", "swin-s", True), ("swin_b", "swin-b", True)]:
        yield Case(f"torchvision {name}", preset, getattr(m, name), large=large)
    yield Case("torchvision ResNet, 32 groups of 4", "resnext-101-32x4d",
               lambda: m.ResNet(m.resnet.Bottleneck, [3, 4, 23, 3], **widths), form="training",
               large=True)
    yield Case("torchvision resnet50, as trained by a program", "resnet-50", m.resnet50,
               form="training")
    yield Case("torchvision resnet18, 160 pixels, legacy file", "resnet-18", m.resnet18, size=160,
               form="legacy", flags=("--size", "160"))
    yield Case("torchvision vit_b_16, 384 pixels", "vit-b-384", lambda: m.vit_b_16(image_size=384),
               size=384, large=True)


def timm_cases(timm):
    def build(name, **options):
        return lambda: timm.create_model(name, **options)
    for name, preset, form, large in [
            ("resnet18", "resnet-18", "safetensors", False), ("resnet50", "resnet-50", "pth", True),
            ("resnet101", "resnet-101", "safetensors", True),
            ("resnet152", "resnet-152", "pth", True),
            ("resnext101_32x4d", "resnext-101-32x4d", "pth", False),
            ("resnext101_64x4d", "resnext-101-64x4d", "safetensors", True),
            ("deit_tiny_patch16_224", "deit-t", "model", False),
            ("deit_small_patch16_224", "deit-s", "model", True),
            ("deit_base_patch16_224", "deit-b", "model", True),
            ("deit_tiny_distilled_patch16_224", "deit-t-distilled", "model", False),
            ("deit_small_distilled_patch16_224", "deit-s-distilled", "safetensors", True),
            ("deit_base_distilled_patch16_224", "deit-b-distilled", "model", True),
            ("vit_base_patch16_224", "vit-b", "safetensors", True),
            ("vit_large_patch16_224", "vit-l", "pth", True),
            ("pvt_v2_b0", "pvt2-b0", "pth", False), ("pvt_v2_b1", "pvt2-b1", "safetensors", True),
            ("pvt_v2_b2", "pvt2-b2", "pth", True),
            ("pvt_v2_b2_li", "pvt2-b2-li", "safetensors", False),
            ("pvt_v2_b3", "pvt2-b3", "pth", True), ("pvt_v2_b4", "pvt2-b4", "pth", True),
            ("pvt_v2_b5", "pvt2-b5", "pth", True),
            ("swin_tiny_patch4_window7_224", "swin-t", "safetensors", False),
            ("swin_small_patch4_window7_224", "swin-s", "pth", True),
            ("swin_base_patch4_window7_224", "swin-b", "model", True),
            ("coat_lite_tiny", "coat_lite-tiny", "pth", False),
            ("coat_lite_mini", "coat_lite-mini", "model", True),
            ("coat_lite_small", "coat_lite-small", "pth", True)]:
        yield Case(f"timm {name}", preset, build(name), form=form, large=large)
    yield Case("timm swin_base_patch4_window12_384", "swin-b-384",
               build("swin_base_patch4_window12_384"), size=384,
               large=True)
    yield Case("timm vit_base_patch16_384", "vit-b-384", build("vit_base_patch16_384"), size=384,
               large=True)
    for name, preset, extra in [("deit_tiny_patch16_224", "deit-t", 1),
                                ("deit_tiny_distilled_patch16_224", "deit-t-distilled", 2)]:
        for size in (384, 160):
            yield Case(f"timm {name} at {size} pixels", preset, build(name), size=size,
                       form="model",
                       reference=resized_vit(build(name, img_size=size), extra, size // 16),
                       flags=("--size", str(size)))
    yield Case("timm swin_base_patch4_window7_224 at 384 pixels", "swin-b-384",
               build("swin_base_patch4_window7_224"),
               size=384, reference=resized_swin(build("swin_base_patch4_window12_384")),
               flags=("--size", "384"), large=True)
    yield Case("timm pvt_v2_b0 at 288 pixels", "pvt2-b0", build("pvt_v2_b0"), size=288,
               flags=("--size", "288"))
    yield Case("timm coat_lite_tiny at 288 pixels", "coat_lite-tiny",
               build("coat_lite_tiny", img_size=288), size=288,
               flags=("--size", "288"))
    yield Case("timm deit_tiny_patch16_224, ImageNet-21K", "deit-t",
               build("deit_tiny_patch16_224", num_classes=21841))


def transformers_cases(t):
    def cvt():
        return quick_gelu(t.CvtForImageClassification(t.CvtConfig(num_labels=1000)))

    def pvt(depths, size=224):
        return lambda: official_eps(t.PvtForImageClassification(
            t.PvtConfig(depths=depths, image_size=size, num_labels=1000)))

    def resnet(depths, **options):
        return lambda: t.ResNetForImageClassification(
            t.ResNetConfig(depths=depths, num_labels=1000, **options))
    yield Case("transformers CvT-13", "cvt-13", cvt)
    for name, preset, depths in [("Tiny", "pvt-tiny", [2, 2, 2, 2]),
                                 ("Small", "pvt-small", [3, 4, 6, 3]),
                                 ("Medium", "pvt-medium", [3, 4, 18, 3]),
                                 ("Large", "pvt-large", [3, 8, 27, 3])]:
        yield Case(f"transformers PVT-{name}, official names", preset, pvt(depths),
                   state=official_pvt, large=name != "Tiny")
    yield Case("transformers PVT-Tiny, official names, at 288 pixels", "pvt-tiny",
               pvt([2, 2, 2, 2]), size=288,
               state=official_pvt, reference=resized_pvt(pvt([2, 2, 2, 2], 288), 288),
               flags=("--size", "288"))
    yield Case("transformers ResNet-50", "resnet-50", resnet([3, 4, 6, 3]), form="safetensors")
    yield Case("transformers ResNet-18", "resnet-18",
               resnet([2, 2, 2, 2], layer_type="basic", hidden_sizes=[64, 128, 256, 512]))


LIBRARIES = {"torchvision": torchvision_cases, "timm": timm_cases,
             "transformers": transformers_cases}


def cases():
    for name, of in LIBRARIES.items():
        try:
            library = importlib.import_module(name)
        except ImportError as missing:
            print(f"skipped: {missing}")
            continue
        yield from of(library)


# ---- files that must be refused ----

def resnet(change=lambda state: state):
    """A file with the names and shapes of a ResNet-18, without a library."""
    state = OrderedDict()

    def norm(name, n):
        for leaf in ("weight", "bias", "running_mean", "running_var"):
            state[f"{name}.{leaf}"] = torch.ones(n)
        state[f"{name}.num_batches_tracked"] = torch.tensor(1)
    state["conv1.weight"] = torch.zeros(64, 3, 7, 7)
    norm("bn1", 64)
    for s in range(4):
        for b in range(2):
            at, width, wide = f"layer{s + 1}.{b}", 64 << s, 64 << (s - 1 if b == 0 and s > 0 else s)
            state[at + ".conv1.weight"] = torch.zeros(width, wide, 3, 3)
            norm(at + ".bn1", width)
            state[at + ".conv2.weight"] = torch.zeros(width, width, 3, 3)
            norm(at + ".bn2", width)
            if wide != width:
                state[at + ".downsample.0.weight"] = torch.zeros(width, wide, 1, 1)
                norm(at + ".downsample.1", width)
    state["fc.weight"], state["fc.bias"] = torch.zeros(1000, 512), torch.zeros(1000)
    return lambda: change(state)


def without(*names):
    return lambda state: {k: v for k, v in state.items() if k not in names}


def damages():
    yield Damage("a ResNet for a ViT", "deit-t", resnet(),
                 ("missing: cls_token", "unknown: conv1.weight", "--match any"))
    yield Damage("a ResNet-18 for a ResNet-50", "resnet-50", resnet(),
                 ("missing: layer1.0.conv3.weight",
                  "shape: layer1.0.conv1.weight is [64,64,3,3] in the file"))
    yield Damage("without a weight", "resnet-18",
                 resnet(without("layer2.0.conv1.weight", "bn1.bias")),
                 ("2 missing", "missing: bn1.bias", "missing: layer2.0.conv1.weight"))
    yield Damage("without a head", "resnet-18", resnet(without("fc.weight", "fc.bias")),
                 ("missing: fc.weight",))
    yield Damage("with a tensor too many", "resnet-18",
                 resnet(lambda s: {**s, "extra.weight": torch.zeros(3)}),
                 ("1 unknown", "unknown: extra.weight F32[3]"))
    yield Damage("a module in place of its state", "resnet-18", lambda: torch.nn.Linear(2, 2),
                 ("state_dict",))
    yield Damage("nothing but numbers", "resnet-18", lambda: {"epoch": 3, "lr": 0.1},
                 ("contains no tensors",))
