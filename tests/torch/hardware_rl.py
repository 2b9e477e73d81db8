"""A loop of reinforcement learning on one GPU, of a Llama of transformers: train, generate, refit, with communicators
of NCCL made late, on a device whose caches are full by then. Nothing is emptied or retried by hand.

usage: hardware_rl.py native|expandable|fraction|threshold|headroom [--record FILE] [--tiny]
`headroom` is a pool as the whole allocator that leaves 2 GiB to others; `commpool run -- ... native` is the other way.
`fraction` tells PyTorch the number of bytes that is right here, `threshold` too, and to collect above 0.8 of it.
"""

import ctypes
import os
import sys

ALLOCATOR = sys.argv[1]
TINY = "--tiny" in sys.argv
SETTINGS = {"expandable": "expandable_segments:True", "threshold": "garbage_collection_threshold:0.8"}
if ALLOCATOR in SETTINGS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[ALLOCATOR]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402

from hardware_measure import record  # noqa: E402

GIB = 1 << 30
ROOM = GIB if TINY else 32 * GIB  # what the loop has of the device
OTHERS = GIB // 16 if TINY else 2 * GIB
ITERATIONS = 2 if TINY else 3


def leave(room):
    """Takes the rest of the device, as another program would."""
    free = torch.cuda.mem_get_info()[0]
    taken = ctypes.c_uint64()
    if free > room and ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(taken), ctypes.c_size_t(free - room)):
        raise RuntimeError("the device does not give the rest")


def made():
    shape = (dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=512)
             if TINY else dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16,
                               num_key_value_heads=4, vocab_size=32000))
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).cuda()


def train(model, optimizer, batch, length):
    tokens = torch.randint(model.config.vocab_size, (batch, length), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    if dist.is_initialized():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()


def fill():
    """As trainings do sooner or later: a step that does not fit makes the cache take all there is."""
    held = []
    try:
        while True:
            held.append(torch.empty(GIB // 64, device="cuda"))
    except torch.OutOfMemoryError:
        pass


def main():
    if ALLOCATOR == "headroom":
        import commpool.torch as commpool
        commpool.set_headroom(OTHERS, 0)
        commpool.install(default=commpool.Pool("all", mode="expandable"))
    torch.cuda.init()
    leave(ROOM)
    if ALLOCATOR in ("fraction", "threshold"):
        torch.cuda.set_per_process_memory_fraction((ROOM - OTHERS) / torch.cuda.mem_get_info()[1])
    model = made()
    optimizer = torch.optim.AdamW(model.parameters())
    lengths = (16, 32) if TINY else (512, 1536, 1024)
    marks = []
    for iteration in range(ITERATIONS):
        for length in lengths:
            train(model, optimizer, 2 if TINY else 4, length)
        fill()
        if not dist.is_initialized():
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1,
                                    device_id=torch.device("cuda", 0))
            dist.all_reduce(torch.ones(1 << 20, device="cuda"))
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            prompt = torch.randint(model.config.vocab_size, (4 if TINY else 32, 16), device="cuda")
            model.generate(prompt, max_new_tokens=4 if TINY else 96, do_sample=False, pad_token_id=0)
        refitted = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
        group = dist.new_group([0], backend="nccl")
        for weight in refitted.values():
            dist.broadcast(weight, 0, group=group)
        torch.cuda.synchronize()
        del refitted
        marks.append({"allocated_peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.memory_reserved(),
                      "free": torch.cuda.mem_get_info()[0]})
        print(iteration, {name: f"{value / GIB:.2f} GiB" for name, value in marks[-1].items()}, flush=True)
    record("tests/torch/hardware_rl.py", {"allocator": ALLOCATOR, "iterations": marks})
    print(f"{ALLOCATOR}: right")
    os._exit(0)  # a communicator on a full device may have no memory to end in


if __name__ == "__main__":
    main()
