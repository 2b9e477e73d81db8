"""Training that goes on without a rank that was killed: python elastic_training.py [--ranks N] [--kill WHEN]

It starts its ranks itself, a GPU each, for torchrun would end them all with the first. The last one is killed between
two steps (`between`, the default), inside an all-reduce (`inside`), or not at all (`never`). The others give their
communicator up, make one of those that are left, move the pool there, and do the step again.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import commpool.torch as commpool

STEPS, LAST_STEP = 8, 4  # in all, and of the rank that is killed
RATE = 1 / 32
ENDED_INSIDE = 3
FIRST_THAT_ABORTS_WINDOWS = (2, 29, 7)


class Worker:
    """One rank, whoever the others are at the time."""

    def __init__(self, words):
        self.number, self.members, self.words = words.rank, list(range(words.ranks)), words
        self.device = torch.device("cuda", self.number)
        torch.cuda.set_device(self.device)
        self.weight = torch.nn.Parameter(torch.full((1 << 16,), 1.0, device=self.device))
        self.batch = torch.full((1 << 16,), 1.0 + self.number, device=self.device)
        self.meet()
        self.pool = commpool.Pool("gradients", symmetric_across=dist.group.WORLD, reserve="2MiB", deadline_ms=8000)

    def meet(self):
        store = dist.FileStore(os.path.join(self.words.folder, f"of {len(self.members)}"), len(self.members))
        dist.init_process_group("nccl", store=store, rank=self.members.index(self.number),
                                world_size=len(self.members), device_id=self.device)

    def run(self):
        step = 0
        while step < STEPS:
            try:
                loss = self.step(step)
            except commpool.RemoteFailure:
                self.go_on()
                continue  # with the same step: no rank has taken it
            if self.number == self.members[0]:
                print(f"step {step}: loss {loss:g}, {len(self.members)} ranks", flush=True)
            step += 1
        print(f"rank {self.number}: weight {self.weight[0].item():g}", flush=True)
        self.pool.reclaim()
        self.pool.close()
        self.pool.destroy()
        dist.destroy_process_group()

    def step(self, step):
        """All ranks of the group take it, or none. Raises RemoteFailure where one is lost."""
        difference = (self.weight - 2.0) * self.batch
        loss = (difference * difference).mean()
        with commpool.use_pool(self.pool):  # the gradient lies in a window
            loss.backward()
        self.die_where("inside", step)
        dist.all_reduce(self.weight.grad)
        self.wait()
        self.die_where("between", step)
        self.pool.reclaim()  # collective: it fails on every rank where one is lost
        with torch.no_grad():
            self.weight -= self.weight.grad * (RATE * self.weight.numel() / len(self.members))
        self.weight.grad = None
        return loss.item()

    def die_where(self, where, step):
        if self.words.kill == where and step == LAST_STEP and self.number == self.words.ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def wait(self):
        """For the all-reduce, which waits for ever where a rank is lost: so not in a call that could not be left."""
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            if self.pool.lost_rank() is not None:
                if torch.cuda.nccl.version() < FIRST_THAT_ABORTS_WINDOWS:
                    print("a rank is lost inside a collective: only the end of this process ends it", flush=True)
                    os._exit(ENDED_INSIDE)
                raise commpool.RemoteFailure("a rank is lost inside a collective")
            time.sleep(0.001)  # between looks at the GPU

    def go_on(self):
        """In this order: NCCL gives the memory of windows back as long as their communicator is alive."""
        lost = self.members[self.pool.lost_rank()]
        self.pool.abandon(dist.group.WORLD)
        dist.distributed_c10d._abort_process_group()
        self.weight.grad = None  # a pool moves without blocks
        self.members.remove(lost)
        self.meet()
        self.pool.rehome(dist.group.WORLD)
        if self.number == self.members[0]:
            print(f"rank {lost} is lost: {len(self.members)} go on", flush=True)


def launch(words):
    """Starts the ranks; whether each ended as it should."""
    # A rank that is lost is this program's to handle: torch's watchdog would end the process.
    environment = {**os.environ, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--ranks", str(words.ranks), "--kill", words.kill, "--folder", folder]
        ranks = [subprocess.Popen([*command, "--rank", str(number)], env=environment) for number in range(words.ranks)]
        try:
            codes = [rank.wait(timeout=words.seconds) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    expected = [0] * words.ranks if words.kill == "never" else [0] * (words.ranks - 1) + [-signal.SIGKILL]
    print("every rank ended as it should" if codes == expected else f"ranks ended with {codes}", flush=True)
    return codes == expected


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=min(3, torch.cuda.device_count()))
    parser.add_argument("--kill", choices=["between", "inside", "never"], default="between")
    parser.add_argument("--seconds", type=int, default=120, help="after which all are ended")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.rank is None:
        sys.exit(not launch(words))
    Worker(words).run()


if __name__ == "__main__":
    main()
