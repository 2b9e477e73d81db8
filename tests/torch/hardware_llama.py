"""A Llama of transformers, of random weights: whole for training, or a rank's part of it for decoding."""

import torch
import torch.distributed as dist
from torch.nn import functional
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

from hardware_group import tiny

SEQUENCE, CACHED = (64, 16) if tiny() else (4096, 512)  # tokens; CACHED: the last of them is the one that is decoded


def _config(parts=1, **more):
    """That of Llama 3.2 1B, its heads and the inside of its MLPs divided among so many parts."""
    layers, width, inner, heads, words = (2, 128, 256, 2, 256) if tiny() else (16, 2048, 8192, 32, 128256)
    return LlamaConfig(hidden_size=width, intermediate_size=inner // parts, num_hidden_layers=layers, vocab_size=words,
                       num_attention_heads=heads // parts, num_key_value_heads=max(2, heads // 4) // parts, head_dim=64,
                       max_position_embeddings=8192, rope_theta=500000.0, tie_word_embeddings=True, **more)


class Llama(torch.nn.Module):
    """In bfloat16, its layers compiled."""

    def __init__(self):
        super().__init__()
        self.model = LlamaForCausalLM(_config()).to(torch.bfloat16)
        for layer in self.layers() if not tiny() else ():
            layer.compile(dynamic=False)

    def layers(self):
        return self.model.model.layers

    def batch(self, _step, tokens=2 * SEQUENCE):
        return torch.randint(3, self.model.config.vocab_size, (tokens // SEQUENCE, SEQUENCE), device="cuda")

    def loss(self, tokens):
        return self.model(input_ids=tokens, labels=tokens, use_cache=False).loss


class _RowParallel(torch.nn.Module):
    """A linear layer over this rank's part of its input; `way(weight, x)` makes the part of the sum."""

    def __init__(self, linear):
        super().__init__()
        self.weight, self.way = linear.weight, None

    def forward(self, x):
        part = self.way(self.weight, x)
        dist.all_reduce(part)
        return part


def _attend(module, queries, keys, values, _mask, **_more):
    """Over a cache with a place for each position, of which the last is this token's: all shapes are those of a graph.
    """
    for cache, new in ((module.cached_keys, keys), (module.cached_values, values)):
        cache[:, :, -1:].copy_(new)
    attended = functional.scaled_dot_product_attention(queries, module.cached_keys, module.cached_values,
                                                       enable_gqa=True)
    return attended.transpose(1, 2), None


class Decoding(torch.nn.Module):
    """This rank's part of the model, and a cache that is full: the next token of one sequence."""

    def __init__(self, device):
        super().__init__()
        AttentionInterface.register("of a full cache", _attend)
        torch.manual_seed(1 + dist.get_rank())
        with torch.device("cpu" if tiny() else device):
            config = _config(dist.get_world_size(), attn_implementation="of a full cache")
            self.model = LlamaForCausalLM(config).to(torch.bfloat16).to(device)
        dist.broadcast(self.model.lm_head.weight.detach(), 0)  # the embedding too; the parts of the rest differ
        self.rows = []
        for layer in self.model.model.layers:
            layer.self_attn.o_proj, layer.mlp.down_proj = map(_RowParallel,
                                                              (layer.self_attn.o_proj, layer.mlp.down_proj))
            self.rows += [layer.self_attn.o_proj, layer.mlp.down_proj]
            for cache in ("cached_keys", "cached_values"):
                shape = (1, config.num_key_value_heads, CACHED, config.head_dim)
                layer.self_attn.register_buffer(cache, torch.randn(shape, device=device, dtype=torch.bfloat16))
        self.register_buffer("token", torch.ones(1, 1, dtype=torch.int64, device=device))
        self.register_buffer("position", torch.full((1, 1), CACHED - 1, device=device))

    def forward(self, way):
        """The logits of the token after this one."""
        for row in self.rows:
            row.way = way
        return self.model(input_ids=self.token, position_ids=self.position, use_cache=False).logits[0, -1]
