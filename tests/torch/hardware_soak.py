"""A training that goes on for minutes: it grows, sleeps, shares, loses a rank and takes a rank in again. What the ranks
that stay hold must not grow: memory of the device and of the host, descriptors, threads, mappings.

usage: hardware_soak.py [--record FILE] [--seconds 540] [--tiny]
  --tiny  on the emulator, with tensors of KiB

The last rank kills itself in each life, between two steps, and is started again. The others are judged
(`hardware_measure.grown`).
"""

import argparse
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import everywhere
from hardware_measure import grown, record

parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("--record")
parser.add_argument("--seconds", type=float, default=540)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--rank", type=int)
parser.add_argument("--meeting", type=int, default=0)
parser.add_argument("--folder")
words = parser.parse_args()
UNIT = (1 << 16) if words.tiny else (1 << 22)  # elements
STEPS = 8


def held(pools):
    """What this process holds now, by name."""
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    with open("/proc/self/maps", encoding="ascii") as file:
        mappings = sum(1 for _ in file)
    free, total = torch.cuda.mem_get_info()
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
            "mappings": mappings, "host bytes": resident, "device bytes": total - free,
            "PyTorch's bytes": torch.cuda.memory_reserved(),
            "pools' bytes": sum(pool.stats().reserved_bytes.current for pool in pools)}


class Worker:
    """One rank through its lives. A meeting makes the group: of all ranks where its number is even, else without the
    last one."""

    def __init__(self, ranks):
        self.all, self.meeting, self.end = ranks, words.meeting, time.monotonic() + words.seconds
        self.device = torch.device("cuda", words.rank)
        torch.cuda.set_device(self.device)
        self.weight = torch.nn.Parameter(torch.ones(UNIT, device=self.device))
        self.samples = []
        self.meet()
        # A rank that joins gets what the others have reserved.
        self.gradients = commpool.Pool("gradients", symmetric_across=dist.group.WORLD, deadline_ms=20000,
                                       reserve=None if self.meeting else 16 * UNIT)
        self.activations = commpool.Pool("activations", mode="expandable")
        self.shared = commpool.Pool("shared")

    def meet(self):
        ranks = self.all - self.meeting % 2
        store = dist.FileStore(os.path.join(words.folder, f"meeting {self.meeting}"), ranks)
        dist.init_process_group("nccl", store=store, rank=words.rank, world_size=ranks, device_id=self.device)

    def move(self):
        self.meeting += 1
        self.meet()
        self.gradients.rehome(dist.group.WORLD)

    def step(self, number):
        """Activations of a length that changes, and a gradient in a window."""
        with commpool.use_pool(self.activations):
            kept = [torch.full((UNIT + UNIT // 8 * place,), 1.0, device=self.device) for place in range(number % 5 + 1)]
        loss = (self.weight * kept[0][:UNIT]).mean()
        with commpool.use_pool(self.gradients):
            loss.backward()
        dist.all_reduce(self.weight.grad)
        torch.cuda.synchronize()
        total = self.weight.grad[0].item() * UNIT
        if abs(total - dist.get_world_size()) > 1e-3:
            raise AssertionError(f"a sum of {total} over {dist.get_world_size()} ranks")
        self.weight.grad = None
        self.gradients.reclaim()

    def sleep(self):
        with commpool.use_pool(self.activations):
            kept = torch.full((UNIT,), 7.0, device=self.device)
        self.activations.sleep(keep="host")
        self.gradients.sleep(graphs="no_collectives")
        self.activations.wake()
        self.gradients.wake()
        if kept[-1].item() != 7.0:
            raise AssertionError("other bytes after the sleep")

    def share(self):
        """Every rank reads the next one's tensor in place."""
        with commpool.use_pool(self.shared):
            mine = torch.full((UNIT,), float(words.rank), device=self.device)
        torch.cuda.synchronize()
        tickets = everywhere(self.shared.share(mine))
        theirs = (dist.get_rank() + 1) % len(tickets)
        if theirs != dist.get_rank():
            with commpool.Pool.import_(tickets[theirs]) as imported:
                block = imported.block(tickets[theirs])
                with block.read():
                    found = block.tensor((UNIT,), torch.float32)[UNIT - 1].item()
                block.free()
            if found != float(theirs):
                raise AssertionError(f"{found} in the tensor of rank {theirs}")
        everywhere(None)  # nobody frees what another one reads

    def life(self):
        """Ends with all ranks in one group again; whether another one follows."""
        for number in range(STEPS):
            self.step(number)
        self.sleep()
        self.share()
        if any(everywhere(time.monotonic() > self.end)):
            return False
        if words.rank == self.all - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.wait_for_the_loss()
        self.gradients.abandon(dist.group.WORLD)
        dist.distributed_c10d._abort_process_group()
        self.move()
        self.step(0)
        self.gradients.deregister(dist.group.WORLD)
        dist.destroy_process_group()
        self.move()
        self.activations.trim()
        self.shared.trim()
        gc.collect()
        self.samples.append(held([self.gradients, self.activations, self.shared]))
        return True

    def wait_for_the_loss(self):
        while self.gradients.lost_rank() is None:
            time.sleep(0.001)  # between looks

    def run(self):
        while self.life():
            pass
        self.gradients.reclaim()
        self.gradients.close()
        for pool in (self.gradients, self.activations, self.shared):
            pool.destroy()
        dist.destroy_process_group()
        return self.judge() if words.rank < self.all - 1 else 0

    def judge(self):
        grew = grown(self.samples)
        for name in self.samples[-1] if self.samples else ():
            values = [sample[name] for sample in self.samples]
            said = "GREW" if name in grew else "flat"
            print(f"rank {words.rank}, {name}: {values[0]} to {values[-1]}, {said}", flush=True)
        print(f"rank {words.rank}: {len(self.samples)} lives, {len(grew)} figures grew", flush=True)
        if words.rank == 0:
            record("tests/torch/hardware_soak.py", {"ranks": self.all, "grew": grew, "lives": len(self.samples),
                                                    "first": self.samples[:1], "last": self.samples[-1:]})
        return int(bool(grew))


def launch(ranks):
    """Starts the ranks, and the last one again each time that it kills itself."""
    environment = {**os.environ, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "WORLD_SIZE": str(ranks)}
    with tempfile.TemporaryDirectory() as folder:
        def start(rank, meeting):
            return subprocess.Popen([sys.executable, *sys.argv, "--folder", folder, "--rank", str(rank),
                                     "--meeting", str(meeting)], env=environment)

        processes, meeting = [start(rank, 0) for rank in range(ranks)], 0
        deadline = time.monotonic() + words.seconds + 120
        try:
            while None in (codes := [process.poll() for process in processes]):
                if codes[-1] == -signal.SIGKILL:
                    meeting += 2
                    processes[-1], codes[-1] = start(ranks - 1, meeting), None
                if time.monotonic() > deadline or any(codes):
                    break
                time.sleep(0.05)  # between looks at processes
        finally:
            for process in processes:
                process.kill()
    ended = codes == [0] * ranks
    print("every rank ended as it should" if ended else f"ranks ended with {codes}", flush=True)
    return int(not ended)


def main():
    ranks = min(4, torch.cuda.device_count())
    if words.rank is not None:
        return Worker(int(os.environ["WORLD_SIZE"])).run()
    if ranks < 2:
        print("skipped: 2 GPUs are needed")
        return 0
    return launch(2 if words.tiny else ranks)


if __name__ == "__main__":
    sys.exit(main())
