"""Starts the ranks of one group as processes, like torchrun: each has a GPU, and they find each other by a file."""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile


def unused_port():
    """A port that the kernel gives to nobody who does not ask for it, so no other test gets it before rank 0 does."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)):
                return str(port)
    raise AssertionError("100 ports are all in use")


def unprepared():
    """The environment without what a test preloads, and without commpool's variables."""
    return {name: value for name, value in os.environ.items()
            if name != "LD_PRELOAD" and not name.startswith("COMMPOOL_")}


def run_ranks(program, world, *arguments, timeout=240):
    """Runs `program RANK WORLD STORE ARGUMENT...` for each rank. Returns a list of (exit code, output)."""
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        ranks = [subprocess.Popen([sys.executable, "-B", str(program), str(rank), str(world), str(store), *arguments],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for rank in range(world)]
        try:
            return [(rank.returncode, output) for rank, output in
                    ((rank, rank.communicate(timeout=timeout)[0]) for rank in ranks)]
        finally:
            for rank in ranks:
                rank.kill()


def said_by_ranks(program, *words, ranks=2, seconds=600, reported=False, **environment):
    """Runs the ranks of a program and returns what they said, by case. They must exit with 0, and break no rule, or all
    one.

    Rank 0 prints a line of JSON for each case: its name, and what all ranks said.
    """
    shared = {**os.environ, **environment, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": unused_port()}
    processes = [subprocess.Popen([sys.executable, str(program), *words], env={**shared, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(ranks)]
    answers = []
    try:
        for process in processes:
            answers.append(process.communicate(timeout=seconds))
            if process.returncode:
                break  # the other rank would wait for it
    finally:
        for process in processes:
            process.kill()
    for process, (out, errors) in zip(processes, answers):
        if process.returncode or ("broken rule" in errors) != reported:
            raise AssertionError(f"a rank ended with {process.returncode}:\n{out}\n{errors}")
    return dict(json.loads(line) for line in answers[0][0].splitlines() if line.startswith("["))


def join(arguments):
    """Begins such a program: makes the default group over NCCL. Returns rank, world and device."""
    import torch
    import torch.distributed as distributed

    rank, world, store = int(arguments[1]), int(arguments[2]), arguments[3]
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", store=distributed.FileStore(store, world), rank=rank, world_size=world,
                                   device_id=device)
    return rank, world, device
