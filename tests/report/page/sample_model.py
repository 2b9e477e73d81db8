"""A model of a report as three ranks of a training would leave it."""

import random

from pool_recorder import PoolRecorder

MIB = 1 << 20
STEPS = 4
STEP = 900_000_000  # nanoseconds
LAYERS = 10
END = (STEPS + 1) * STEP
TEXTS = [
    "compute stream", "communication stream",
    "attention.py:88 Attention.forward\nblock.py:41 Block.forward\ntrain.py:120 step",
    "mlp.py:27 Mlp.forward\nblock.py:44 Block.forward\ntrain.py:120 step",
    "norm.py:15 Norm.forward\nblock.py:39 Block.forward\ntrain.py:120 step",
    "reducer.py:210 Bucket.reserve\ntrain.py:131 backward",
    "weights.py:9 load\ntrain.py:60 main",
]
FINDINGS = [{"text": "rank 2 ran out of memory in activations at 1.8 s", "rank": 2, "pool": 1, "time": 1_800_000_000},
             {"text": "rank 1 holds 3 times more of weights than the median", "rank": 1, "pool": 0, "time": 9e8}]
EVENTS = ("kind", "pool", "from", "to", "text", "waited_for", "failed")


class _Events:

    def __init__(self):
        self.columns = {name: [] for name in EVENTS}

    def note(self, kind, pool, begin, end, text, waited_for=-1, failed=0):
        for name, value in zip(EVENTS, (kind, pool, begin, end, text, waited_for, failed)):
            self.columns[name].append(value)


def _weights(numbers):
    pool = PoolRecorder("weights", "vmm fixed", 384 * MIB, 0x7F1000000000)
    for layer in range(LAYERS * 3):
        pool.now = 40_000_000 + layer * 9_000_000
        pool.allocate(numbers.choice([24, 32, 36]) * MIB - 4096, 0, 6)
    return pool


def _activations(numbers, slow, events):
    pool = PoolRecorder("activations", "vmm expandable", 256 * MIB, 0x7F2000000000)
    for step in range(STEPS):
        held, begin = [], STEP // 2 + step * STEP
        events.note("scope", 1, begin, begin + STEP * 4 // 5, f"step {step}")
        for layer in range(LAYERS):
            pool.now = begin + int(layer * STEP * 0.035 * slow)
            for stack, most in ((2, 30), (3, 44), (4, 9)):
                held.append(pool.allocate(numbers.randrange(1, most * 1024) * 1024, 0, stack))
            if layer % 3 == 2:
                pool.free(held.pop(numbers.randrange(len(held))))
        for number, block in enumerate(reversed(held)):
            pool.now = begin + int(STEP * (0.4 + 0.4 * number / len(held)) * slow)
            pool.free(block)
    return pool


def _gradients(rank, events):
    pool = PoolRecorder("gradients", "symmetric", 128 * MIB, 0x7F3000000000)
    for step in range(STEPS):
        held = []
        for bucket in range(5):
            pool.now = STEP // 2 + step * STEP + int(STEP * (0.42 + 0.07 * bucket))
            late = (rank * 7 + bucket * 3) % 5 * 4_000_000
            events.note("agreement", 2, pool.now, pool.now + 6_000_000 + late, f"allocate bucket {bucket}",
                        (rank + 1) % 3 if late else -1)
            differs = rank == 1 and step == 2 and bucket == 1
            held.append(pool.allocate((96 if differs else 25) * MIB // (1 + bucket % 2), 1, 5))
        for block in held:
            pool.now += 12_000_000
            pool.free(block)
    return pool


def _registrations(segments):
    count = len(segments["bytes"])
    return {"segment": list(range(count)), "communicator": ["0x55d0c0ffee00"] * count, "kind": ["window"] * count,
            "from": [begin + 2_000_000 for begin in segments["from"]], "to": [-1] * count, "cost": [1_900_000] * count}


def _growths(pool, number, events):
    for begin, size in zip(pool["segments"]["from"], pool["segments"]["bytes"]):
        events.note("growth", number, begin, begin + 5_000_000, f"segment of {size // MIB} MiB")


def _peak(pools):
    """By pool and stack, at the time that most is allocated at."""
    times = sorted({time for pool in pools for time in pool["bytes"]["time"]})
    alive = {}
    for time in times[::7]:
        alive[time] = [(number, index) for number, pool in enumerate(pools)
                       for index, (begin, end) in enumerate(zip(pool["blocks"]["from"], pool["blocks"]["to"]))
                       if begin <= time and not 0 <= end <= time]
    size = lambda blocks: sum(pools[number]["blocks"]["bytes"][index] for number, index in blocks)
    time = max(alive, key=lambda each: size(alive[each]))
    holders = {}
    for number, index in alive[time]:
        holders.setdefault((number, pools[number]["blocks"]["stack"][index]), []).append((number, index))
    rows = [{"pool": number, "bytes": size(blocks), "blocks": len(blocks), "stack": stack, "what": ""}
            for (number, stack), blocks in holders.items()]
    return {"time": time, "bytes": size(alive[time]), "holders": sorted(rows, key=lambda row: -row["bytes"])}


def _rank(rank):
    numbers, events = random.Random(17), _Events()
    slow = 1 + 0.06 * rank
    weights = _weights(numbers).model()
    activations = _activations(numbers, slow, events).model(
        small={"bytes": [512, 1024, 2048], "time": [0, END // 2], "served": [[900, 120, 0], [4100, 300, 8]],
               "held": [[40, 12, 0], [64, 12, 2]]})
    gradients = _gradients(rank, events).model()
    gradients["registrations"] = _registrations(gradients["segments"])
    weights["asleep"] = {"from": [END - STEP // 3], "to": [-1]}
    pools = [weights, activations, gradients]
    for number, pool in enumerate(pools):
        _growths(pool, number, events)
    events.note("capture", 1, STEP // 3, STEP // 2, "graph 1")
    events.note("sleep", 0, END - STEP // 3, -1, "weights asleep")
    if rank == 2:
        events.note("search", 1, STEP * 2, STEP * 2 + 20_000_000, "memory for 96 MiB", failed=1)
    return {"rank": rank, "host": f"node{rank // 2}", "pid": 4711 + rank, "program": "train.py", "notes": [],
            "begin": 0, "pools": pools, "events": events.columns, "peak": _peak(pools),
            "budgets": {"name": ["step", "all"], "device": [0, 0], "bytes": [64 * MIB] * 2, "peak": [301 * MIB] * 2,
                        "limit": [512 * MIB, None]}}


def sample_model():
    ranks = [_rank(rank) for rank in range(3)]
    ranks[2]["begin"] = 200_000_000
    ranks[2]["notes"] = ["the oldest 0.2 s are gone: the recording reached its limit of 256 MiB"]
    time = STEP // 2 + 2 * STEP + int(STEP * 0.49)
    calls = ["allocate 26,214,400 bytes", "allocate 50,331,648 bytes", "allocate 26,214,400 bytes"]
    return {"version": 1, "title": "train.py on 3 ranks", "notes": ["4 ranks; rank 3 left no recording"], "end": END,
            "texts": TEXTS, "ranks": ranks, "difference": {"pool": "gradients", "call": 17, "ranks": [
                {"rank": rank, "time": time + rank * 3_000_000, "text": calls[rank]} for rank in range(2)]}}
