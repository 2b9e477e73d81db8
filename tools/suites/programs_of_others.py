"""Programs as users of public libraries write them, and one process of them for tools/suites/memory_of_programs.py.

    PYTHON tools/suites/programs_of_others.py NAME ALLOCATOR     on the GPU; with `small` as the allocator on the CPU

Models come from configurations; weights and data are random, from one seed. Sizes change from step to step. Each takes
a device and sizes, of which SMALL has those for the CPU, and returns its last loss, if it has one. The last line of
stdout is JSON.
"""

import json
import random
import sys
import tempfile

import torch

SMALL = {"layers": 2, "width": 64, "words": 256, "batch": 2, "longest": 32, "new": 4, "samples": 16000, "side": 64,
         "nodes": 1000, "most": 64, "raw": 16, "rounds": 2, "steps": 2}


def _train(model, steps, loss_of, rate=1e-4):
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=rate)
    for _ in range(steps):
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def _tokens(device, words, batch, longest):
    return torch.randint(3, words, (batch, random.randint(longest // 8, longest)), device=device)


def _language_model(device, kind, layers, width, words):
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device(device):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(
            kind, vocab_size=words, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
            num_attention_heads=width // 64, num_key_value_heads=max(1, width // 256)))


def _train_on_tokens(model, steps, device, *sizes):
    def loss():
        tokens = _tokens(device, *sizes)
        with torch.autocast(device, torch.bfloat16):
            return model(input_ids=tokens, labels=tokens, use_cache=False).loss

    return _train(model, steps, loss)


def llama(device, *, layers=16, width=2048, words=128256, batch=4, longest=2048, steps=30):
    model = _language_model(device, "llama", layers, width, words)
    model.gradient_checkpointing_enable()
    return _train_on_tokens(model, steps, device, words, batch, longest)


def mixtral(device, *, layers=8, width=1024, words=32000, batch=4, longest=1024, steps=40):
    model = _language_model(device, "mixtral", layers, width, words).to(torch.bfloat16)
    return _train_on_tokens(model, steps, device, words, batch, longest)


def lora(device, *, layers=16, width=2048, words=32000, longest=4096, steps=40):
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments

    model = get_peft_model(_language_model(device, "llama", layers, width, words), LoraConfig(task_type="CAUSAL_LM"))
    rows = [{"input_ids": row, "labels": row} for row in (_tokens("cpu", words, 1, longest)[0] for _ in range(steps))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=1, bf16=True,
                                      use_cpu=device == "cpu", report_to="none")
        return Trainer(model, arguments, train_dataset=rows).train().training_loss


def _decode(model, new, device, *sizes, **how):
    model.to(device, torch.bfloat16).eval()
    for _ in range(4):
        tokens = _tokens(device, *sizes)
        model.generate(tokens, attention_mask=torch.ones_like(tokens), min_new_tokens=new, max_new_tokens=new,
                       pad_token_id=0, **how)


def generate(device, *, layers=16, width=2048, words=128256, batch=16, longest=1024, new=128):
    _decode(_language_model(device, "llama", layers, width, words), new, device, words, batch, longest, do_sample=True)


def beam_search(device, *, layers=24, width=1024, words=32128, batch=16, longest=512, new=64):
    from transformers import AutoModelForSeq2SeqLM, T5Config

    config = T5Config(vocab_size=words, d_model=width, d_ff=11 * width // 4, num_layers=layers, num_heads=width // 64,
                      feed_forward_proj="gated-gelu", decoder_start_token_id=0)
    _decode(AutoModelForSeq2SeqLM.from_config(config), new, device, words, batch, longest, num_beams=4)


def sentences(device, *, layers=12, width=768, batch=64, longest=256, steps=40):
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import BertConfig, BertModel, BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(1000))]
    config = BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64)
    with tempfile.TemporaryDirectory() as folder:
        BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(folder)
        BertModel(config).save_pretrained(folder)
        model = SentenceTransformer(folder, device=device)  # with mean pooling
    ranking = MultipleNegativesRankingLoss(model)

    def loss():
        most = random.randint(longest // 8, longest)
        texts = [" ".join(random.choices(words[5:], k=random.randint(1, most))) for _ in range(2 * batch)]
        with torch.autocast(device, torch.bfloat16):
            return ranking([util.batch_to_device(model.preprocess(texts[side::2]), device) for side in range(2)], None)

    return _train(model, steps, loss)


def wav2vec2(device, *, batch=8, samples=256_000, steps=30):
    import torchaudio

    model = torchaudio.models.wav2vec2_base(aux_num_out=32).to(device)

    def loss():
        said = model(torch.randn(batch, random.randint(samples // 4, samples), device=device))[0].log_softmax(-1)
        words = torch.randint(1, 32, (batch, 10), device=device)
        return torch.nn.functional.ctc_loss(said.transpose(0, 1), words, [said.shape[1]] * batch, [10] * batch)

    return _train(model, steps, loss)


def _train_on_pictures(model, said_of, device, batch, side, steps):
    def loss():
        said = said_of(torch.randn(batch, 3, *[32 * random.randint(side // 64, side // 32)] * 2, device=device))
        return torch.nn.functional.cross_entropy(said.float(), torch.randint(20, said[:, 0].shape, device=device))

    return _train(model, steps, loss)


def convnext(device, *, batch=64, side=320, steps=40):
    import timm

    model = timm.create_model("convnext_small" if device == "cuda" else "convnext_atto").to(device)
    return _train_on_pictures(model, torch.autocast(device, torch.bfloat16)(model), device, batch, side, steps)


def segmentation(device, *, batch=16, side=544, steps=20):
    from torchvision.models.segmentation import deeplabv3_resnet50

    model = deeplabv3_resnet50(weights=None, weights_backbone=None).to(device)
    return _train_on_pictures(model, lambda pictures: model(pictures)["out"], device, batch, side, steps)


def detection(device, *, batch=8, side=800, steps=20):
    from torchvision.models.detection import fasterrcnn_resnet50_fpn

    model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, min_size=side, max_size=2 * side).to(device)

    def loss():
        pictures = [torch.rand(3, random.randint(side // 2, side), side, device=device) for _ in range(batch)]
        targets = [{"labels": torch.randint(91, (boxes,), device=device), "boxes": side / 4 * torch.rand(
            boxes, 2, 2, device=device).cumsum(1).flatten(1)} for boxes in random.choices([1, 4, 9], k=batch)]
        return sum(model(pictures, targets).values())

    return _train(model, steps, loss)


def graph_network(device, *, nodes=500_000, width=512, most=4096, steps=40):
    from torch_geometric.nn import GraphSAGE
    from torch_geometric.utils import k_hop_subgraph

    edges, known = torch.randint(nodes, (2, 10 * nodes), device=device), torch.randn(nodes, width, device=device)
    model = GraphSAGE(width, width, num_layers=3, out_channels=47, dropout=0.5).to(device)

    def loss():
        seeds = torch.randperm(nodes, device=device)[:random.randint(most // 4, most)]
        inside, kept, places, _ = k_hop_subgraph(seeds, 2, edges, relabel_nodes=True, num_nodes=nodes)
        return torch.nn.functional.cross_entropy(model(known[inside], kept)[places], seeds % 47)

    return _train(model, steps, loss)


def gaussian_process(device, *, most=8000, rounds=4, steps=10):
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def forward(self, points):
            return gpytorch.distributions.MultivariateNormal(self.mean(points), self.kernel(points))

    for _ in range(rounds):
        points = torch.rand(random.randint(most // 2, most), 6, device=device)
        values = torch.sin(6 * points).sum(1)
        model = Regression(points, values, gpytorch.likelihoods.GaussianLikelihood())
        model.mean, model.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.MaternKernel(ard_num_dims=6)
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model.to(device))
        loss = _train(model, steps, lambda: -marginal(model(points), values), 0.1)
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            model.eval().likelihood(model(torch.rand_like(points[::4]))).variance.sum().item()
    return loss


def bayesian_optimisation(device, *, most=1000, raw=4096, rounds=6):
    import botorch
    import gpytorch

    points = torch.rand(most, 6, device=device, dtype=torch.double)
    for _ in range(rounds):
        values = botorch.test_functions.Hartmann(negate=True).to(points)(points).unsqueeze(-1)
        model = botorch.models.SingleTaskGP(points, values)
        botorch.fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
        gain = botorch.acquisition.qLogExpectedImprovement(model, values.max())
        picked, _ = botorch.optim.optimize_acqf(gain, points.new_tensor([[0] * 6, [1] * 6]), q=8, num_restarts=8,
                                                raw_samples=raw, options={"maxiter": 30})
        points = torch.cat([points, picked, torch.rand_like(points[:most // 8])])
    return -values.max().item()


def neural_ode(device, *, width=64, batch=192, side=32, steps=30):
    from torchdiffeq import odeint

    change = torch.nn.Sequential(torch.nn.GroupNorm(8, width), torch.nn.SiLU(), torch.nn.Conv2d(width, width, 3, 1, 1))
    model = torch.nn.ModuleList([torch.nn.Conv2d(3, width, 3, 1, 1), change, torch.nn.Linear(width, 10)]).to(device)

    def loss():
        begin = model[0](torch.randn(random.randint(batch // 2, batch), 3, side, side, device=device))
        end = odeint(lambda _, state: change(state), begin, begin.new_tensor([0, 1]), rtol=1e-3, atol=1e-3)[-1]
        return torch.nn.functional.cross_entropy(model[2](end.mean((2, 3))), begin.new_zeros(len(end)).long())

    return _train(model, steps, loss, 1e-3)


# Large ones stand apart: several run at a time.
PROGRAMS = {"HF Llama": llama, "HF generate": generate, "PyG GraphSAGE": graph_network, "GPyTorch": gaussian_process,
            "DeepLabV3": segmentation, "T5 beam search": beam_search, "BoTorch": bayesian_optimisation,
            "PEFT LoRA": lora, "Faster R-CNN": detection, "HF Mixtral": mixtral, "torchdiffeq": neural_ode,
            "timm ConvNeXt": convnext, "sentence-transformers": sentences, "torchaudio wav2vec2": wav2vec2}


def run(program, allocator):
    if allocator == "small":
        return {"loss": program("cpu", **{name: SMALL[name] for name in program.__kwdefaults__})}
    if allocator.endswith("pool"):
        import commpool
        from suites import SUITES

        SUITES["torch-whole"].put(commpool.Pool("programs", mode=allocator.split()[0]))
    loss = program("cuda")
    measured = torch.cuda.memory_stats()  # the pool's and torch's own, added: nothing that the pool did not serve hides
    return {"loss": loss, **{of: measured[f"{of}_bytes.all.peak"] for of in ("requested", "allocated", "reserved")}}


if __name__ == "__main__":
    random.seed(1)
    torch.manual_seed(1)
    print(json.dumps(run(PROGRAMS[sys.argv[1]], sys.argv[2])))
