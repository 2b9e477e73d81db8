"""Steps of training: native, gradients scoped into a fixed pool, and an expandable pool as the whole allocator.

Native and scoped steps take turns in one process. The whole allocator and torch's expandable segments are processes of
their own, A B B A. usage: hardware_steps.py [MODEL...] [--record FILE]      (default: all models)
"""

import json
import os
import subprocess
import sys
import time

import torch

from hardware_measure import in_turn, ratio, record, report
from hardware_models import MODELS, Training

ROUNDS, STEPS, WARM = 20, 8, 16
PROCESSES = ["native", "whole", "expandable", "expandable", "whole", "native"]


def seconds_a_step(training, scope=None):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        training.step(scope)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS


def scoped(name):
    """Native beside scoped gradients."""
    import commpool.torch as commpool

    training, pool = Training(name), commpool.Pool("gradients")
    scope = commpool.use_pool(pool)
    for way in [None, scope] * (WARM // 2):
        training.step(way)
    contenders = {"native": lambda: seconds_a_step(training), "scoped": lambda: seconds_a_step(training, scope)}
    times = in_turn(contenders, ROUNDS)
    found = report(f"{name}: gradients scoped / native", ratio(times, "scoped", "native"), 1.002, widest=0.005)
    print(f"  {min(times['native']) * 1e3:.1f} ms a step, {pool.stats().reserved_bytes.current >> 20} MiB in the pool")
    return found


def one_process(name, way):
    """Seconds of rounds of steps, and what was held, as a line for `in_processes`."""
    pool = None
    if way == "whole":
        import commpool.torch as commpool

        pool = commpool.Pool("whole", mode="expandable", device=0)
        commpool.install(default=pool)
    training = Training(name)
    for _ in range(WARM):
        training.step()
    times = [seconds_a_step(training) for _ in range(ROUNDS // 2)]
    used = torch.cuda.mem_get_info()
    print(json.dumps({"times": times, "held": torch.cuda.max_memory_reserved(), "used": used[1] - used[0],
                      "routed": pool.stats().allocated_blocks.total if pool else 0}))


def in_processes(name):
    times, held = {}, {}
    for way in PROCESSES:
        environment = dict(os.environ)
        environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        if way == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        run = subprocess.run([sys.executable, __file__, "--one", name, way], env=environment, capture_output=True,
                             text=True, check=False)
        if run.returncode:
            raise RuntimeError(run.stderr)
        answer = json.loads(run.stdout.splitlines()[-1])
        times.setdefault(way, []).extend(answer["times"])
        held.setdefault(way, []).append(answer["held"])
    found = report(f"{name}: whole allocator / native", ratio(times, "whole", "native"), 1.005, widest=0.005)
    most = {way: max(of) >> 20 for way, of in held.items()}
    print(f"  held: {', '.join(f'{way} {of} MiB' for way, of in most.items())}")
    return {**found, "held_mib": most, "step_ms": {way: 1e3 * min(of) for way, of in times.items()}}


def main():
    if "--one" in sys.argv:
        one_process(*sys.argv[sys.argv.index("--one") + 1:][:2])
        return
    results = {}
    for name in [model for model in MODELS if model in sys.argv] or MODELS:
        results[name] = {"scoped": scoped(name)}
        torch.cuda.empty_cache()
        results[name]["whole"] = in_processes(name)
    record("tests/adapters/torch/hardware_steps.py", results)


if __name__ == "__main__":
    main()
