"""Text models for compare_published.py: transformers' modules and their published formats."""
import argparse
from dataclasses import dataclass, field
from typing import Callable, Optional

import numpy as np
import torch

PAD = 1
MEANT = ["transformers' Longformer computes softmax in f32 whatever the dtype; the comparison "
         "keeps f64."]


@dataclass
class TextCase:
    name: str
    build: Callable  # () -> module
    lengths: tuple = (23, 9)  # real tokens of each text
    form: str = "save_pretrained"  # or "pth", or fairseq's, see save()
    state: Optional[Callable] = None  # state of the module -> that of the file
    # module -> the one to compare with, for another kind of model
    reference: Optional[Callable] = None
    # members of our configuration that differ from the module's
    own: dict = field(default_factory=dict)
    globals: Optional[Callable] = None  # (text, position) -> is the token global?
    packed: bool = False
    refused: tuple = ()  # parts of the message, where a file must be refused
    large: bool = False


def exact_softmax(module_of):
    """Keeps the softmax of transformers' Longformer, which computes it in f32, in f64."""
    real = torch.nn.functional.softmax

    def softmax(x, dim=None, dtype=None, **options):
        return real(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype, **options)
    module_of.nn.functional.softmax = softmax


def randomised(module, seed):
    """Draws all weights so that no default hides a tensor that was not loaded."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.ndim < 2 and name.endswith("weight"):
                p.uniform_(0.5, 1.5, generator=g)
            elif p.ndim < 2 or "embeddings" in name:
                p.normal_(0, 0.3, generator=g)
            else:
                p.normal_(0, p.shape[1] ** -0.5, generator=g)
    return module


# ---- names of files ----

FAIRSEQ = [("roberta.embeddings.word_embeddings.", "{}.sentence_encoder.embed_tokens."),
           ("roberta.embeddings.position_embeddings.", "{}.sentence_encoder.embed_positions."),
           ("roberta.embeddings.LayerNorm.", "{}.sentence_encoder.emb_layer_norm."),
           ("roberta.encoder.layer.", "{}.sentence_encoder.layers."),
           (".attention.self.query.", ".self_attn.q_proj."),
           (".attention.self.key.", ".self_attn.k_proj."),
           (".attention.self.value.", ".self_attn.v_proj."),
           (".attention.output.dense.", ".self_attn.out_proj."),
           (".attention.output.LayerNorm.", ".self_attn_layer_norm."),
           (".intermediate.dense.", ".fc1."),
           (".output.dense.", ".fc2."), (".output.LayerNorm.", ".final_layer_norm."),
           ("lm_head.", "{}.lm_head."), ("lm_head.decoder.weight", "lm_head.weight")]


def fairseq(encoder, norm="emb_layer_norm"):
    """Uses fairseq's names; fairseq has neither token types nor a pooler."""
    def names(state):
        out = {}
        for name, t in state.items():
            if "token_type" in name or "pooler" in name or name.endswith("decoder.bias"):
                continue
            for ours, theirs in FAIRSEQ:
                name = name.replace(ours, theirs.format(encoder))
            out[name.replace("emb_layer_norm", norm)] = t
        out[f"{encoder}.sentence_encoder.version"] = torch.zeros(0)
        return out
    return names


def without_types(module):
    """Removes the effect of token types."""
    with torch.no_grad():
        module.roberta.embeddings.token_type_embeddings.weight.zero_()
    return module


def older(state):
    """As earlier versions of transformers saved it: with positions and with gamma and beta."""
    out = {k.replace("LayerNorm.weight", "LayerNorm.gamma")
            .replace("LayerNorm.bias", "LayerNorm.beta"): v
           for k, v in state.items()}
    rows = state["roberta.embeddings.position_embeddings.weight"].shape[0]
    out["roberta.embeddings.position_ids"] = torch.arange(rows)[None]
    return out


def save(case, module, folder):
    """Writes the file and returns its path."""
    if case.form == "save_pretrained":
        module.save_pretrained(folder)  # progress bars are off, see cases()
        return folder / "model.safetensors"
    state = case.state(module.state_dict()) if case.state else module.state_dict()
    path = folder / "model.pt"
    if case.form == "fairseq":
        state = {"model": state, "args": argparse.Namespace(arch="roberta_base"),
                 "optimizer_history": []}
    torch.save(state, path)
    return path


