"""Small programs over public packages, of one rank: programs.py NAME cuda|cpu. Each prints its last result."""

import functools
import sys
import tempfile

import torch
from torch.nn import functional

DEVICE = sys.argv[2]
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {"vocab_size": 128, "max_position_embeddings": 64, **SMALL}


def llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(intermediate_size=128, num_key_value_heads=2, **{**TEXT, **options}))


def words(count=16):
    return torch.randint(1, 128, (2, count)).to(DEVICE)


def trained(model, loss_of, half=None):
    model = model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        with torch.autocast(DEVICE, dtype=half, enabled=half is not None):
            loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def of_words(model, **options):
    text = words()
    return trained(model, lambda made: made(input_ids=text, labels=text).loss, **options)


def of_images(model, size, **options):
    images, kinds = torch.randn(2, 3, size, size).to(DEVICE), torch.tensor([0, 1]).to(DEVICE)
    return trained(model, lambda made: functional.cross_entropy(made(images), kinds), **options)


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    return of_words(MixtralForCausalLM(MixtralConfig(intermediate_size=64, num_local_experts=4, num_key_value_heads=2,
                                                     **TEXT)))


def t5():
    from transformers import AutoModelForSeq2SeqLM, T5Config

    return of_words(AutoModelForSeq2SeqLM.from_config(T5Config(
        d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16, vocab_size=128, decoder_start_token_id=0,
        dropout_rate=0)), half=torch.bfloat16)


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(intermediate_size=128, image_size=32, patch_size=8, **SMALL))
    images, kinds = torch.randn(2, 3, 32, 32).to(DEVICE), torch.tensor([0, 1]).to(DEVICE)
    return trained(model, lambda made: made(pixel_values=images, labels=kinds).loss, half=torch.bfloat16)


def lora_with_checkpoints():
    from peft import LoraConfig, get_peft_model

    model = llama()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    return of_words(get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj"])))


def generate():
    text = llama().to(DEVICE).eval().generate(words(8), max_new_tokens=8, cache_implementation="static",
                                              do_sample=False, disable_compile=True)
    return text.sum().item()


def graph():
    model, text = llama().to(DEVICE).eval(), words(8)
    with torch.no_grad():
        if DEVICE == "cpu":
            return model(text).logits.sum().item()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(text)
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            out = model(text).logits
    captured.replay()
    return out.sum().item()


def trainer():
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": text, "labels": text} for text in torch.randint(0, 128, (8, 16))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=2, report_to=[],
                                      save_strategy="no", use_cpu=DEVICE == "cpu", disable_tqdm=True)
        return Trainer(model=llama(), args=arguments, train_dataset=data).train().training_loss


def timm_resnet():
    import timm

    return of_images(timm.create_model("resnet18", num_classes=10), 64, half=torch.bfloat16)


def timm_vit():
    import timm

    return of_images(timm.create_model("vit_tiny_patch16_224", num_classes=10, img_size=32), 32)


def detection():
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=3).eval().to(DEVICE)
    return model([torch.rand(3, 64, 64).to(DEVICE)])[0]["boxes"].numel()


def graphs_of_nodes():
    from torch_geometric.nn import GATConv, GCNConv, Sequential

    model = Sequential("x, edges", [(GCNConv(8, 16), "x, edges -> x"), torch.nn.ReLU(),
                                    (GATConv(16, 4), "x, edges -> x")])
    nodes, edges = torch.randn(40, 8).to(DEVICE), torch.randint(0, 40, (2, 160)).to(DEVICE)
    kinds = (torch.arange(40) % 4).to(DEVICE)
    return trained(model, lambda made: functional.cross_entropy(made(nodes, edges), kinds))


def compiled(backend):
    model, data = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), torch.randn(4, 8).to(DEVICE)
    return trained(torch.compile(model, backend=backend), lambda made: made(data).square().mean())


compile_eager = functools.partial(compiled, "eager")
compile_aot_eager = functools.partial(compiled, "aot_eager")
compile_cudagraphs = functools.partial(compiled, "cudagraphs" if DEVICE == "cuda" else "eager")


def layers_on_the_host():
    from accelerate import dispatch_model

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    if DEVICE == "cuda":
        dispatch_model(model, {"0": 0, "1": "cpu", "2": "cpu", "3": 0}, main_device=0)
    with torch.no_grad():
        return model(torch.ones(2, 64).to(DEVICE)).sum().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    print(sys.argv[1], globals()[sys.argv[1]](), flush=True)
