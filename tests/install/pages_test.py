"""The command lines of the users' pages run as they are printed: on an install tree, with the emulator as the GPUs."""

import os
import re
import subprocess
import sys

import installed

_ROOT, _HOME = installed.REPOSITORY, os.path.expanduser("~")
# Each finds what those before it have made.
_PAGES = ("README.md", "examples/README.md", "examples/reference.md", "include/commpool/reference.md",
          "tools/cli/reference.md", "tools/reference.md", "src/emulator/README.md", "src/emulator/reference.md",
          "src/python/README.md", "src/python/commpool/torch/README.md")
# What a line has that cannot run here, and why.
_NOT_HERE = (("tools/", "it builds the repository"), ("pip install", "//tests/install:wheel_test installs the wheel"),
             ("--hostfile", "//tests/hosts:hosts_test has several hosts"),
             ("--record FILE", "a model for GPUs: the next line has --tiny"))
_OF_TORCH = re.compile("torchrun|python/torch")
# The programs that pages call theirs. One of `torchrun` is none of MPI: Open MPI's processes that no `mpirun` started
# race for one folder.
_THEIRS = {"train": 'exec "$HOME/build/symmetric_all_reduce"', "program": 'exec "$HOME/first"'}
# After what the pages of the examples have built: all of it runs, and leaves what the command's page names.
_BEFORE = """set -e; build/c_program; build/scope; build/capture
for ranks in mpi_agreement shared_table data_parallel_training; do mpirun -np 4 build/$ranks; done
COMMPOOL_RECORD=recordings mpirun -np 4 ./train; commpool report recordings --as trace --output my.trace"""


def page(name):
    return (_ROOT / name).read_text(encoding="utf-8")


def program(name, language):
    return re.search(rf"```{language}\n(.*?)```", page(name), re.S)[1]


def command_lines(name):
    """Those of a page, each with the variables that lines above it in its block have set."""
    for block in re.findall(r"^```sh\n(.*?)^```", page(name), re.M | re.S):
        variables = ""
        for line in block.replace("\\\n", "").splitlines():
            line = re.sub(" +#.*", "", line)
            if re.fullmatch(r"\w+=\S+", line):
                variables += line + "; "
            else:
                yield variables + line


def torch_programs():
    """The folder of `python` and `torchrun` with PyTorch; None without one."""
    script = "source tools/torch_environment.sh; have_torch $(torch_folder) && echo $(torch_folder)/bin"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False).stdout.strip() or None


class CommandLines(installed.Case):
    @classmethod
    def setUpClass(cls):
        cls.home, cls.torch = installed.WORK / "home", torch_programs()
        (cls.home / "bin").mkdir(parents=True)
        for place, target in (("commpool", installed.prefix()), ("bin/python", sys.executable),
                              ("python", installed.prefix() / "share/commpool/examples/python")):
            (cls.home / place).symlink_to(target)
        for name, line in _THEIRS.items():
            (cls.home / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
            (cls.home / name).chmod(0o755)
        for name, text in (("first.cc", program("README.md", "cpp")), ("weights.bin", "1" * 100000),
                           ("first.py", program("src/python/README.md", "python")),
                           ("train.py", 'import os\nos.execv("./program", ["program"])\n')):
            (cls.home / name).write_text(text, encoding="utf-8")

    def run_line(self, line):
        folders = [self.torch] * bool(self.torch) + [self.home / "bin", installed.prefix() / "bin", os.environ["PATH"]]
        self.must(
            installed.prefix() / "bin/commpool", "emulate", "--", "bash", "-c", line, cwd=self.home,
            HOME=str(self.home), COMMPOOL_CACHE=os.environ.get("COMMPOOL_CACHE", f"{_HOME}/.cache/commpool"),
            PATH=":".join(map(str, folders)), PYTHONPATH=str(_ROOT / "src/python"),
            COMMPOOL_LIBRARY=str(installed.prefix() / "lib/libcommpool.so.0"), OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
            CMAKE_INCLUDE_PATH=f"{_ROOT}/external/cuda/include:{_ROOT}/external/nccl/include")

    def test_run(self):
        for name in _PAGES:
            if name == "tools/cli/reference.md":
                self.run_line(_BEFORE)
            lines = list(command_lines(name))
            self.assertTrue(lines, name)
            for line in lines:
                with self.subTest(f"{name}: {line}"):
                    for words, reason in _NOT_HERE:
                        if words in line:
                            self.skipTest(reason)
                    if _OF_TORCH.search(line) and not self.torch:
                        self.skipTest("there is no PyTorch: tools/setup --torch")
                    self.run_line(line)
