"""Several ranks, one process each, with a communicator of the emulated NCCL. This process gathers for them."""

import contextlib
import ctypes
import multiprocessing
import os
import time
import traceback

import emulated


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]

    @classmethod
    def make(cls):
        made = cls()
        emulated.check(emulated.nccl().ncclGetUniqueId(ctypes.byref(made)))
        return ctypes.string_at(ctypes.byref(made), ctypes.sizeof(made))


class Communicator:
    """Like nccl4py's: `ptr` is the ncclComm_t."""

    def __init__(self, unique_id, ranks, rank):
        handle = ctypes.c_void_p()
        emulated.check(emulated.nccl().ncclCommInitRank(ctypes.byref(handle), ctypes.c_int(ranks),
                                                        UniqueId.from_buffer_copy(unique_id), ctypes.c_int(rank)))
        self.ptr = handle.value

    def end(self, call="ncclCommDestroy"):
        emulated.check(getattr(emulated.nccl(), call)(ctypes.c_void_p(self.ptr)))


class Job:
    """One rank. Its device has the rank's number, or is the only visible one."""

    def __init__(self, pipe, rank, ranks, device):
        import commpool

        self._pipe, self.rank, self.ranks, self.device = pipe, rank, ranks, device
        commpool.initialize("emulated")
        emulated.make_current(device)
        self.communicator = self.make_communicator()

    def pool(self, name="pool", **options):
        """A symmetric pool of all ranks."""
        import commpool

        return commpool.Pool(name, device=self.device, symmetric_across=self.communicator, **options)

    def gather(self, value):
        """What all ranks gave, rank 0 first."""
        self._pipe.send(("gather", value))
        return self._pipe.recv()

    def make_communicator(self, members=None):
        """Makes a communicator of some ranks, by default of all; None on the others. All ranks call it."""
        members = range(self.ranks) if members is None else members
        unique_id = self.gather(UniqueId.make() if self.rank == members[0] else None)[members[0]]
        return Communicator(unique_id, len(members), list(members).index(self.rank)) if self.rank in members else None

    def die(self):
        """Dies silently, like a rank that is lost."""
        os._exit(0)


def message_of(call, *arguments, **options):
    """What a call raises, by its class's name."""
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001  whatever it is, the test sees it
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _rank(case, pipe, rank, ranks, alone):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))  # as launchers do
    if alone:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    try:
        pipe.send(("returned", case(Job(pipe, rank, ranks, 0 if alone else rank))))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


def run(case, ranks=2, alone=False):
    """Runs `case(job)` on each rank and returns the results; None for a rank that died. An exception fails the test.

    With `alone` each rank sees only its own device, as many launchers do it.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes, results = {}, [], [None] * ranks
    for rank in range(ranks):
        pipes[rank], theirs = context.Pipe()
        processes.append(context.Process(target=_rank, args=(case, theirs, rank, ranks, alone)))
        processes[-1].start()
        theirs.close()
    try:
        _serve(pipes, results)
    finally:
        for process in processes:
            process.join(timeout=60)
            process.kill()
    return results


def _serve(pipes, results):
    deadline = time.monotonic() + 200
    while pipes:
        gathered = {}
        for rank, pipe in list(pipes.items()):
            if not pipe.poll(max(deadline - time.monotonic(), 0)):
                raise AssertionError(f"rank {rank} hangs")
            kind, value = "died", None
            with contextlib.suppress(EOFError):
                kind, value = pipe.recv()
            if kind == "raised":
                raise AssertionError(f"rank {rank}: {value}")
            if kind == "gather":
                gathered[rank] = value
                continue
            results[rank] = value
            del pipes[rank]
        answer = [gathered.get(rank) for rank in range(len(results))]
        for rank in gathered:
            pipes[rank].send(answer)
