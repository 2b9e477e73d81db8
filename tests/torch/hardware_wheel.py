"""The wheel as a user gets it: pip installs it beside the torch that is here, and a first program runs from it.

The virtual environment is new and sees this interpreter's torch; pip asks no index. Compilers that the program could
start are stand-ins that leave a mark, and what it would compile would be kept in a folder that has to stay empty.
Half a minute.
usage: hardware_wheel.py [WHEEL] [--tiny]      (default: the one in the folder wheel beside this file's)
  --tiny  tries it on the emulator, with a model of what that can run
"""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
TINY = "--tiny" in sys.argv
SECONDS = 240 if TINY else 60
COMPILERS = ("g++", "c++", "gcc", "cc", "clang", "clang++", "nvcc")
# What would lead the program to another build than the wheel's, or to the folders of this one.
_ELSEWHERE = ("PYTHONPATH", "PYTHONHOME", "COMMPOOL_LIBRARY", "COMMPOOL_TORCH_ROUTER", "CXX")


def program():
    """What a first user writes, and what they would look at then; runs in the environment that has the wheel."""
    import torch

    import commpool.torch
    from hardware_models import Gpt2, Scales

    model = Scales().cuda() if TINY else Gpt2(layers=4, width=512, heads=8).cuda()
    batch = model.batch(0)
    model.loss(batch).backward()
    expected = [parameter.grad.cpu() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    before = torch.cuda.memory_allocated()

    pool = commpool.torch.Pool("training")
    with commpool.torch.use_pool(pool):
        model.loss(batch).backward()

    torch.cuda.synchronize()
    gradients = [parameter.grad for parameter in model.parameters()]
    held = pool.stats().allocated_bytes.current
    blocks = {block["address"]: segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()
              for block in segment["blocks"] if block["state"] == "active_allocated"}
    number = sum(gradient.numel() * gradient.element_size() for gradient in gradients)
    ids = {blocks.get(gradient.data_ptr()) for gradient in gradients}
    found = {
        "it is the wheel's": pathlib.Path(commpool.__file__).is_relative_to(sys.prefix),
        "all gradients lie in the pool": all(
            getattr(commpool.block_of(gradient.data_ptr()), "pool", None) == pool.handle for gradient in gradients),
        "the pool holds them": held >= number,
        "torch's statistics count them": torch.cuda.memory_allocated() - before == held,
        "torch's snapshot has them in one pool": len(ids) == 1 and None not in ids and ids != {(0, 0)},
        "they are those of torch's own allocator": all(
            torch.allclose(gradient.cpu(), other, rtol=1e-2, atol=1e-5)
            for gradient, other in zip(gradients, expected)),
        "nothing fell back": not commpool.torch.fallbacks(),
    }
    for what, holds in found.items():
        print(f"{'passed' if holds else 'FAILED'}: {what}")
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}: {len(gradients)} gradients, "
          f"{held >> 10} KiB in the pool")
    return 0 if all(found.values()) else 1


def environment_with_torch(folder):
    """A new virtual environment, which sees the packages of this interpreter; its own come first."""
    venv.create(folder, with_pip=False, system_site_packages=True)
    seen = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    seen |= {path for path in sys.path if "-packages" in path}
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "seen.pth").write_text("".join(f"{path}\n" for path in sorted(seen)), encoding="utf-8")
    return folder / "bin/python"


def stand_ins(folder):
    """Compilers that write down that they were called, and fail."""
    folder.mkdir()
    for name in COMPILERS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>{folder}/called\nexit 1\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def installed(wheel, work, with_a_binary=True):
    """Installs and runs; what there is to say against it.

    Args:
      wheel: the file.
      work: an empty folder.
      with_a_binary: whether the wheel has one for this torch; else a compiler has to make it from what the wheel holds.
    """
    python, compilers, cache = environment_with_torch(work / "new"), work / "compilers", work / "cache"
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    environment |= {"COMMPOOL_CACHE": str(cache), "PYTHONPATH": str(HERE)}
    if with_a_binary:
        environment["PATH"] = f"{stand_ins(compilers)}:{environment['PATH']}"
    pip = [python, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--disable-pip-version-check",
           "--root-user-action=ignore", wheel]
    without_paths = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    wrong = []
    words = [python, "-B", HERE / "hardware_wheel.py", "--program", *({"--tiny"} & {*sys.argv})]
    for what, command, around in [("pip", pip, without_paths),
                                  ("commpool info", [python.parent / "commpool", "info"], without_paths),
                                  ("the program", words, environment)]:
        run = subprocess.run(command, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=SECONDS, cwd=work, check=False)
        if run.returncode:
            wrong.append(f"{what} ended with {run.returncode}: {run.stdout}")
        elif what == "the program":
            print(run.stdout, end="")
    if (compilers / "called").exists():
        wrong.append(f"a compiler was called: {(compilers / 'called').read_text(encoding='utf-8')}")
    made = [path.name for path in cache.rglob("*.so")]
    if with_a_binary and made:
        wrong.append(f"something was compiled: {made}")
    if not with_a_binary and not [name for name in made if name.startswith("router-")]:
        wrong.append(f"no router was compiled, but {made}")
    return wrong


def main():
    if "--program" in sys.argv:
        return program()
    wheels = [pathlib.Path(word) for word in sys.argv[1:] if word.endswith(".whl")]
    wheels = wheels or sorted((HERE.parent / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        print(f"there is not one wheel, but {len(wheels)}: hardware_bundle.sh was given no torch")
        return 1
    with tempfile.TemporaryDirectory() as work:
        wrong = installed(wheels[0].resolve(), pathlib.Path(work))
    for sentence in wrong:
        print(f"FAILED: {sentence}")
    print(f"{wheels[0].name}: {'failed' if wrong else 'installed by pip, and runs; no compiler was called'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
