"""Graphs of one model for several batch sizes, which never run at once: what memory they hold, each with memory of its
own and sharing it, by PyTorch's handle and by a pool's promise. Replays in any order give what the model gives.

usage: hardware_graphs.py [--record FILE] [--tiny]
"""

import gc
import random
import sys

import torch

import commpool.torch as commpool

from hardware_measure import record
from hardware_models import Gpt2

TINY = "--tiny" in sys.argv
BATCHES = [4, 2, 1] if TINY else [64, 48, 32, 16, 8, 4, 2, 1]
MIB = 1 << 20


def logits(model, tokens):
    return model.head(model.hidden(tokens)[:, -1])


def held():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def graphs_of(model, inputs, handle):
    graphs, outputs = [], []
    for tokens in inputs:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=handle):
            outputs.append(logits(model, tokens))
    return graphs, outputs


def check(graphs, outputs, expected):
    order = list(range(len(graphs))) * 3
    random.Random(1).shuffle(order)
    for number in order:
        graphs[number].replay()
        torch.testing.assert_close(outputs[number], expected[number], rtol=2e-2, atol=2e-2)


def main():
    model = (Gpt2(2, 64, 4, 512, 64) if TINY else Gpt2(length=512)).cuda().bfloat16().requires_grad_(False)
    inputs = [torch.randint(model.words, (batch, model.length), device="cuda") for batch in BATCHES]
    expected = [logits(model, tokens) for tokens in inputs]
    found = {}
    for name in ["torch apart", "torch shared"] + [f"{mode} {how}" for mode in ("fixed", "expandable")
                                                  for how in ("apart", "shared")]:
        before = held()
        pool = mem_pool = None
        if name.startswith("torch"):
            handle = torch.cuda.graph_pool_handle() if name.endswith("shared") else None
        else:
            mode, how = name.split()
            pool = commpool.Pool(name.replace(" ", "-"), mode=mode, concurrent_replays=how == "apart")
            mem_pool = commpool.mem_pool(pool)
            handle = mem_pool.id
        graphs, outputs = graphs_of(model, inputs, handle)
        found[name] = held() - before
        check(graphs, outputs, expected)
        print(f"{name:18} {found[name] / MIB:9.0f} MiB of the device", flush=True)
        del graphs, outputs, mem_pool, handle
        torch.cuda.synchronize()
        if pool is not None:
            gc.collect()
            pool.close()
    record("tests/torch/hardware_graphs.py", {"batches": BATCHES, "held": found})
    worst = max(found["fixed shared"], found["expandable shared"])
    print(f"shared by a pool / by torch {worst / found['torch shared']:.2f}")


if __name__ == "__main__":
    main()
