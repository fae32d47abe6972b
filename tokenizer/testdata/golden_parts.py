"""Writes golden_parts.jsonl.gz, what the Hugging Face library makes of our strings
with each kind of component that no other file here has, and the tables of word
characters and scripts that it goes by.

    pip install tokenizers==0.22.1 sentencepiece==0.2.1 protobuf==6.33.0 && python3 tokenizer/testdata/golden_parts.py
"""

import base64
import copy
import gzip
import json
import random
import string

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import golden
from golden import BASE, FRAGMENTS, HERE, added, byte_level, sequence, split, strings
from golden_sentencepiece import rules, train as train_pieces
from golden_text import BLANKS, CORPUS, FALLBACK, FUSE, MORE, SPACES, decode, metaspace, normalize, replace, strip

FRAGMENTS.extend(MORE + [
    "a\u0301", "E\u0301", "\ufb01\u0301", "\ufb01", "\u2460", "...", "\u0600a", "\t\u0301", "\u00ad\u0301", "\ufb01\u20d0", "z\u0301", "a\x8fb\x9fc", "\u00a9\u200d\u00a9", "e\u0301\u0301\u0301", "\u1100\u1161", "A\u200d", "\u3042\u30ab\u4e00\u30fc",
    "\u0410a\u03b1", " a \u0410 ", "12\u0661", "a_b", "a|b||c", "a\u00b7b", "\u200c\u200dx", "\ufeff", "\u2581", "do not", " n't", " ' ", " .", "<pad>", "<pad><pad>", "|", "low</w>", "##s",
])


def text_file(model, **members):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model} | members


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS.split("\n") * 2, trainer)
    return json.loads(tokenizer.to_str())["model"]


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return trained(tokenizer, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["[UNK]", "<pad>", "|"], show_progress=False))


def affixed(**affixes):
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", **affixes))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=500, special_tokens=["[UNK]", "<pad>", "|"], show_progress=False, **affixes))


def byte_affixed():
    tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=800, special_tokens=["<|endoftext|>"], initial_alphabet=sorted(alphabet), end_of_word_suffix="</w>", show_progress=False))


def unigram():
    return json.loads((HERE / "unigram.json").read_text())


def charsmap():
    return base64.b64encode(train_pieces("unigram", vocab_size=420, normalization_rule_tsv=rules()).normalizer_spec.precompiled_charsmap).decode()


def precompiled():
    return {"type": "Precompiled", "precompiled_charsmap": charsmap()}


WHITESPACE = {"type": "Whitespace"}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def demo(*stages, **members):
    return copy.deepcopy(BASE) | {"pre_tokenizer": sequence(*stages, byte_level())} | members


