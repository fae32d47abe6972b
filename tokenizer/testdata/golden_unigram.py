"""Trains unigram.json and writes golden_unigram.jsonl: what the Hugging Face library
makes of our strings with this Unigram model.

    pip install tokenizers==0.22.1 && python3 tokenizer/testdata/golden_unigram.py
"""

import copy
import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from golden import FRAGMENTS, HERE, added, strings
from golden_text import BLANKS, CORPUS, FALLBACK, FUSE, MORE, SPACES, decode, metaspace, strip


def train():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS.split("\n"), trainer)
    file = json.loads(tokenizer.to_str())
    file["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    file["added_tokens"] = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True)]
    file["decoder"] = decode(FALLBACK, metaspace("always"))
    return file


VARIANTS = {
    "unigram": ({}, {}),
    "byte fallback": ({}, {"byte_fallback": True}),
    "no pre-tokenizer": ({"normalizer": BLANKS, "pre_tokenizer": None, "decoder": decode(SPACES, FALLBACK, FUSE, strip(1))}, {"byte_fallback": True}),
}


def main():
    rng = random.Random(15)
    base = train()
    (HERE / "unigram.json").write_text(json.dumps(base, ensure_ascii=False, separators=(",", ":")) + "\n")
    size = len(base["model"]["vocab"])
    FRAGMENTS.extend(MORE)
    with open(HERE / "golden_unigram.jsonl", "w") as out:
        for name, (members, model) in VARIANTS.items():
            file = copy.deepcopy(base) | members
            file["model"] |= model
            tokenizer = Tokenizer.from_str(json.dumps(file))
            line = {"variant": name, "members": members, "model": model, "drop": "", "encode": [], "decode": []}
            for text in strings(rng, 310):
                plain = tokenizer.encode(text, add_special_tokens=False).ids
                line["encode"].append([text, plain])
                ids = [rng.choice([rng.randint(0, size + 3), rng.choice(plain or [0])]) for _ in range(rng.randint(0, 8))]
                line["decode"].append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
