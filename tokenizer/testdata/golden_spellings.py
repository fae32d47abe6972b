"""Writes golden_spellings.jsonl.gz: what tiktoken and the Hugging Face library make
of our strings with the spellings of split patterns that models are published with.

    pip install tiktoken==0.12.0 tokenizers==0.22.1 && python3 tokenizer/testdata/golden_spellings.py
"""

import base64
import copy
import gzip
import json
import random

import tiktoken
from tokenizers import Tokenizer

from golden import BASE, FRAGMENTS, GPT2, HERE, LLAMA3, O200K, TEKKEN, byte_level, sequence, split, strings
from golden_text import MORE

FRAGMENTS.extend(MORE + ["\n  ", "x\n ", "  \n\n  \t", "1234567", "\u0661\u0662\u0663\u0664", "'S", "'lL", "'\u017f", "'\u212a", "$1", "a\n", "\r", " \u0301a", "\U00010d50\U00010d70", "\U00010d41", "\u0897", "[x]", "{1}", "^"])

# Those of r50k, p50k and cl100k, today and as of older releases.
SPELLINGS = [
    GPT2, LLAMA3, LLAMA3.replace("{1,3}", ""), O200K, TEKKEN,
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+""",
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s""",
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    # Of no model that we know; these are for the engine.
    r"""(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    r"""^\s+|(?i:k)+?|(?:ab|[\p{Ll}\p{M}])++|\p{Lu}{2}|[\x{e0}-\x{ff}\p{N}.]{1,2}+|\s$|(?>\s+)|[^\s]""",
]


def main():
    rng = random.Random(18)
    texts = list(strings(rng, 340))
    ranks = {}
    for line in (HERE / "ranks.tiktoken").read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    # Tokens that tell whether a piece went across.
    ranks |= {b"\n ": 700, b"\n  ": 701}
    with gzip.GzipFile(HERE / "golden_spellings.jsonl.gz", "wb", mtime=0) as out:
        out.write(json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        for pattern in SPELLINGS:
            line = {"pattern": pattern}
            encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
            line["tiktoken"] = [encoding.encode_ordinary(text) for text in texts]
            file = copy.deepcopy(BASE) | {"pre_tokenizer": sequence(split({"Regex": pattern}), byte_level()), "normalizer": None, "added_tokens": []}
            tokenizer = Tokenizer.from_str(json.dumps(file))
            line["tokenizers"] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


main()
