"""A process that the programs about shared tensors ask; nothing here imports commpool."""

import torch.multiprocessing

SECONDS = 100


class Asked:
    """Runs `answer(pipe)`, which gets (name, argument) by the pipe and sends what it found, until None comes."""

    def __init__(self, answer):
        context = torch.multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=answer, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, name, argument=None):
        self.pipe.send((name, argument))
        if not self.pipe.poll(SECONDS):
            raise RuntimeError(f"no answer to {name} within {SECONDS} s")
        return self.pipe.recv()

    def end(self):
        self.pipe.send(None)
        self.process.join()
        return self.process.exitcode
