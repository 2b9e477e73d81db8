"""Puts what `run registrars` needs of NIXL's package beside a bundle, for a machine that downloads nothing: its UCX
without the ways over a network, and no other backend. `run` unpacks it.

usage: nixl_bundle.py DIR [--python 3.12]
  DIR       of hardware_bundle.sh
  --python  of that machine
"""

import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "nixl-cu13==1.5.1"
# What is opened by name at run time; other libraries follow from these.
ROOTS = ("nixl_cu13/_bindings.*", ".nixl_cu13.mesonpy.libs/plugins/libplugin_UCX.so",
         "nixl_cu13.libs/ucx/libuc[tm]_cuda.so.*", "nixl_cu13.libs/ucx/libuct_cma.so.*")


def download(python, folder):
    """The package, unpacked."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                    f"--python-version={python}", *platforms, "--dest", folder, PACKAGE], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "nixl")
    return folder / "nixl"


def needed(package):
    """The libraries that the roots open, and what those need of the package."""
    by_name = {path.name: path for path in package.rglob("*.so*")}
    left, found = [path for root in ROOTS for path in package.glob(root)], set()
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        dynamic = subprocess.run(["readelf", "--dynamic", path], capture_output=True, text=True, check=True).stdout
        left += [by_name[name] for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) if name in by_name]
    return found | set(package.glob("nixl_cu13/*.py"))


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__[__doc__.index("usage:"):])
    python = sys.argv[sys.argv.index("--python") + 1] if "--python" in sys.argv else "3.12"
    archive = pathlib.Path(sys.argv[1]) / "nixl.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        package = download(python, pathlib.Path(folder))
        with tarfile.open(archive, "w:gz") as tar:
            for path in sorted(needed(package)):
                tar.add(path, path.relative_to(package))
    print(f"{archive}: {archive.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
