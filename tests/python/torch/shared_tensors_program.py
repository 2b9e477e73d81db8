"""Passes tensors of PyTorch's own allocator between processes; run by emulated_torch_test.py."""

import torch
import torch.multiprocessing


def other(requests, answers):
    """Reads the tensors that come, writes to the second, and sends one of its own."""
    first, second = requests.get()
    answers.put((first.sum().item(), second.sum().item()))
    second.fill_(5)
    own = torch.full((300,), 7.0, device="cuda")
    answers.put(own)
    del first, second
    requests.get()
    del own
    torch.cuda.ipc_collect()


def main():
    context = torch.multiprocessing.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    first, second = torch.ones(1000, device="cuda"), torch.full((500,), 2.0, device="cuda")  # blocks of one segment
    print("expandable", torch.cuda.memory_snapshot()[0]["is_expandable"])
    process = context.Process(target=other, args=(requests, answers))
    process.start()
    requests.put((first, second))
    print("the other reads", *answers.get())
    theirs = answers.get()  # the other's event orders it after the other's writes
    print("it wrote", second.sum().item(), "and sent", theirs.sum().item())
    del theirs
    requests.put(None)
    process.join()
    print("it ends with", process.exitcode, "and leaves", first.sum().item(), second.sum().item())
    del first, second
    torch.cuda.ipc_collect()


if __name__ == "__main__":
    main()
