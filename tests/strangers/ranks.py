"""Small programs over public packages, of several ranks: ranks.py NAME cuda|cpu. Rank 0 prints its last result."""

import json
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist

from programs import DEVICE, llama

RANK = int(os.environ["RANK"])


def begin():
    if DEVICE == "cuda":
        torch.cuda.set_device(RANK)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    numbers = torch.Generator().manual_seed(RANK)
    for _ in range(3):
        text = torch.randint(0, 128, (2, 32), generator=numbers).to(DEVICE)
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def llama_ddp():
    begin()
    return trained(torch.nn.parallel.DistributedDataParallel(llama(num_hidden_layers=3).to(DEVICE)))


def llama_fsdp2():
    from torch.distributed.fsdp import fully_shard

    begin()
    model = llama(num_hidden_layers=3).to(DEVICE)
    for layer in model.model.layers:
        fully_shard(layer)
    return trained(fully_shard(model))


def accelerate_fsdp2():
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                            transformer_cls_names_to_wrap=["LlamaDecoderLayer"])
    accelerator = Accelerator(fsdp_plugin=plugin, gradient_accumulation_steps=2, cpu=DEVICE == "cpu")
    model = llama(num_hidden_layers=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.DataLoader(list(torch.randint(0, 128, (16, 16))), batch_size=2)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for text in data:
        with accelerator.accumulate(model):
            loss = model(input_ids=text, labels=text).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return loss.item()


def lightning_ddp():
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

        def training_step(self, batch, _):
            loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    data = torch.utils.data.TensorDataset(torch.randn(16, 16), torch.randint(0, 4, (16,)))
    trainer = lightning.Trainer(max_epochs=1, accelerator="gpu" if DEVICE == "cuda" else "cpu", devices=2,
                                strategy="ddp", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
    return float(trainer.callback_metrics["loss"])


def make_assets(folder):
    """A tokenizer and a text, where torchtitan's small configuration looks for them."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = [f"w{number}" for number in range(500)]
    names = ["<|begin_of_text|>", "<|end_of_text|>", "[UNK]", *numbers]
    tokenizer = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for name in ("tokenizer", "c4_test"):
        (folder / "tests/assets" / name).mkdir(parents=True)
    tokenizer.save(str(folder / "tests/assets/tokenizer/tokenizer.json"))
    (folder / "tests/assets/tokenizer/tokenizer_config.json").write_text(
        json.dumps({"bos_token": names[0], "eos_token": names[1]}), encoding="utf-8")
    lines = [json.dumps({"text": " ".join(numbers[row * place % 500] for place in range(400))}) for row in range(200)]
    (folder / "tests/assets/c4_test/data.json").write_text("\n".join(lines), encoding="utf-8")


def titan():
    """torchtitan's own trainer, without Inductor: its attention has kernels of Triton else."""
    from torch.nn.attention import flex_attention
    from torchtitan.models.common import attention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    folder = pathlib.Path(tempfile.mkdtemp())
    make_assets(folder)
    os.chdir(folder)
    attention.FlexAttention._compiled_flex_attn = torch.compile(flex_attention.flex_attention, backend="aot_eager")
    attention._compiled_create_block_mask = attention.create_block_mask
    config = llama3_debugmodel()
    training = config.training
    training.steps, training.seq_len, training.local_batch_size, training.disable_cuda_graphs = 2, 128, 1, True
    trainer = config.build()
    trainer.train()
    trainer.close()
    return trainer.step


def torchrec_pipeline(name="TrainPipelineSparseDist"):
    from recommendation import trained as trained_by

    begin()
    return trained_by(name, torch.device(DEVICE, RANK if DEVICE == "cuda" else None))


def torchrec_fused_pipeline():
    """The CPU, where this pipeline asks for streams, learns the same without them."""
    return torchrec_pipeline("TrainPipelineFusedSparseDist" if DEVICE == "cuda" else "TrainPipelineSparseDist")


if __name__ == "__main__":
    torch.manual_seed(0)
    said = globals()[sys.argv[1]]()
    if RANK == 0:
        print(sys.argv[1], said, flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
