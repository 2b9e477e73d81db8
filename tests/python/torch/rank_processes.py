"""Starts the ranks of one group as processes, like torchrun: each has a GPU, and they find each other by a file."""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).parent


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


def torchrun(ranks, *program):
    """The command that has torchrun start the ranks of a program."""
    return [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
            *program]


def _started(command, **environment):
    return subprocess.Popen(command, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def _answers(ranks, seconds, all_end=True):
    """[(exit code, stdout, stderr)] of each, in order; up to the first that fails, unless `all_end`."""
    answers = []
    try:
        for rank in ranks:
            said = rank.communicate(timeout=seconds)
            answers.append((rank.returncode, *said))
            if rank.returncode and not all_end:
                break  # the other ranks would wait for it
    finally:
        for rank in ranks:
            rank.kill()
    return answers


def run_ranks(program, world, *words, under=(), **environment):
    """Runs `program RANK WORLD STORE WORD...` for each rank. Returns a list of (exit code, stdout, stderr)."""
    with tempfile.TemporaryDirectory() as folder:
        return _answers([_started([*under, sys.executable, "-B", FOLDER / program, str(rank), str(world),
                                   f"{folder}/store", *words], **environment) for rank in range(world)], seconds=240)


def printed_by_ranks(program, *words, ranks=2, seconds=600, reported=False, **environment):
    """Runs the ranks of a program and returns what each printed. They must exit with 0, and break no rule, or all
    one.
    """
    shared = {**environment, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port()}
    processes = [_started([sys.executable, "-B", FOLDER / program, *words], **shared, RANK=str(rank),
                          LOCAL_RANK=str(rank)) for rank in range(ranks)]
    answers = _answers(processes, seconds, all_end=False)
    for code, out, errors in answers:
        if code or ("broken rule" in errors) != reported:
            raise AssertionError(f"a rank of {program} ended with {code}:\n{out}\n{errors}")
    return [out for _, out, _ in answers]


def said_by_ranks(program, *words, **options):
    """What the ranks of a program said, by case. Rank 0 prints a line of JSON for each: its name, and what all said."""
    printed = printed_by_ranks(program, *words, **options)[0]
    return dict(json.loads(line) for line in printed.splitlines() if line.startswith("["))


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
