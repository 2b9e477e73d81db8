"""Which headers a source reads, directly and through our own headers, as the text of each says."""

import functools
import pathlib
import re

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.MULTILINE)
_FOLDERS = ["", "include"]  # where our own headers are looked for


class Includes:
    def __init__(self, root):
        self._root = pathlib.Path(root)
        self.of = functools.cache(self._of)

    def _of(self, path):
        return _INCLUDE.findall(pathlib.Path(self._root, path).read_text(encoding="utf-8"))

    def reached(self, path):
        """The headers with the brackets or quotes that they are included with, as in '<string>' and '"src/a.h"'."""
        seen, left = set(), [path]
        while left:
            for name in self.of(left.pop()):
                if name not in seen:
                    seen.add(name)
                    left += self._ours(name)
        return seen

    def _ours(self, name):
        paths = [str(pathlib.PurePath(folder, name[1:-1])) for folder in _FOLDERS if name[0] == '"']
        return [path for path in paths if pathlib.Path(self._root, path).exists()][:1]
