"""The processor's time of a GPT's training steps, on plain CPU tensors or, under `commpool emulate`, on a GPU's.

By hand, with OMP_NUM_THREADS=1: gpt_step.py WIDTH, and commpool emulate -- python gpt_step.py WIDTH. The last line is
the seconds of a step and its loss.
"""

import sys
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

STEPS, LAYERS, HEADS, WORDS, LENGTH, BATCH = 6, 4, 4, 4096, 128, 4


def model(width, device):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(width, HEADS, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    made = nn.Sequential(nn.Embedding(WORDS, width), nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False),
                         nn.Linear(width, WORDS))
    return made.to(device)


def main():
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = model(int(sys.argv[1]), device)
    optimizer = torch.optim.AdamW(made.parameters())
    words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(2)).to(device)

    def step():
        optimizer.zero_grad()
        loss = cross_entropy(made(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    begin = time.process_time()
    for _ in range(STEPS):
        loss = step()
    print(f"{device}: {(time.process_time() - begin) / STEPS:.3f} s a step, loss {loss:.6f}")


if __name__ == "__main__":
    main()
