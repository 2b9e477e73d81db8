"""torchrec's pipelined training, of tables that its planner puts on several ranks: fbgemm_gpu's own operations."""

import ctypes
import dataclasses
import os
import pathlib
import subprocess
import tempfile

import torch
import torch.distributed as dist
from torch import nn

# What fbgemm_gpu 1.9.0 calls, which was made for an older PyTorch: 2.15 has no such function.
_LACKED = """
#include <stdexcept>
namespace c10 {
[[gnu::visibility("default")]] void report_overflow(const char* name) { throw std::runtime_error(name); }
}
"""
_TABLES = [f"table{number}" for number in range(4)]
_ROWS, _WIDTH, _SAMPLES, _STEPS = 100, 16, 8, 6


def _load_fbgemm():
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "lacked.so"
        subprocess.run([os.environ.get("CXX", "g++"), "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)],
                       input=_LACKED, text=True, check=True, env={**os.environ, "LD_PRELOAD": ""})
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    __import__("fbgemm_gpu")


@dataclasses.dataclass
class Batch:
    """What the pipelines ask of a batch."""

    numbers: torch.Tensor
    words: object  # a KeyedJaggedTensor
    labels: torch.Tensor

    def _each(self, call):
        return type(self)(call(self.numbers), call(self.words), call(self.labels))

    def to(self, device, non_blocking=False):
        return self._each(lambda part: part.to(device=device, non_blocking=non_blocking))

    def pin_memory(self):
        return self._each(lambda part: part.pin_memory())

    def record_stream(self, stream):
        self._each(lambda part: part.record_stream(stream))


class Model(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.tables = tables
        self.over = nn.Sequential(nn.Linear(8 + _WIDTH * len(_TABLES), 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, batch):
        mixed = torch.cat([batch.numbers, self.tables(batch.words).values()], 1)
        loss = nn.functional.binary_cross_entropy_with_logits(self.over(mixed).squeeze(1), batch.labels)
        return loss, loss.detach()


def _batches(pinned):
    from torchrec import KeyedJaggedTensor
    from torchrec.streamable import Pipelineable

    Pipelineable.register(Batch)
    numbers = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(_STEPS):
        lengths = torch.randint(0, 4, (len(_TABLES) * _SAMPLES,), generator=numbers)
        words = torch.randint(0, _ROWS, (int(lengths.sum()),), generator=numbers)
        batch = Batch(torch.randn(_SAMPLES, 8, generator=numbers),
                      KeyedJaggedTensor(_TABLES, words, lengths=lengths),
                      torch.randint(0, 2, (_SAMPLES,), generator=numbers).float())
        yield batch.pin_memory() if pinned else batch


def _sharded(device):
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology

    tables = EmbeddingBagCollection(device=torch.device("meta"), tables=[
        EmbeddingBagConfig(name=name, embedding_dim=_WIDTH, num_embeddings=_ROWS, feature_names=[name])
        for name in _TABLES])
    sharder = EmbeddingBagCollectionSharder(fused_params={"learning_rate": 0.1})
    constraint = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
    planner = EmbeddingShardingPlanner(topology=Topology(dist.get_world_size(), device.type),
                                       constraints=dict.fromkeys(_TABLES, constraint))
    model = Model(tables)
    plan = planner.collective_plan(model, [sharder], dist.group.WORLD)
    model = DistributedModelParallel(model, device=device, plan=plan, sharders=[sharder])
    for table in model.module.tables.state_dict().values():
        for shard in table.local_shards():
            shard.tensor.detach().copy_(torch.arange(_ROWS * _WIDTH).view(_ROWS, _WIDTH).sin())
    return model


def trained(pipeline_name, device):
    """The last loss. In between no host waits for a device, except where the pipeline does."""
    _load_fbgemm()
    from torchrec.distributed import train_pipeline

    model = _sharded(device)
    dense = [parameter for name, parameter in model.named_parameters() if "over" in name]
    optimizer = torch.optim.SGD(dense, lr=0.1)
    pipeline = getattr(train_pipeline, pipeline_name)(model, optimizer, device)
    batches = _batches(device.type == "cuda")
    for _ in range(_STEPS):
        loss = pipeline.progress(batches)
    return loss.item()
