"""Which sources a compiler has passed, by the contents of all files that it read: they need no second reading.

A verdict holds for every checkout with the same files. A command keeps one, the last. Nothing notices a new header that
hides one that was read.
"""

import hashlib
import os
import pathlib
import time


def _digest(text):
    return hashlib.sha256(text).hexdigest()[:24]


class Verdicts:
    def __init__(self, folder, root):
        """Keeps a file in `folder` for each command. Commands run in `root` and name what they read there from it."""
        self._folder = pathlib.Path(folder)
        self._root = pathlib.Path(root).resolve()
        self._start = time.time() - 0.01  # a file gets the time of the kernel's last tick
        self._known = {}

    def passed(self, command):
        try:
            lines = self._file(command).read_text(encoding="utf-8").splitlines()
            read = [line.split(" ", 1) for line in lines]
            return bool(read) and all(self._contents(path) == digest for digest, path in read)
        except (OSError, ValueError):
            return False

    def note(self, command, paths):
        """The command has passed, and has read these files. Where that cannot be kept it is read again next time."""
        names = sorted({self._name(path) for path in paths})
        try:
            # What changed meanwhile may have been read before or afterwards.
            if any(pathlib.Path(self._root, name).stat().st_mtime >= self._start for name in names):
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            written = self._file(command).with_suffix(f".{os.getpid()}")  # other checkouts note theirs
            written.write_text("".join(f"{self._contents(name)} {name}\n" for name in names), encoding="utf-8")
            written.replace(self._file(command))
        except OSError:
            return

    def _name(self, path):
        """From the root where the file lies below it: a compiler may tell where this checkout is."""
        place = os.path.normpath(self._root / path)
        return os.path.relpath(place, self._root) if place.startswith(f"{self._root}/") else place

    def _file(self, command):
        program = os.stat(command[0])
        return self._folder / _digest(repr(["named", command, program.st_size, program.st_mtime_ns]).encode())

    def _contents(self, path):
        if path not in self._known:
            file = pathlib.Path(self._root, path)
            self._known[path] = _digest(file.read_bytes()) if file.exists() else ""
        return self._known[path]
