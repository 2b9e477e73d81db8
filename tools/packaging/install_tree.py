#!/usr/bin/env python3
"""Makes an install tree from Bazel's outputs; tools/install calls it.

usage: install_tree.py --prefix DIR --source REPOSITORY --library FILE --cli FILE --cuda FILE --cudart FILE --nccl FILE
                       --nvml FILE --interpose FILE [--strict]
  --strict   fails where something would not load on the oldest supported system, or the library is too large
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import portability

RUNPATH = "$ORIGIN/../lib"
_HERE = pathlib.Path(__file__).parent
# Options: where it lies.
FILES = ("--source", "--library", "--cli", "--cuda", "--cudart", "--nccl", "--nvml", "--interpose")
DOCUMENTS = "share/doc/commpool"
# What somebody reads who uses commpool.
PAGES = ("README.md", "examples/README.md", "examples/reference.md", "include/commpool/README.md",
         "include/commpool/reference.md", "src/emulator/README.md",
         "src/emulator/reference.md", "src/python/README.md", "src/python/commpool/torch/README.md",
         "src/python/commpool/torch/reference.md", "src/python/reference.md", "tools/README.md",
         "tools/cli/reference.md", "tools/reference.md")
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_MODES = {"program": 0o755, "data": 0o644}


def read_version(header):
    """"0.1.0", of the macros in commpool.h."""
    parts = [re.search(rf"#define COMMPOOL_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        raise ValueError("commpool.h does not say its version")
    return ".".join(part.group(1) for part in parts)


def set_runpath(file, wanted):
    """Bazel's folders mean nothing in an install tree. The new text takes the place of the old, longer one."""
    present = portability.runpath(file).encode()
    if present == wanted.encode():
        return
    data = file.read_bytes()
    if data.count(present + b"\0") != 1 or len(present) < len(wanted):
        raise ValueError(f"{file} has no place for the run path {wanted}: it has {present.decode() or 'none'}")
    file.write_bytes(data.replace(present + b"\0", wanted.encode().ljust(len(present) + 1, b"\0")))


class Tree:
    def __init__(self, prefix):
        self.prefix = prefix

    def file_of(self, name, version):
        """The file of the library that programs load by a name."""
        return f"{name[:name.index('.so')]}.so.{version}"

    def put(self, source, place, kind="data"):
        target = self.prefix / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # never writes through a link, nor into a running program
        shutil.copyfile(source, target)
        target.chmod(_MODES[kind])
        return target

    def put_binary(self, source, place):
        target = self.put(source, place, "program")
        subprocess.run([portability.tool("strip", target), "--strip-unneeded", str(target)], check=True)
        return target

    def link(self, place, points_to):
        target = self.prefix / place
        target.unlink(missing_ok=True)
        target.symlink_to(points_to)

    def fill_in(self, template, place, values):
        text = template.read_text(encoding="utf-8")
        self.write(re.sub(r"@(\w+)@", lambda match: values[match.group(1)], text), place)

    def write(self, text, place):
        target = self.prefix / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def install_library(tree, source, version):
    """Returns the file's name, and the name by which programs load it."""
    name = portability.soname(source)
    library = tree.file_of(name, version)
    tree.put_binary(source, f"lib/{library}")
    for link in {name, "libcommpool.so"} - {library}:
        tree.link(f"lib/{link}", library)
    return library, name


def install_emulator(tree, *libraries):
    for source in libraries:
        name = portability.soname(source)
        tree.put_binary(source, f"lib/commpool/emulator/{name}")
        tree.link(f"lib/commpool/emulator/{name[:name.index('.so') + 3]}", name)


def install_preloaded(tree, library):
    """What `commpool audit` and `commpool run` put into programs."""
    tree.put_binary(library, f"lib/commpool/{library.name}")


def install_sources(tree, repository):
    for header in sorted((repository / "include/commpool").glob("*.h")):
        tree.put(header, f"include/commpool/{header.name}")
    examples = repository / "examples"
    for file in sorted(examples.rglob("*")):
        if file.is_file() and file.name != "BUILD" and file.suffix != ".md":  # install_pages has those
            tree.put(file, f"share/commpool/examples/{file.relative_to(examples)}")
    tree.put(repository / "LICENSE", f"{DOCUMENTS}/LICENSE")
    tree.put(repository / "tools/packaging/d3_license.txt", f"{DOCUMENTS}/d3_license.txt")  # of `commpool report`


def install_pages(tree, repository):
    """For users, in the repository's folders: so the pages find each other. Links to what is not there become words."""
    for page in PAGES:
        def kept(link, folder=pathlib.PurePath(page).parent):
            place = link.group(2).partition("#")[0]
            target = os.path.normpath(folder / place) if place else page
            return link.group(0) if "://" in place or target in PAGES or target == "LICENSE" else link.group(1)

        text = (repository / page).read_text(encoding="utf-8")
        tree.write(_LINK.sub(kept, text), f"{DOCUMENTS}/{page}")


def install(options, kind=Tree):
    """Lays the tree out in `options.prefix`; returns what is wrong with it, a line each."""
    tree = kind(options.prefix)
    header = (options.source / "include/commpool/commpool.h").read_text(encoding="utf-8")
    version = read_version(header)
    library, name = install_library(tree, options.library, version)
    set_runpath(tree.put_binary(options.cli, "bin/commpool"), RUNPATH)
    install_emulator(tree, options.cuda, options.cudart, options.nccl, options.nvml)
    install_preloaded(tree, options.interpose)
    install_sources(tree, options.source)
    install_pages(tree, options.source)
    values = {"VERSION": version, "MINOR": version.rsplit(".", maxsplit=1)[0], "LIBRARY": library, "SONAME": name}
    tree.fill_in(_HERE / "commpool.pc.in", "lib/pkgconfig/commpool.pc", values)
    for file in ("commpoolConfig.cmake", "commpoolConfigVersion.cmake"):
        tree.fill_in(_HERE / f"{file}.in", f"lib/cmake/commpool/{file}", values)
    return problems(options.prefix, library)


def problems(prefix, library):
    binaries = [prefix / "bin/commpool", prefix / "lib" / library, *(prefix / "lib/commpool").glob("*.so"),
                *(prefix / "lib/commpool/emulator").glob("*.so.*")]
    found = [line for file in binaries for line in portability.too_new(file) + portability.misplaced(file)]
    size = (prefix / "lib" / library).stat().st_size
    if size > portability.LIBRARY_BYTES:
        found.append(f"{library} has {size} bytes, over {portability.LIBRARY_BYTES}")
    return found


def main():
    parser = argparse.ArgumentParser()
    for option in ("--prefix", *FILES):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    found = install(options)
    if options.strict and found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
