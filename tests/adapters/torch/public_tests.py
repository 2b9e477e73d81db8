"""PyTorch's own public tests of its allocator, with and without our router in front of it: a table of both.

usage: public_tests.py FILE [--tests REGEX] [--only native|router] [--seconds N] [--record TABLE] [--log FILE]
  FILE      test/test_cuda.py of the PyTorch release that is installed; its imports (expecttest, psutil, numpy) too
  --tests   which of them, by class.name (default: memory pools, checkpoints of them, snapshots, pluggable)
  --seconds how long one may take (default 120)
  --record  writes the table there, as Markdown
  --log     where what the tests print goes

The tests run in a process each way, which begins anew behind a test that ends it or hangs. On the emulator
(`commpool emulate -- python ...`) tests that need a kernel which it has not count as `kernel`. The tests' own allocator
of two functions is compiled without torch's headers, in a second, and over cudaMalloc: the emulator has no managed
memory, and no test touches it from the host.
"""

import argparse
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import tempfile
import unittest

import supervised

_USUAL = r"TestMemPool\.|TestBlockStateAbsorption\.|TestCuda\w*\.test_\w*(snapshot|pluggable)"
_KERNEL = "the emulator cannot run"
_WAYS = ("native", "router")


_PLAIN = """
#include <stddef.h>
#define C10_EXPORT __attribute__((visibility("default")))
#define C10_CUDA_CHECK(call) ((call) != 0 ? __builtin_trap() : (void)0)
extern "C" int cudaMalloc(void** pointer, size_t bytes);
extern "C" int cudaFree(void* pointer);
"""


def compile_plainly():
    """Lets torch.utils.cpp_extension.load_inline make the tests' allocator in a second."""
    from torch.utils import cpp_extension

    usual, folder, numbers = cpp_extension.load_inline, tempfile.mkdtemp(), itertools.count()

    def load_inline(name, cpp_sources, *arguments, **words):
        if words.get("is_python_module", True) or "cudaMallocManaged" not in cpp_sources:
            return usual(name, cpp_sources, *arguments, **words)
        source = re.sub(r"#include <.*>", "", cpp_sources).replace("cudaMallocManaged", "cudaMalloc")
        library = f"{folder}/{name}_{next(numbers)}.so"  # each with variables of its own, as torch's
        subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=_PLAIN + source, text=True,
                       check=True)
        return library

    cpp_extension.load_inline = load_inline


def load(file):
    """The file as a module, as unittest would import it."""
    compile_plainly()
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location("test_cuda", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_cuda"] = module
    spec.loader.exec_module(module)
    return module


def names_in(module, wanted):
    """class.name of the tests, in their order."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and
               issubclass(value, unittest.TestCase) and value.__module__ == "test_cuda"]
    names = [f"{of.__name__}.{name}" for of in classes for name in unittest.TestLoader().getTestCaseNames(of)]
    return [name for name in names if re.search(wanted, name)]


def work(options):
    """The process's part."""
    module = load(options.file)
    if options.work == "router":
        import commpool.torch

        if not commpool.torch.install():
            sys.exit("there is no router")

    def make(name):
        of, _, method = name.partition(".")
        return getattr(module, of)(method)

    supervised.serve(names_in(module, options.tests), make,
                     lambda said, text: "kernel" if _KERNEL in text else said)


def run_all(options, way):
    """{name: [outcome, reason]} of all tests, one way."""
    command = [sys.executable, __file__, options.file, "--tests", options.tests, "--work", way]
    found = {}
    with open(options.log or os.devnull, "a", encoding="utf-8") as log:
        supervisor = supervised.Supervisor(command, log, options.seconds)
        if supervisor.names is None:
            sys.exit(f"{options.file} could not be run ({way}): start it with --work {way} to see why")
        for name in supervisor.names:
            found[name] = supervisor.run(name)
            print(f"{way:<7} {found[name][0]:<7} {name}  {found[name][1]}", flush=True)
        supervisor.end()
    return found


def table(found):
    """Markdown: how many came out how, and those that came out differently."""
    ways = list(found)
    kinds = sorted({outcome for of in found.values() for outcome, _ in of.values()})
    lines = ["| | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    for way in ways:
        lines.append(f"| {way} | " + " | ".join(str(sum(outcome == kind for outcome, _ in found[way].values()))
                                               for kind in kinds) + " |")
    lines += ["", "| test | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for name in found[ways[0]]:
        outcomes = [found[way][name][0] for way in ways]
        if set(outcomes) - {"kernel", "skip"}:
            lines.append(f"| `{name}` | " + " | ".join(outcomes) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--tests", default=_USUAL)
    parser.add_argument("--only", choices=_WAYS)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--record")
    parser.add_argument("--log")
    parser.add_argument("--work", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return 0
    found = {way: run_all(options, way) for way in ([options.only] if options.only else _WAYS)}
    text = table(found)
    print(text)
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            file.write(text)
    if options.only:
        return 0
    worse = [name for name, (outcome, _) in found["native"].items()
             if outcome == "pass" and found["router"][name][0] != "pass"]
    print(f"passes natively and not with the router: {', '.join(worse) or 'none'}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
