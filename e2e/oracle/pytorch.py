"""Computes log-probabilities with PyTorch and the models of Hugging Face.

Reads lines of JSON, {"model": path, "prompt": [id, ...]}, and answers each with the
float32 numbers of all tokens at all positions, natural logarithms, one row behind
the other. A model is a folder or a GGUF file. With {"make": {settings}, "dtype":
name} besides, the folder is written first: a model with these settings and random
weights, in several files.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402


def make(folder, settings, dtype):
    """Writes a model whose weights are as lively as those of a trained one."""
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() == 2:
                weights.normal_(0, weights.shape[1] ** -0.5)
            else:
                weights.add_(torch.randn_like(weights) * 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="200KB")


def open_(path):
    """Loads a model to be computed in double precision, so that what is apart is our
    error alone; its norms, angles and weights of attention are rounded to F32 all the
    same. Blocks of GGUF become the numbers that they stand for."""
    file = {}
    if path.endswith(".gguf"):
        path, file["gguf_file"] = os.path.split(path)
    return transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", **file
    ).double().eval()


def log_probabilities(model, prompt):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([prompt])).logits[0], dim=-1)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    opened, path = None, None
    for line in sys.stdin:
        ask = json.loads(line)
        if ask["model"] != path:
            path = ask["model"]
            if "make" in ask:
                make(path, ask["make"], ask["dtype"])
            opened = open_(path)
        all_ = log_probabilities(opened, ask["prompt"]).float().contiguous()
        sys.stdout.buffer.write(all_.numpy().astype("<f4").tobytes())
        sys.stdout.buffer.flush()


main()