# ---- texts ----

def texts(case, vocab):
    """ids [B,n] and codes: 0 padding, 1 local, 2 global."""
    rng = np.random.default_rng(len(case.name))
    n = max(case.lengths)
    ids, code = np.full((len(case.lengths), n), PAD), np.zeros((len(case.lengths), n), int)
    for b, length in enumerate(case.lengths):
        ids[b, :length] = rng.integers(4, vocab - 1, length)
        ids[b, 0], ids[b, length - 1] = 0, 2
        code[b, :length] = [2 if case.globals and case.globals(b, i) else 1 for i in range(length)]
    return ids, code


def theirs(module, ids, code, dtype):
    """Logits of each text, or of all tokens that are not padding, in f64."""
    module = module.eval().to(torch.float64 if dtype == "f64" else torch.float32)
    inputs = {"input_ids": torch.tensor(ids),
              "attention_mask": torch.tensor((code > 0).astype(int))}
    if module.config.model_type == "longformer":
        inputs["global_attention_mask"] = torch.tensor((code == 2).astype(int))
    with torch.no_grad():
        z = module(**inputs).logits.double().numpy()
    return z[code > 0] if z.ndim == 3 else z


def members(case, module):
    """Our configuration, as checkpoints have it."""
    c = module.config
    kind = "longformer" if c.model_type == "longformer" else "full"
    own = {"attention_type": kind,
           "head": "cls" if "Classification" in type(module).__name__ else "mlm",
           "num_hidden_layers": c.num_hidden_layers, "num_attention_heads": c.num_attention_heads,
           "hidden_size": c.hidden_size, "intermediate_size": c.intermediate_size,
           "vocab_size": c.vocab_size, "max_tokens": c.max_position_embeddings - 2, "num_labels": 2,
           "window": c.attention_window[0] if kind == "longformer" else 0, "num_landmarks": 0,
           "dual_ln": 1,
           "pooler": 1, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, **case.own}
    return [f"{k}={v}" for k, v in own.items()]


# ---- the cases ----

def converted(t, roberta, length, window):
    """RoBERTa's weights in transformers' Longformer, as in Longformer's paper."""
    def reference(module):
        c = module.config
        config = t.LongformerConfig(**{k: getattr(c, k) for k in SIZES},
                                    max_position_embeddings=length + 2,
                                    attention_window=[window] * c.num_hidden_layers,
                                    pad_token_id=PAD,
                                    layer_norm_eps=1e-5, type_vocab_size=1, num_labels=c.num_labels)
        other = t.LongformerForSequenceClassification(config)
        state = {k.replace("roberta.", "longformer."): v for k, v in module.state_dict().items()}
        table = state["longformer.embeddings.position_embeddings.weight"]
        rows = torch.arange(length) % (table.shape[0] - 2) + 2
        table = torch.cat([table[:2], table[rows]])
        state["longformer.embeddings.position_embeddings.weight"] = table
        for name in list(state):
            for part in ("query", "key", "value"):
                if f".self.{part}." in name:
                    state[name.replace(f".{part}.", f".{part}_global.")] = state[name]
        other.load_state_dict(state)
        return other
    return reference


SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
         "intermediate_size")


def first(b, i):
    return i == 0


def some(b, i):
    return i % 7 == 3 * b or (b == 1 and i < 3)


