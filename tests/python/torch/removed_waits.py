"""Leaves one wait of PyTorch's own code out, to see whether the emulator reports it.

By hand: commpool emulate -- python removed_waits.py CASE [MODULE...] runs parallel_ranks.py's CASE once for each wait
of these modules, on two ranks, and prints what was reported.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys

from rank_processes import FOLDER, torchrun

_FSDP = "torch.distributed.fsdp._fully_shard."
MODULES = [_FSDP + name for name in ("_fsdp_collectives", "_fsdp_param_group", "_fsdp_state", "_fsdp_param")]
_WAITS = {"wait", "wait_event", "wait_stream", "record_stream", "synchronize"}
RUNS = "a left out statement runs"


def _is_wait(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and getattr(
        node.value.func, "attr", "") in _WAITS


def waits(module):
    """The lines of its waits, each with its text."""
    with open(importlib.util.find_spec(module).origin, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    return {node.lineno: ast.unparse(node) for node in ast.walk(tree) if _is_wait(node)}


class _Left(ast.NodeTransformer):
    def __init__(self, line):
        self.line = line

    def visit_Expr(self, node):  # pylint: disable=invalid-name
        if node.lineno != self.line or not _is_wait(node):
            return node
        return ast.copy_location(ast.parse(f"__import__('sys').stderr.write({RUNS + chr(10)!r})").body[0], node)


class _Loader(importlib.machinery.SourceFileLoader):
    line = 0

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return compile(ast.fix_missing_locations(_Left(self.line).visit(ast.parse(self.get_data(path)))), path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module, line):
        self.module, self.line = module, line

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        spec.loader = _Loader(name, spec.origin)
        spec.loader.line = self.line
        return spec


def leave_out(words):
    """Takes `--without MODULE:LINE` from the command line's words. Call it before the module is imported."""
    if "--without" not in words:
        return
    place = words.index("--without")
    module, line = words[place + 1].split(":")
    del words[place:place + 2]
    sys.meta_path.insert(0, _Finder(module, int(line)))


def reported(case, module, line, ranks=2):
    """The races that are reported without that wait; None where the case does not come by it."""
    words = ("cuda", case, "--without", f"{module}:{line}")
    result = subprocess.run(torchrun(ranks, FOLDER / "parallel_ranks.py", *words), capture_output=True, text=True,
                            timeout=250, check=False)
    if RUNS not in result.stderr:
        return None
    return [text for text in result.stderr.splitlines() if "broken rule: race" in text]


def main():
    for module in sys.argv[2:] or MODULES:
        for line, text in sorted(waits(module).items()):
            races = reported(sys.argv[1], module, line)
            said = "does not run" if races is None else f"{len(races)} races"
            print(f"{module.rpartition('.')[2]}:{line}", said, text, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
