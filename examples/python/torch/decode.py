"""Decoding with tensor parallelism in a CUDA graph, with and without windows: torchrun --nproc-per-node 2 decode.py

Each rank has a part of every layer; what the parts make is summed. `--record FILE` appends what was found, as JSON.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

import commpool.torch as commpool

WIDTH, LAYERS, TOKENS = 4096, 4, 50


class Part(torch.nn.Module):
    """This rank's part of a layer. A real one multiplies matrices where this one multiplies by a vector."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WIDTH,), 0.125), requires_grad=False)

    def forward(self, x, windows):
        if windows is None:
            out = x * self.weight
        else:
            with windows:  # what is made here lies in a window
                out = x * self.weight
        dist.all_reduce(out)
        return x + out


def decode(parts, start, windows):
    """Tokens from a graph: the last one's first element, and seconds a token."""
    graph, result = torch.cuda.CUDAGraph(), start

    def token():
        x = start
        for part in parts:
            x = part(x, windows)
        return x

    token()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = token()
    graph.replay()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(TOKENS):
        graph.replay()
    torch.cuda.synchronize()
    return result[0].item(), (time.perf_counter() - begin) / TOKENS


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    pool = commpool.Pool("outputs", symmetric_across=dist.group.WORLD, reserve="16MiB")
    windows = commpool.tp(pool, sizes=("4KiB", "1MiB"))  # without sizes: those for which windows were measured to gain
    parts, start = [Part().to(device) for _ in range(LAYERS)], torch.ones(WIDTH, device=device)
    plain, in_windows = decode(parts, start, None), decode(parts, start, windows)
    if dist.get_rank() == 0:
        print(f"the same token: {plain[0] == in_windows[0]}, {in_windows[0]:g}")
        print(f"a token takes {1e6 * plain[1]:.0f} us, and {1e6 * in_windows[1]:.0f} us in windows")
        if "--record" in sys.argv:
            with open(sys.argv[sys.argv.index("--record") + 1], "a", encoding="utf-8") as file:
                json.dump({"ranks": dist.get_world_size(), "plain_us": 1e6 * plain[1],
                           "windows_us": 1e6 * in_windows[1]}, file)
                file.write("\n")
    pool.reclaim()
    pool.close()
    pool.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
