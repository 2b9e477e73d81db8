#!/usr/bin/env python3
"""Makes the wheel from Bazel's outputs: the Python package around an install tree; tools/wheel calls it.

usage: wheel.py --output DIR --source REPOSITORY --library FILE --cli FILE --cuda FILE --cudart FILE --nccl FILE
                --nvml FILE --interpose FILE [--module FILE]... [--router VERSION=FILE]... [--strict]
  --module   a module that was built: its place in the package is that of its path below src/python/commpool
  --router   a binary of commpool.torch for a version of torch
  --strict   fails where something would not load on the oldest supported system, or the library is too large

The same files give the same bytes. The tag says the oldest manylinux that the binaries load on. None of them asks for a
certain Python: the module in C is of the limited API, and the package does without it where it does not load.
"""

import argparse
import base64
import hashlib
import pathlib
import shutil
import sys
import tempfile
import zipfile

import install_tree
import portability

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date that a zip file can hold
_PACKAGE = pathlib.Path("src/python/commpool")
_PACKAGED = ("*.py", "*.pyi", "py.typed", "_rmm_resource.cc")
# The files from which the router is compiled.
_ROUTER_SOURCES = ("src/torch/*.cc", "src/torch/*.h", "src/library/pool/scopes/plan.h")
# What the systems behind the tags provide, from PEP 600 and its images.
_SYSTEMS = {
    "manylinux_2_17": {"GLIBC": "2.17", "GLIBCXX": "3.4.19", "CXXABI": "1.3.7", "GCC": "4.8.0"},
    "manylinux_2_24": {"GLIBC": "2.24", "GLIBCXX": "3.4.22", "CXXABI": "1.3.10", "GCC": "6.0.0"},
    "manylinux_2_27": {"GLIBC": "2.27", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "7.0.0"},
    "manylinux_2_28": portability.OLDEST,
}


class WheelTree(install_tree.Tree):
    """A wheel holds no links: a library lies under the name that programs load it by, and the linker gets scripts."""

    def file_of(self, name, version):
        return name

    def link(self, place, points_to):
        target = self.prefix / place
        target.write_text(f"/* For the linker. */\nINPUT({points_to})\n", encoding="ascii")
        target.chmod(0o644)


def binaries(folder):
    """The programs and libraries below a folder."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"]


def tag(folder):
    """The wheel's tag: the oldest system that all binaries load on.

    Raises:
      ValueError: a binary asks for more than the newest system of the list has.
    """
    for name, limits in _SYSTEMS.items():
        found = [line for file in binaries(folder) for line in portability.too_new(file, limits)]
        if not found:
            return f"py3-none-{name}_{portability.machine(binaries(folder)[0])}"
    raise ValueError("\n".join(found))


def put_module(tree, file):
    """Copies a module of Python, or one in C, which uses the wheel's own library."""
    place = str(file).rpartition(f"{_PACKAGE}/")[2]
    if file.suffix == ".py":
        tree.put(file, place)
        return
    module = tree.put_binary(file, place)
    if portability.runpath(module):
        install_tree.set_runpath(module, "$ORIGIN/" + "../" * place.count("/") + "lib")


def lay_out(options, folder):
    """Puts the package below the folder; returns what is wrong with it, a line each."""
    package = folder / "commpool"
    found = install_tree.install(argparse.Namespace(**{**vars(options), "prefix": package}), WheelTree)
    tree = WheelTree(package)
    for pattern in _PACKAGED:
        for file in sorted((options.source / _PACKAGE).rglob(pattern)):
            tree.put(file, file.relative_to(options.source / _PACKAGE))
    for module in options.module:
        put_module(tree, module)
    for router in options.router:
        version, _, file = router.partition("=")
        tree.put_binary(file, f"torch/lib/libcommpool_torch_{version}.so")
    for pattern in _ROUTER_SOURCES:  # for versions of torch without a binary here
        for file in sorted(options.source.glob(pattern)):
            tree.put(file, f"torch/router/{file.relative_to(options.source)}")
    if options.router or (package / "torch/router").exists():
        for header in sorted((options.source / "include/commpool").glob("*.h")):
            tree.put(header, f"torch/router/include/commpool/{header.name}")
    more = [*package.rglob("*.abi3.so"), *(package / "torch/lib").glob("*.so")]
    return found + [line for file in more for line in portability.too_new(file) + portability.misplaced(file)]


def write_metadata(options, folder, version):
    """The dist-info folder, except for its RECORD; returns its name."""
    name = f"commpool-{version}.dist-info"
    pages = "\n".join((options.source / "src/python" / page).read_text(encoding="utf-8")
                      for page in ("README.md", "reference.md"))
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: commpool\nVersion: {version}\n"
                    "Summary: Communicator-aware private memory pools for multi-GPU programs\n"
                    "License: Apache-2.0\nRequires-Python: >=3.9\nClassifier: Operating System :: POSIX :: Linux\n"
                    "Classifier: Programming Language :: Python :: 3\nClassifier: Typing :: Typed\n"
                    f"Description-Content-Type: text/markdown\n\n{pages}",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: commpool\nRoot-Is-Purelib: false\nTag: {tag(folder)}\n",
        "entry_points.txt": "[console_scripts]\ncommpool = commpool.command:main\n\n"
                            "[cmake.prefix]\ncommpool = commpool\n",
        "top_level.txt": "commpool\n",
    }
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / file).write_text(text, encoding="utf-8")
    shutil.copyfile(options.source / "LICENSE", folder / name / "LICENSE")
    shutil.copyfile(options.source / "tools/packaging/d3_license.txt", folder / name / "d3_license.txt")
    return name


def _record(folder, files, name):
    lines = []
    for file in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{file.relative_to(folder)},sha256={digest},{file.stat().st_size}")
    return "\n".join([*lines, f"{name}/RECORD,,"]) + "\n"


def write_zip(folder, name, wheel):
    """Packs the folder: metadata last, as PEP 427 recommends, otherwise by name."""
    files = sorted((file for file in folder.rglob("*") if file.is_file()),
                   key=lambda file: (file.parent.name == name, str(file)))
    (folder / name / "RECORD").write_text(_record(folder, files, name), encoding="utf-8")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in [*files, folder / name / "RECORD"]:
            entry = zipfile.ZipInfo(str(file.relative_to(folder)), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: then the modes count
            executable = file.stat().st_mode & 0o100
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, file.read_bytes())


def make(options):
    """Returns the wheel's path, and one line for each thing that is wrong with its contents."""
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        found = lay_out(options, folder)
        version = install_tree.read_version(
            (options.source / "include/commpool/commpool.h").read_text(encoding="utf-8"))
        name = write_metadata(options, folder, version)
        options.output.mkdir(parents=True, exist_ok=True)
        wheel = options.output / f"commpool-{version}-{tag(folder)}.whl"
        write_zip(folder, name, wheel)
    return wheel, found


def main():
    parser = argparse.ArgumentParser()
    for option in ("--output", *install_tree.FILES):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--module", action="append", type=pathlib.Path, default=[])
    parser.add_argument("--router", action="append", default=[])
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    wheel, found = make(options)
    if options.strict and found:
        wheel.unlink()
        sys.exit("\n".join(found))
    print(wheel)


if __name__ == "__main__":
    main()
