"""A copy of the checkout in which faults are planted, so that the checkout itself never changes."""

import contextlib
import fcntl
import os
import pathlib
import subprocess


def _listed(root):
    """The files that git tracks or does not ignore."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name for name in names.split("\0") if name and (root / name).is_file()}


class Scratch:
    """Each checkout has one such place, so that the next run builds only what has changed. One run at a time."""

    def __init__(self, root, folder):
        self.root, self.folder = pathlib.Path(root), pathlib.Path(folder)

    @contextlib.contextmanager
    def locked(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(f"{self.folder}.lock", "w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SystemExit(f"mutate: another run uses {self.folder}") from error
            self._copy()
            yield self

    def _copy(self):
        wanted = _listed(self.root)
        for name in wanted:
            source, target = self.root / name, self.folder / name
            content = source.read_bytes()
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            target.chmod(source.stat().st_mode)
        for folder, _, names in os.walk(self.folder):
            for path in (pathlib.Path(folder, name) for name in names):
                if str(path.relative_to(self.folder)) not in wanted:
                    path.unlink()
