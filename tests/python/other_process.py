"""A further process that has commpool: it runs the lines of Python that a test sends, and answers."""

import json
import os
import subprocess
import sys


class Other:
    """Started by `Other()`; it has `commpool`, `emulated`, `values(block)`, and what its lines name."""

    def __init__(self):
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
        self._process = subprocess.Popen([sys.executable, "-B", __file__], env=environment, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)

    def does(self, line):
        """Runs a line, such as an import or an assignment; raises what it raises, by its class's name."""
        return self._ask("exec", line)

    def says(self, expression):
        """The value of an expression, as JSON has it."""
        return self._ask("eval", expression)

    def _ask(self, how, text):
        self._process.stdin.write(json.dumps([how, text]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"the other process ended: {self._process.wait()}")
        value, error = json.loads(answer)
        if error is not None:
            raise OtherError(error)
        return value

    def kill(self):
        self._process.kill()
        self.end()

    def end(self):
        """Lets it end; its exit code."""
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        return code


class OtherError(Exception):
    """What a line raised: `NAME: message`."""


def _values(block):
    """The bytes at both ends of a block, once its reads may begin."""
    import emulated

    with block.read():
        return [emulated.byte_at(block.pointer + offset) for offset in (0, block.nbytes - 1)]


def _serve():
    import emulated

    import commpool

    emulated.make_current(0)
    names = {"commpool": commpool, "emulated": emulated, "values": _values}
    for request in sys.stdin:
        how, text = json.loads(request)
        try:
            answer = [{"exec": exec, "eval": eval}[how](text, names), None]
        except Exception as error:  # noqa: BLE001  whatever it is, the test hears of it
            answer = [None, f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), flush=True)
    count, text = emulated.reports()
    if count:
        sys.exit(text)


if __name__ == "__main__":
    _serve()
