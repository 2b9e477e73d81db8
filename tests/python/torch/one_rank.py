"""One rank of a Llama's training by FSDP2, whose other ranks are nowhere: one_rank.py [RECORDING] [--large|--8B].

RANK=0 WORLD_SIZE=64 COMMPOOL_EMULATOR=ranks=one commpool emulate --kernels none -- python one_rank.py DIR --large
is a step of 70 billion parameters. `commpool report DIR` then has the peak, and whose memory it is.
RANK=0 WORLD_SIZE=1 python one_rank.py --8B
is one of 8 billion in bfloat16 on one GPU, behind `commpool emulate --kernels none --` or on an H200.
"""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

SIZES = {"--large": (80, 8192, 64, 8, 28672, 128256, 4096), "--8B": (32, 4096, 32, 8, 14336, 128256, 4096)}
LAYERS, WIDTH, HEADS, KEYS, HIDDEN, WORDS, LENGTH = next((SIZES[word] for word in sys.argv if word in SIZES), (
    3, 2048, 16, 4, 8192, 4096, 128))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        part = WIDTH // HEADS
        self.q, self.k, self.v = (nn.Linear(WIDTH, heads * part, bias=False) for heads in (HEADS, KEYS, KEYS))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (make(x).unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2) for make in (self.q, self.k, self.v))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention, self.between = nn.RMSNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def mixed(self, x):
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))

    def forward(self, x):
        return checkpoint(self.mixed, x, use_reentrant=False)


def sharded():
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Layer() for _ in range(LAYERS)), nn.RMSNorm(WIDTH),
                              nn.Linear(WIDTH, WORDS, bias=False))
    if os.environ["WORLD_SIZE"] == "1":
        return model.bfloat16().to_empty(device="cuda")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model.to_empty(device="cuda")


def recorded(words):
    """PyTorch's whole allocator is a pool, whose recording a folder takes; or neither."""
    if not words:
        return contextlib.nullcontext()
    import commpool.torch as commpool

    commpool.install(default=commpool.Pool("PyTorch", mode="expandable"))
    return commpool.record(words[0], stacks="python")


def main():
    begin = time.monotonic()
    torch.backends.cuda.enable_cudnn_sdp(False)  # a GPU's first choice; the emulator has none
    dist.init_process_group("nccl", store=dist.HashStore(), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
    with recorded([word for word in sys.argv[1:] if not word.startswith("--")]):
        model = sharded()
        optimizer = torch.optim.AdamW(model.parameters())
        words = torch.zeros(1, LENGTH, dtype=torch.long, device="cuda")
        for _ in range(2):
            cross_entropy(model(words).flatten(0, 1).float(), words.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        print(sum(parameter.numel() for parameter in model.parameters()), torch.cuda.max_memory_allocated(),
              flush=True)
    print(f"{time.monotonic() - begin:.1f} s, reserved {torch.cuda.max_memory_reserved()}", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
