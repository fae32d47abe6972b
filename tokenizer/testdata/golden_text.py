"""Trains text.json, a model of characters, and writes golden_text.jsonl: what the
Hugging Face library makes of our strings with it and its variants.

    pip install tokenizers==0.22.1 && python3 tokenizer/testdata/golden_text.py
"""

import copy
import json
import random

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from golden import FRAGMENTS, HERE, added, sequence, split, strings

CORPUS = """
The router knows where the blocks of each prompt already lie, so it sends a request to the worker that has least left to do.
Nobody had expected the harbor to freeze; the children walked out with lanterns, and the fishermen shook their heads.
Tokens are cut, merged, counted and cached. A token that is wrong makes the cache wrong, and the whole prompt is computed again.
Die Größe der Blöcke ist für alle Anfragen gleich. Über die Brücke gehen zwei Züge täglich.
Le café était fermé, mais la porte restait ouverte; nous avons attendu près du feu.
Привет, мир! Кэш хранит блоки, которые уже были вычислены.
请用中文写一个简短的总结。系统的速度取决于同时处理的请求数量，缓存可以减少重复的计算。
今日は天気がいいので、公園まで歩きました。
func handle(ctx context.Context, id int) (int, error) {
    if id < 0 { return 0, fmt.Errorf("request %d", id) }
    return id + 1, nil
}
def f(x):
    return x ** 2  # the square
for (let i = 0; i < 10; i++) { console.log(i, i * 2); }
In 2024 it cost 12.50, in 1999 only 3.75; that is 3.3 times as much.
"""

MORE = [
    "\u2581", "\u2581\u2581a", "a\u2581b", " \u2581 ", "<0x41>", "<0xE4>", "<s>", "</s>", "<unk>", "<s> ", " <s>hello", "Привет", " мир", "the the the", "request worker cache",
    "\t\tif (x) {\n", "  \r\n\r\n  ", " " * 90, "\n" * 80, "caf\u00e9", "cafe\u0301", "GRÖSSE", "\u0130stanbul", "\ua7cc\ua7da", "\U00010d50", "\u1e9e", "\u03a3\u03a3", "\ufb01x\u2460", "abc" * 30,
    "مرحبا بالعالم", "שלום עולם", "สวัสดีชาวโลก", "नमस्ते दुनिया", "\U0001f469\u200d\U0001f4bb", "\U0001f3f4\U000e0067\U000e007f",
]


def train():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True)]
    file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]
    return file | LLAMA


def normalize(*stages):
    return {"type": "Sequence", "normalizers": list(stages)}


def decode(*stages):
    return {"type": "Sequence", "decoders": list(stages)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def metaspace(scheme, cut=True, **more):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut} | more


PREPEND = {"type": "Prepend", "prepend": "\u2581"}
BLANKS = replace({"String": " "}, "\u2581")
SPACES = replace({"String": "\u2581"}, " ")
FALLBACK = {"type": "ByteFallback"}
FUSE = {"type": "Fuse"}


def strip(start, stop=0):
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


LLAMA = {
    "normalizer": normalize(PREPEND, BLANKS),
    "pre_tokenizer": None,
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    },
    "decoder": decode(SPACES, FALLBACK, FUSE, strip(1)),
}

# name: (members of the file, members of the model, tokens to drop)
VARIANTS = {
    "llama": ({}, {}, ""),
    "gemma": ({"normalizer": BLANKS, "pre_tokenizer": split({"String": " "}, "MergedWithPrevious"), "decoder": decode(SPACES, FALLBACK, FUSE)}, {}, ""),
    "mistral": ({"normalizer": None, "pre_tokenizer": metaspace("first", False)}, {}, ""),
    "metaspace": ({"normalizer": None, "pre_tokenizer": metaspace("always"), "decoder": metaspace("always")}, {}, ""),
    "metaspace first": ({"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}, "pre_tokenizer": metaspace("first"), "decoder": decode(FALLBACK, metaspace("first"))}, {}, ""),
    "metaspace never": ({"normalizer": None, "pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, metaspace("never")), "decoder": metaspace("never")}, {"ignore_merges": True}, ""),
    "no decoder": ({"decoder": None}, {}, ""),
    "strip": ({"normalizer": normalize({"type": "Strip", "strip_left": True, "strip_right": False}, PREPEND, BLANKS)}, {}, ""),
    "strip two": ({"decoder": decode(FALLBACK, SPACES, FUSE, strip(2))}, {}, ""),
    "strip each": ({"decoder": decode(FALLBACK, replace({"Regex": "\u2581+|e"}, " "), strip(1))}, {}, ""),
    "lower": ({"normalizer": normalize({"type": "Lowercase"}, {"type": "NFKD"}, {"type": "StripAccents"}, PREPEND, BLANKS)}, {}, ""),
    "regex": ({"normalizer": normalize({"type": "NFKC"}, replace({"Regex": r" {2,}|\s"}, "\u2581"))}, {}, ""),
    "unknown fused": ({}, {"byte_fallback": False}, ""),
    "unknown": ({}, {"byte_fallback": False, "fuse_unk": False}, ""),
    "unknown dropped": ({}, {"byte_fallback": False, "unk_token": None}, ""),
    "some bytes": ({}, {}, "<0xB"),
    "some bytes, unknown not fused": ({}, {"fuse_unk": False}, "<0x9"),
    "flags": ({"added_tokens": [
        added(0, "<unk>", special=True), added(1, "<s>", special=True, lstrip=True), added(2, "</s>", special=True, rstrip=True),
        added(900, "worker", normalized=True), added(901, "<0x42>"), added(902, "мир", single_word=True),
    ]}, {}, ""),
}


def main():
    rng = random.Random(12)
    base = train()
    (HERE / "text.json").write_text(json.dumps(base, ensure_ascii=False, separators=(",", ":")) + "\n")
    FRAGMENTS.extend(MORE)
    with open(HERE / "golden_text.jsonl", "w") as out:
        for name, (members, model, drop) in VARIANTS.items():
            if name != "llama":
                members["post_processor"] = None
            file = copy.deepcopy(base) | members
            file["model"] |= model
            if drop:
                file["model"]["vocab"] = {f"\u4f60{i}" if drop in t else t: i for t, i in file["model"]["vocab"].items()}
            tokenizer = Tokenizer.from_str(json.dumps(file))
            line = {"variant": name, "members": members, "model": model, "drop": drop, "encode": [], "decode": []}
            for n, text in enumerate(strings(rng, 300 if name in ("llama", "gemma", "mistral") else 110)):
                plain = tokenizer.encode(text, add_special_tokens=False).ids
                special = tokenizer.encode(text).ids
                line["encode"].append([text, plain] if special == plain else [text, plain, special])
                if n % 2 == 0:
                    ids = rng.sample(plain, min(len(plain), 20))
                else:
                    ids = [rng.choice([rng.randint(0, 902), rng.randint(0, 2), rng.randint(3, 258), rng.choice(plain or [0])]) for _ in range(rng.randint(0, 12))]
                line["decode"].append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
