"""Writes golden.jsonl: what the Hugging Face library makes of our strings.

Each variant is the demo model's tokenizer.json with some members replaced. Run
it again when the demo model's tokenizer changes:

    pip install tokenizers==0.22.1 && python3 tokenizer/testdata/golden.py
"""

import copy
import gzip
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
BASE = json.loads(gzip.open(HERE / "../../internal/demo/tokenizer.json.gz").read())

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
O200K = r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
TEKKEN = r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": False, "use_regex": regex}


def sequence(*stages):
    return {"type": "Sequence", "pretokenizers": list(stages)}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def added(id, content, **flags):
    token = dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return token | flags


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
        "<|endoftext|>": {"id": "<|endoftext|>", "ids": [8183], "tokens": ["<|endoftext|>"]},
        "<|im_end|>": {"id": "<|im_end|>", "ids": [8185], "tokens": ["<|im_end|>"]},
    },
}

# name: (members of the file, members of the model)
VARIANTS = {
    "demo": ({}, {}),
    "gpt2": ({"normalizer": None, "pre_tokenizer": byte_level(regex=True)}, {}),
    "gpt2 prefix space": ({"pre_tokenizer": byte_level(prefix=True, regex=True)}, {}),
    "prefix space of each piece": ({"pre_tokenizer": sequence(split({"String": "-"}), byte_level(prefix=True))}, {}),
    "llama3": ({"normalizer": None, "pre_tokenizer": sequence(split({"Regex": LLAMA3}), byte_level()), "post_processor": {"type": "Sequence", "processors": [byte_level(), TEMPLATE]}}, {"ignore_merges": True}),
    "o200k": ({"normalizer": None, "pre_tokenizer": sequence(split({"Regex": O200K}, "Removed", True), byte_level())}, {}),
    "tekken": ({"normalizer": None, "pre_tokenizer": sequence(split({"Regex": TEKKEN}), byte_level())}, {}),
    "digits": ({"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level(regex=True))}, {}),
    "digit runs": ({"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, byte_level())}, {}),
    "two splits": ({"pre_tokenizer": sequence(split({"Regex": r"\p{N}{1,3}"}), split({"Regex": r"[!-/:-~]?[A-Za-z]+|\s+"}), byte_level())}, {}),
    "nfkc": ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFKC"}]}}, {}),
    # "word" is in the vocabulary, whose id counts.
    "flags": ({"added_tokens": BASE["added_tokens"] + [
        added(8192, "<left>", lstrip=True),
        added(8193, "<right>", rstrip=True),
        added(9999, "word", single_word=True, normalized=True),
        added(8194, "e\u0301t\u00e9", normalized=True),
        added(8195, "<both>", lstrip=True, rstrip=True, special=True),
        added(8196, "<|im_end|>\n"),
        added(8197, "\u4f60"),
        added(8198, "\u00e9\u00e8"),
    ]}, {}),
    "unknown bytes": ({}, {"unk_token": "!"}),
    "unknown bytes fused": ({}, {"unk_token": "!", "fuse_unk": True}),
    "unknown bytes dropped": ({}, {}),
}
for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
    for invert in [False, True]:
        stage = split({"Regex": r"[aeiou]| "}, behavior, invert)
        VARIANTS[f"split {behavior}, invert {invert}"] = ({"pre_tokenizer": sequence(stage, byte_level())}, {})

# As DeepSeek V3 has them; the line ends stand for themselves.
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
VARIANTS["deepseek"] = ({"normalizer": None, "pre_tokenizer": sequence(*(split({"Regex": p}) for p in DEEPSEEK), byte_level())}, {})

FRAGMENTS = [
    "Hello", " world", "don't", "DON'T", "'\u017f", "'re", "'LL", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n ", "123", "12345", " 7",
    "\u00bd", "\u2167", "\u00b2", "\u00e9", "e\u0301", "\u00c5", "\u212b", "\u4f60\u597d", "\u4eca\u5929\u5929\u6c14", "\u65e5\u672c\u8a9e", "\ud55c\uad6d\uc5b4",
    "\u0e44\u0e17\u0e22", "\u0915\u094d\u0937\u093f", "\u0627\u0644\u0639", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea",
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|endoftext|>", "<|im", "user", "!!", "...", "://", "//", "-->", '{"a": 1}',
    "def f(x):\n    return x", "camelCaseWord", "HTTPServer", "\u01c5", "\u02b0", "\u00aa", "\u00a0", "\u3000", "\u200b", "\u0085", "\u2028", "__init__",
    "a" * 40, "=" * 70, " " * 50, "\U00013f74", "\U0001396d", "\ufffd", "\x00", "\x7f", "Stra\u00dfe", "zigzag", "zz", "s'", "'", "x", "Z", "\u0301", "\u0301a", "over the hill",
    "<left>", " <left>", "<right> ", "word", "words", " word ", "\u00e9t\u00e9", "e\u0301te\u0301", " <both> ", "\u00e9\u00e8",
]


def strings(rng, n):
    for i in range(n):
        if i < len(FRAGMENTS):
            yield FRAGMENTS[i]
            continue
        yield "".join(
            rng.choice(FRAGMENTS) if rng.random() < 0.85 else chr(rng.choice([rng.randint(32, 126), rng.randint(0xA0, 0x24F), rng.randint(0x370, 0x1FFF), rng.randint(0x2000, 0x2BFF)]))
            for _ in range(rng.randint(1, 6))
        )


def main():
    rng = random.Random(11)
    with open(HERE / "golden.jsonl", "w") as out:
        for name, (members, model) in VARIANTS.items():
            file = copy.deepcopy(BASE) | members
            file["model"] |= model
            drop = "z" if name.startswith("unknown") else ""
            if drop:
                # Such tokens become ones that no text yields, at their ids.
                file["model"]["vocab"] = {f"\u4f60{i}" if drop in t else t: i for t, i in file["model"]["vocab"].items()}
                file["model"]["merges"] = [m for m in file["model"]["merges"] if drop not in m]
            tokenizer = Tokenizer.from_str(json.dumps(file))
            line = {"variant": name, "members": members, "model": model, "drop": drop, "encode": [], "decode": []}
            for text in strings(rng, 1000 if name == "demo" else 300 if name == "deepseek" else 100):
                plain = tokenizer.encode(text, add_special_tokens=False).ids
                special = tokenizer.encode(text).ids
                line["encode"].append([text, plain] if special == plain else [text, plain, special])
                if len(line["decode"]) < 40:
                    ids = rng.sample(plain, len(plain))
                    line["decode"].append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
