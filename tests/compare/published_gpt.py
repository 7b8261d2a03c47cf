"""GPT-2 and Llama for compare_published.py: transformers' modules and their published formats."""
from dataclasses import dataclass
from typing import Callable

import numpy as np
import torch

MEANT = ["transformers' Llama computes RMS norms and rotary angles in f32 whatever the dtype; the "
         "comparison keeps f64."]


@dataclass
class GptCase:
    name: str
    preset: str
    build: Callable  # () -> module
    own: tuple  # members of our configuration
    texts: tuple = (2, 17)
    form: str = "save_pretrained"  # or "pth", "base" (without the head), "shards"
    decode: bool = False
    large: bool = False
    refused: tuple = ()  # parts of the message


def save(case, module, folder):
    """Writes the file or files and returns the path."""
    if case.form == "pth":
        torch.save(module.state_dict(), folder / "model.pth")
        return folder / "model.pth"
    if case.form == "base":  # as gpt2's own file: no prefix, no head
        module.transformer.save_pretrained(folder)
    elif case.form == "shards":
        module.save_pretrained(folder, max_shard_size="20KB")
        return folder / "model.safetensors.index.json"
    else:
        module.save_pretrained(folder)
    return folder / "model.safetensors"


def texts(case, vocab):
    return np.random.default_rng(len(case.name)).integers(0, vocab, case.texts)


def theirs(module, ids, dtype):
    """Logits [texts, tokens, vocab], in f64."""
    module = module.eval().to(torch.float64 if dtype == "f64" else torch.float32)
    with torch.no_grad():
        return module(input_ids=torch.tensor(ids)).logits.double().numpy()


def slower(turns, rope):
    """The angles of scaled positions, by the rules of transformers, in f64."""
    if rope["rope_type"] == "linear":
        return turns / rope["factor"]
    if rope["rope_type"] == "default":
        return turns
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    wave = rope["original_max_position_embeddings"] * turns / (2 * np.pi)
    mixed = ((wave - low) / (high - low)).clamp(0, 1)
    return (1 - mixed) * turns / rope["factor"] + mixed * turns


def exact_llama(of):
    """Computes the RMS norms and rotary angles of transformers' Llama in the dtype of x."""
    def norm(self, x):
        square = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(square + self.variance_epsilon))

    def rotary(self, x, position_ids):
        config = self.config
        size = config.hidden_size // config.num_attention_heads
        theta = config.rope_parameters["rope_theta"]
        turns = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        turns = slower(turns, config.rope_parameters)
        assert torch.allclose(turns.float(), self.inv_freq.float(), rtol=1e-5)
        angle = position_ids[:, :, None].double() * turns.repeat(2)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    of.LlamaRMSNorm.forward, of.LlamaRotaryEmbedding.forward = norm, rotary


def cases():
    try:
        import transformers as t
    except ImportError:
        print("skipped: transformers is not installed, so GPT-2 and Llama are not compared")
        return

    from transformers.models.llama import modeling_llama
    exact_llama(modeling_llama)

    def gpt2(vocab=61, places=40, width=48, layers=3, heads=4, wide=None):
        own = dict(vocab_size=vocab, n_positions=places, n_embd=width, n_layer=layers,
                   n_head=heads, n_inner=wide or 4 * width)
        return (lambda: t.GPT2LMHeadModel(t.GPT2Config(**own, attn_implementation="eager")),
                tuple(f"{k}={v}" for k, v in own.items()))

    def llama(vocab=61, places=40, width=48, layers=3, heads=4, kv=4, wide=80, theta=10000.0,
              eps=1e-5, tied=False):
        own = dict(vocab_size=vocab, max_position_embeddings=places, hidden_size=width,
                   num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
                   intermediate_size=wide, rms_norm_eps=eps)
        config = dict(own, tie_word_embeddings=tied, attn_implementation="eager",
                      rope_parameters={"rope_type": "default", "rope_theta": theta})
        return (lambda: t.LlamaForCausalLM(t.LlamaConfig(**config)),
                (*(f"{k}={v}" for k, v in own.items()), f"rope_theta={theta}",
                 f"tie_word_embeddings={int(tied)}"))

    for form in ("save_pretrained", "pth", "base", "shards"):
        yield GptCase(f"transformers GPT2LMHeadModel, {form}", "gpt2", *gpt2(), form=form)
    yield GptCase("transformers GPT2LMHeadModel, decoding", "gpt2", *gpt2(), decode=True)
    yield GptCase("transformers GPT2LMHeadModel, narrow MLP", "gpt2",
                  *gpt2(width=20, layers=1, heads=1, wide=33), texts=(3, 40))
    for kv in (4, 2, 1):
        for decode in (False, True):
            yield GptCase(f"transformers LlamaForCausalLM, {kv} heads of keys"
                          + ", decoding" * decode, "smollm-135m", *llama(kv=kv), decode=decode)
    yield GptCase("transformers LlamaForCausalLM, tied, theta, eps", "smollm-135m",
                  *llama(tied=True, theta=500000.0, eps=1e-6, width=36, heads=6, kv=3))
    yield GptCase("transformers LlamaForCausalLM, shards", "smollm-135m", *llama(), form="shards")
    def told(build, name, **more):
        """By config.json alone."""
        return GptCase("config.json: " + name, "config", build, ("-",), **more)

    def scaled(rope, **more):
        config = dict(vocab_size=61, max_position_embeddings=40, hidden_size=48,
                      num_hidden_layers=2, num_attention_heads=4, intermediate_size=80, **more)
        return lambda: t.LlamaForCausalLM(t.LlamaConfig(**config, rope_parameters=rope,
                                                        attn_implementation="eager"))

    three = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
             "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    yield told(gpt2(width=36, heads=3, wide=50)[0], "GPT-2, 3 heads, its own n_inner")
    yield told(llama(kv=2, theta=300.0, eps=1e-3, tied=True)[0], "Llama, 2 heads of keys, tied")
    for decode in (False, True):
        yield told(scaled(three, num_key_value_heads=2), "Llama 3.1's rotary positions"
                   + ", decoding" * decode, decode=decode)
    yield told(scaled({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
               "Llama, linearly scaled positions")
    yield told(scaled({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}),
               "Llama, positions scaled by the length",
               refused=("rope_type 'dynamic' is not supported",))
    yield told(lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=61, n_positions=40, n_embd=48,
                                                      n_layer=1, n_head=4,
                                                      activation_function="relu")),
               "GPT-2 with ReLU", refused=("activation_function 'relu' is not supported",))
    yield GptCase("transformers GPT2LMHeadModel, 124M", "gpt2",
                  *gpt2(50257, 1024, 768, 12, 12), texts=(2, 64), large=True)
    yield GptCase("transformers LlamaForCausalLM, SmolLM 135M", "smollm-135m",
                  *llama(49152, 2048, 576, 30, 9, 3, 1536, tied=True), texts=(2, 64), large=True)
