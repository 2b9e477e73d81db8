"""One rank of hardware_audit.py's training: GPT-2 with random weights, DistributedDataParallel."""

import argparse
import ctypes
import json
import os
import statistics

import torch
import torch.distributed
import transformers


def make_model(device):
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).to(device)


def report(reason):
    """Only under `commpool audit`, whose library is preloaded."""
    ctypes.CDLL(None).commpool_audit_report(reason.encode())


def train_step(model, optimizer, tokens):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def profile(step):
    """How torch.profiler fares where CUPTI's subscriber is taken."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            step()
            torch.cuda.synchronize()
        kernels = sum(event.count for event in profiler.key_averages() if event.device_time_total > 0)
        return f"{kernels} kernels seen"
    except RuntimeError as error:
        return f"error: {error}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", device_id=device)
    model = torch.nn.parallel.DistributedDataParallel(make_model(device))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(50257, (options.batch, options.length), device=device)
    times = []
    for number in range(options.steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        train_step(model, optimizer, tokens)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
        if options.report:
            report(f"step {number}")
    seen = profile(lambda: train_step(model, optimizer, tokens)) if options.profile else None
    result = {"rank": rank, "median_ms": statistics.median(times[len(times) // 3:]), "profiler": seen}
    os.write(1, f"result {json.dumps(result)}\n".encode())  # in one piece: ranks share the file
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