def text_cases(t):
    from transformers.models.longformer import modeling_longformer
    exact_softmax(modeling_longformer)

    def config(kind, layers=3, width=48, heads=4, vocab=99, places=66, window=8, **options):
        common = dict(vocab_size=vocab, hidden_size=width, num_hidden_layers=layers,
                      num_attention_heads=heads,
                      intermediate_size=4 * width, max_position_embeddings=places,
                      type_vocab_size=1,
                      layer_norm_eps=1e-5, pad_token_id=PAD, bos_token_id=0, eos_token_id=2,
                      **options)
        if kind == "Longformer":
            return t.LongformerConfig(attention_window=[window] * layers, **common)
        return t.RobertaConfig(**common)

    def build(kind, head, pooler=False, **options):
        def make():
            module = getattr(t, f"{kind}For{head}")(config(kind, **options))
            if pooler:
                base = module.roberta if kind == "Roberta" else module.longformer
                other = getattr(t, f"{kind}Model")(config(kind, **options))
                base.pooler = other.pooler
            return module
        return make

    cls, mlm = "SequenceClassification", "MaskedLM"
    for kind, of in [("Roberta", None), ("Longformer", first)]:
        for head in (cls, mlm):
            name = f"transformers {kind}For{head}"
            yield TextCase(name, build(kind, head, num_labels=2 if head == cls else 3), globals=of)
            yield TextCase(f"{name}, packed", build(kind, head), globals=of, packed=True)
            yield TextCase(f"{name}, pooler", build(kind, head, pooler=True), globals=of,
                           form="pth")
            yield TextCase(f"{name}, pooler that we have not", build(kind, head, pooler=True),
                           globals=of, own={"pooler": 0})
            yield TextCase(f"{name}, 1 head, 5 labels",
                           build(kind, head, layers=1, width=20, heads=1, num_labels=5),
                           globals=of, lengths=(64, 1, 40, 17))
            yield TextCase(f"{name}, large shape",
                           build(kind, head, layers=2, width=1024, heads=16, window=16),
                           globals=of, lengths=(50, 31), packed=head == mlm)
            yield TextCase(f"{name}, base",
                           build(kind, head, layers=12, width=768, heads=12, vocab=50265,
                                 places=514 if of is None else 4098, window=512), globals=of,
                           lengths=(300, 512, 77), large=True)
            yield TextCase(f"{name}, large",
                           build(kind, head, layers=24, width=1024, heads=16, vocab=50265,
                                 places=514 if of is None else 4098, window=512), globals=of,
                           lengths=(128, 30), large=True)
    for head in (cls, mlm):
        for packed in (False, True):
            yield TextCase(f"transformers LongformerFor{head}, some global tokens"
                           + ", packed" * packed,
                           build("Longformer", head), globals=some, lengths=(40, 33, 12),
                           packed=packed)
    yield TextCase("transformers LongformerForMaskedLM, none", build("Longformer", mlm))
    yield TextCase("transformers RobertaForMaskedLM, second names, gamma and beta",
                   build("Roberta", mlm, pooler=True), form="pth", state=older)
    for encoder, norm in [("decoder", "emb_layer_norm"), ("encoder", "layernorm_embedding")]:
        yield TextCase(f"fairseq's names, {encoder}, {norm}",
                       lambda: without_types(build("Roberta", mlm)()),
                       form="fairseq", state=fairseq(encoder, norm), reference=without_types)
    for packed in (False, True):
        yield TextCase("transformers RobertaForSequenceClassification in a Longformer"
                       + ", packed" * packed, build("Roberta", cls), globals=first,
                       reference=converted(t, "Roberta", 96, 8), packed=packed,
                       lengths=(96, 70, 5),
                       own={"attention_type": "longformer", "window": 8, "max_tokens": 96})
    yield TextCase("a head that the file lacks", build("Roberta", mlm), own={"head": "cls"},
                   refused=("missing: classifier.dense.weight",))
    yield TextCase("fewer layers than the file", build("Roberta", cls),
                   own={"num_hidden_layers": 2}, refused=("unknown: roberta.encoder.layer.2.",))
    yield TextCase("another width than the file", build("Roberta", cls), own={"hidden_size": 64},
                   refused=("shape: roberta.embeddings.word_embeddings.weight is [99,48] in the "
                            "file, [99,64] here",))
    yield TextCase("more tokens than places", build("Roberta", cls, places=20),
                   own={"max_tokens": 18},
                   refused=("texts of 23 tokens are longer than the 18 of this model: cut them",))


def cases():
    try:
        import transformers
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
    except ImportError as missing:
        print(f"skipped: {missing}")
        return
    yield from text_cases(transformers)