def files():
    """Name and tokenizer.json."""
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    yield "whitespace", demo(WHITESPACE)
    yield "whitespace split", demo({"type": "WhitespaceSplit"})
    for b in behaviors:
        yield f"punctuation {b}", demo({"type": "Punctuation", "behavior": b})
        yield f"split {b}", demo(split({"Regex": r"[a-e]+|\s"}, b))
        yield f"split {b} inverted", demo(split({"Regex": r"[a-e]+|\s"}, b, True))
        yield f"split string {b} inverted", demo(split({"String": "e"}, b, True))
    yield "delimiter", demo({"type": "CharDelimiterSplit", "delimiter": "a"})
    yield "scripts", demo({"type": "UnicodeScripts"})
    yield "digits", demo({"type": "Digits", "individual_digits": False})
    yield "each digit", demo({"type": "Digits", "individual_digits": True})
    yield "length", demo({"type": "FixedLength", "length": 3})
    yield "several", demo({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Digits", "individual_digits": True}, {"type": "UnicodeScripts"})
    yield "nmt", demo(normalizer=normalize({"type": "Nmt"}, {"type": "NFKC"}))
    yield "precompiled", demo(normalizer=precompiled())
    yield "bytes normalized", copy.deepcopy(BASE) | {"normalizer": normalize({"type": "NFC"}, {"type": "ByteLevel"}), "pre_tokenizer": split({"Regex": "\u0120|\u010a"}, "MergedWithNext")}
    yield "bytes, then words", copy.deepcopy(BASE) | {"pre_tokenizer": sequence(LEVEL, {"type": "Digits", "individual_digits": True})}
    yield "bytes and fallback", copy.deepcopy(BASE) | {"decoder": decode(LEVEL, strip(1, 1))}
    words = word_level()
    yield "word level", text_file(words, pre_tokenizer=WHITESPACE)
    special = [added(0, "[UNK]", special=True), added(1, "<pad>", special=True), added(2, "|")]
    ctc = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}
    yield "ctc", text_file(words, pre_tokenizer=WHITESPACE, decoder=ctc, added_tokens=[added(1, "<pad>"), added(2, "|")])
    yield "ctc as it is", text_file(words, pre_tokenizer=WHITESPACE, decoder=decode(ctc | {"cleanup": False}, {"type": "WordPiece", "prefix": "##", "cleanup": True}))
    suffix = affixed(end_of_word_suffix="</w>")
    bpe = {"type": "BPEDecoder", "suffix": "</w>"}
    yield "suffix", text_file(suffix, pre_tokenizer=WHITESPACE, decoder=bpe, added_tokens=special)
    yield "suffix, merges ignored", text_file(suffix | {"ignore_merges": True, "fuse_unk": True}, pre_tokenizer=WHITESPACE, decoder=decode(bpe, FUSE, replace({"String": "th"}, "T"), strip(2, 1)))
    prefix = affixed(continuing_subword_prefix="##")
    yield "prefix", text_file(prefix, pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, added_tokens=special)
    both = affixed(continuing_subword_prefix="@@", end_of_word_suffix="</w>")
    yield "prefix and suffix", text_file(both, pre_tokenizer=WHITESPACE, decoder=decode(replace({"String": "@@"}, ""), bpe), added_tokens=special)
    yield "suffix of bytes", text_file(
        byte_affixed(), normalizer=normalize({"type": "NFC"}, replace({"Regex": r"\s+"}, " "), {"type": "Lowercase"}),
        pre_tokenizer=sequence(split({"Regex": r"'s|'t|\p{L}+|[\p{N}]|[^\s\p{L}\p{N}]+"}, "Removed", True), byte_level()), decoder=LEVEL,
        post_processor={"type": "RobertaProcessing", "sep": ["</w>", 7], "cls": ["<|endoftext|>", 0], "trim_offsets": False, "add_prefix_space": False},
        added_tokens=[added(0, "<|endoftext|>", special=True)],
    )
    uni = unigram()
    yield "unigram precompiled", uni | {"normalizer": normalize(precompiled(), replace({"Regex": " {2,}"}, " ")), "pre_tokenizer": sequence({"type": "WhitespaceSplit"}, metaspace("always"))}
    for name, chain in {
        "fused then stripped at both ends": [SPACES, FALLBACK, FUSE, strip(1, 2)],
        "fused then replaced": [FALLBACK, FUSE, replace({"String": "\u2581"}, " "), replace({"String": "the "}, "a ")],
        "fused then matched": [FALLBACK, FUSE, replace({"Regex": "\u2581+"}, " ")],
        "fused then pieces": [FALLBACK, FUSE, {"type": "WordPiece", "prefix": "##", "cleanup": True}],
        "fused twice": [SPACES, FUSE, strip(1), FUSE, strip(1)],
        "metaspace then bytes": [metaspace("always"), FALLBACK],
        "bytes twice": [FALLBACK, SPACES, FALLBACK, FUSE],
        "metaspace fused": [FALLBACK, FUSE, metaspace("always")],
        "suffix fused": [FALLBACK, FUSE, {"type": "BPEDecoder", "suffix": "e"}],
    }.items():
        yield name, uni | {"decoder": decode(*chain)}
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[X]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[X]": {"id": "[X]", "ids": [5, 9], "tokens": ["a", "b"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
    }
    yield "template", uni | {"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, template]}}


def chars():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def write_words():
    from golden_bert import table

    cut = pre_tokenizers.Whitespace()
    words = [c for c in chars() if len(cut.pre_tokenize_str("a" + chr(c) + "a")) == 1]
    with open(HERE / "../words_table.go", "w") as out:
        out.write('// Code generated by testdata/golden_parts.py; DO NOT EDIT.\n\npackage tokenizer\n\nimport "unicode"\n')
        out.write(table("wordChars", words))


def write_scripts():
    cut = pre_tokenizers.UnicodeScripts()

    def same(a, b):
        return len(cut.pre_tokenize_str(chr(a) + chr(b))) == 1

    runs, known, last = [], [], None
    for c in chars():
        if last is not None and runs[-1][1] and same(last, c) and not (same(0x61, c) and same(0x431, c)):
            last = c
            continue
        if same(0x61, c) and same(0x431, c):
            number = 0
        else:
            number = next((i + 1 for i, k in enumerate(known) if same(k, c)), 0)
            if not number:
                known.append(c)
                number = len(known)
        if not runs or runs[-1][1] != number:
            runs.append((c, number))
        last = c
    with open(HERE / "../scripts_table.go", "w") as out:
        out.write("// Code generated by testdata/golden_parts.py; DO NOT EDIT.\n\npackage tokenizer\n\n// scriptRuns holds the first of each run.\nvar scriptRuns = []scriptRun{\n")
        for i in range(0, len(runs), 8):
            out.write("\t" + ", ".join(f"{{{c:#x}, {n}}}" for c, n in runs[i:i + 8]) + ",\n")
        out.write("}\n")


def main():
    rng = random.Random(17)
    texts = list(strings(rng, 330))
    with gzip.GzipFile(HERE / "golden_parts.jsonl.gz", "wb", mtime=0) as out:
        out.write(json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        for name, file in files():
            tokenizer = Tokenizer.from_str(json.dumps(file))
            size = max(tokenizer.get_vocab().values()) + 2
            members = {k: v for k, v in file.items() if k not in ("model", "version", "truncation", "padding")}
            base = "demo" if file["model"] == BASE["model"] else "unigram" if file["model"] == unigram()["model"] else ""
            line = {"variant": name, "base": base, "members": members, "model": None if base else file["model"], "encode": [], "decode": []}
            decoded = base == "demo" and file["decoder"] == BASE["decoder"]
            shown = base == "unigram" and file["decoder"] != unigram()["decoder"]
            for text in texts:
                plain = tokenizer.encode(text, add_special_tokens=False).ids
                special = tokenizer.encode(text).ids
                line["encode"].append([plain] if special == plain else [plain, special])
            for _ in range(0 if decoded else 330):
                ids = [rng.randrange(min(size, 300)) if rng.random() < 0.5 else rng.choice(rng.choice(line["encode"])[0] or [0]) for _ in range(rng.randint(1, 8))]
                if rng.random() < 0.3:
                    ids += ids[-1:] + rng.choice(line["encode"])[0][:3]
                try:
                    line["decode"].append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
                except BaseException:  # some components panic when there is nothing to decode
                    continue
            assert decoded or len(line["decode"]) >= 300, name
            if shown:
                line["encode"] = []
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    write_words()
    write_scripts()
    main()
