"""The models whose steps are timed: GPT-2 medium, ResNet-50, and a transformer with changing lengths.

`BATCH` is as large as makes the GPU, not the host, what a step waits for, as in a training that is worth its GPU;
`SMALL_BATCH` leaves the GPU waiting for the host.
"""

import torch
import torch.nn as nn
import torch.nn.functional as functional


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        queries, keys, values = self.queries(self.before_attention(x)).view(batch, length, 3, self.heads, -1).permute(
            2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class Gpt2(nn.Module):
    """GPT-2 medium: 24 layers of 1024, 16 heads; trained on tokens of its own making."""

    BATCH, SMALL_BATCH = 8, 4

    def __init__(self, layers=24, width=1024, heads=16, words=50257, length=1024):
        super().__init__()
        self.words, self.length = words, length
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Gpt2Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def batch(self, _step, size=SMALL_BATCH):
        return torch.randint(self.words, (size, self.length), device="cuda")

    def hidden(self, tokens):
        x = self.tokens(tokens) + self.places.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.last(x)

    def loss(self, tokens):
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.head(self.hidden(tokens))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside))
        self.shortcut = nn.Identity() if inside == outside and stride == 1 else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return functional.relu(self.layers(x) + self.shortcut(x))


class ResNet50(nn.Module):
    BATCH, SMALL_BATCH = 128, 64

    def __init__(self):
        super().__init__()
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        blocks, inside = [], 64
        for stage, depth in enumerate([3, 4, 6, 3]):
            for place in range(depth):
                blocks.append(Bottleneck(inside, 64 << stage, 2 if stage and not place else 1))
                inside = 4 * (64 << stage)
        self.layers = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    def batch(self, _step, size):
        return torch.randn(size, 3, 224, 224, device="cuda"), torch.randint(1000, (size,), device="cuda")

    def loss(self, batch):
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.layers(batch[0])
        return functional.cross_entropy(logits.float(), batch[1])


class ChangingLengths(nn.Module):
    """12 layers of 768; each step has another length."""

    BATCH, SMALL_BATCH = 32, 8
    LENGTHS = [512, 180, 1000, 333, 768, 96, 640, 851]

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)

    def batch(self, step, size):
        return torch.randn(size, self.LENGTHS[step % len(self.LENGTHS)], 768, device="cuda")

    def loss(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            return functional.mse_loss(self.layers(x).float(), x)


class Scales(nn.Module):
    """Of operations that the emulator has."""

    BATCH = SMALL_BATCH = 1

    def __init__(self, layers=6, width=1 << 16):
        super().__init__()
        self.weights = nn.ParameterList(torch.full((width,), 1.5) for _ in range(layers))

    def batch(self, _step, size=1):
        return torch.ones(size * self.weights[0].numel(), device="cuda")

    def loss(self, x):
        for weight in self.weights:
            x = x * weight
        return x.sum()


TINY_MODELS = {"scales": Scales}
MODELS = {"GPT-2 medium": Gpt2, "ResNet-50": ResNet50, "changing lengths": ChangingLengths}


class Training:
    """A model with its optimizer, a step at a time; gradients are made anew in each, and are gone at its end."""

    def __init__(self, name, small=False):
        torch.manual_seed(1)
        tiny = name in TINY_MODELS
        self.model = (TINY_MODELS if tiny else MODELS)[name]().cuda()
        self.batch_size = self.model.SMALL_BATCH if small else self.model.BATCH
        self.lengths = getattr(self.model, "LENGTHS", [None])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, foreach=False) if tiny \
            else torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def step(self, number, scope=None):
        """With `scope` around backward: the gradients, and what backward needs, are made in it."""
        loss = self.model.loss(self.model.batch(number, self.batch_size))
        if scope is None:
            loss.backward()
        else:
            with scope:
                loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
