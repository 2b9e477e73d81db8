"""Who may include whom: a file uses its own layer and layers of smaller rank, and siblings never include each other."""

import pathlib
import re

import tree

# Folder -> (rank, whether it may include CUDA's and NCCL's headers). Tests may open everything.
LAYERS = {
    "include/commpool": (0, False),
    "src/library/base": (1, False),
    "src/library/driver": (2, True),
    "src/library/engine": (2, False),
    "src/library/nvtx": (2, True),
    "src/library/recording": (2, False),
    "src/library/backing": (3, True),
    "src/library/registration": (3, True),
    "src/library/sharing": (3, True),
    "src/library/stream": (3, True),
    "src/library/pool": (4, True),
    "src/library/c_api": (5, False),
    "src/emulator": (5, True),
    "src/interpose": (5, True),
    "src/report": (5, False),
    "src/torch": (5, True),
    "src/python": (5, False),
    "tools": (6, True),
    "examples": (6, True),
    "tests": (7, True),
}
# The houses beside the library, and what each may use of it. PyTorch's router and the package have the C ABI alone; a
# rule that the library's scopes and the router's keep to is in a header that needs nothing else.
HOUSES = {
    "src/emulator": ("base/", "driver/", "recording/"),
    "src/interpose": ("base/", "driver/", "recording/"),
    "src/report": ("base/", "driver/", "recording/"),
    "src/torch": ("pool/scopes/plan.h",),
    "src/python": (),
}
# The one file of a layer without these headers that includes them: an adapter, for programs that have them.
GPU_ADAPTERS = {"include/commpool/mr.h"}
# Inside src/library/pool: folders, and the files beside them by their stems, from the bottom up. One floor uses itself
# and those before it; two names on one floor never use each other.
POOL_FLOORS = [
    ("options",),
    ("settings", "shared"),
    ("caches", "scopes"),
    ("basis",),
    ("blocks",),
    ("segments",),
    ("pool",),
    ("growing", "symmetric"),
    ("communicator_sleep", "memory_search", "nvls_eligibility", "pool_factory", "scope_table"),
    ("runtime",),
    ("group_calls",),
]
_LIBRARY = "src/library/"
POOL = _LIBRARY + "pool/"
POOL_README = POOL + "README.md"
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
_POOL_ROW = re.compile(r"^\| (?:\d+ \| )?(`[^|]+) \| (.+)\n", re.MULTILINE)
_POOL_NAME = re.compile(r"`(\w+)(?:/|\.h)`")
_GPU_HEADER = re.compile(
    r"^(cuda\w*\.h(pp)?|cuda/.*|nccl\w*\.h|nccl_device/.*|nvtx3/.*|crt/.*|(driver|vector)_types\.h|nvml\.h)$")


def layer_of(path):
    """The layer that a path from the root lies in; None outside of all."""
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def pool_floor(path):
    """The place of a file of src/library/pool in POOL_FLOORS, with its name there; None for other files."""
    if not path.startswith(POOL):
        return None
    parts = pathlib.PurePosixPath(path[len(POOL):]).parts
    name = parts[0] if len(parts) > 1 else pathlib.PurePosixPath(parts[0]).stem
    return next((floor for floor, names in enumerate(POOL_FLOORS) if name in names), -1), name


def pool_table(readme):
    """The page with the rows of its table numbered by POOL_FLOORS, lowest first; ValueError where they cannot be."""
    floor_of = {name: floor for floor, names in enumerate(POOL_FLOORS, 1) for name in names}
    rows = []
    for row in _POOL_ROW.finditer(readme):
        floors = {floor_of.pop(name, None) for name in _POOL_NAME.findall(row[1])}
        if len(floors) != 1 or None in floors:
            raise ValueError(f"{row[1]} is not the name of one floor's folders and files, or stands there twice")
        rows.append((floors.pop(), row[1], row[2]))
    if floor_of:
        raise ValueError(f"no row is of {', '.join(floor_of)}")
    ordered = iter(sorted(rows, key=lambda row: row[0]))
    return _POOL_ROW.sub(lambda _: "| {} | {} | {}\n".format(*next(ordered)), readme)


def _table_problems(root):
    if not (root / POOL_README).exists():
        return []
    readme = tree.read(root, POOL_README)
    try:
        right = pool_table(readme) == readme
        return [] if right else [f"{POOL_README}: not in the order of POOL_FLOORS: python3 tests/house/layers.py"]
    except ValueError as error:
        return [f"{POOL_README}: {error}"]


def _floor_problem(path, include):
    own, target = pool_floor(str(path)), pool_floor(include)
    if own is None or target is None or own[1] == target[1]:
        return None
    if -1 in (own[0], target[0]):
        return f"includes {include}: one of the two is on no floor of {POOL} (tests/house/layers.py)"
    if target[0] < own[0]:
        return None
    return f"includes {include}: in {POOL} {target[1]} is {'beside' if target[0] == own[0] else 'above'} {own[1]}"


def _house_problem(layer, include):
    used = include.removeprefix(_LIBRARY)
    if used == include or layer not in HOUSES or used.startswith(HOUSES[layer]):
        return None
    return f"includes {include}: {layer} may use {' '.join(HOUSES[layer]) or 'nothing'} of {_LIBRARY}"


def _target_path(include):
    return "include/" + include if include.startswith("commpool/") else include


def _include_problem(root, path, layer, include, quoted):
    rank, may_use_gpu_headers = LAYERS[layer]
    if _GPU_HEADER.match(include):
        if may_use_gpu_headers or str(path) in GPU_ADAPTERS:
            return None
        return f"includes {include}, and {layer} may use no CUDA or NCCL header"
    target = layer_of(_target_path(include))
    if target is None:
        beside = quoted and (root / path.parent / include).exists()
        return f'includes "{include}" without its path from the root' if beside else None
    if target == layer:
        return _floor_problem(path, include)
    if LAYERS[target][0] < rank:
        return _house_problem(layer, include)
    relation = "its sibling" if LAYERS[target][0] == rank else "above it"
    return f"includes {include}: {target} (rank {LAYERS[target][0]}) is {relation} (rank {rank})"


def problems(root):
    """One line for each include that breaks the layers, for each source in no layer, and for a wrong table of them."""
    found = _table_problems(root)
    for path in tree.files(root):
        if path.suffix not in tree.CODE:
            continue
        layer = layer_of(str(path))
        if layer is None:
            found.append(f"{path}: lies in no layer of tests/house/layers.py")
            continue
        for kind, include in _INCLUDE.findall(tree.read(root, path) or ""):
            problem = _include_problem(root, path, layer, include, kind == '"')
            if problem:
                found.append(f"{path}: {problem}")
    return found


if __name__ == "__main__":
    page = tree.workspace() / POOL_README
    page.write_text(pool_table(page.read_text(encoding="utf-8")), encoding="utf-8")
