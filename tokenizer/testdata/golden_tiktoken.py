"""Trains ranks.tiktoken and writes golden_tiktoken.jsonl: what tiktoken makes of
our strings with these ranks and the patterns of real models.

    pip install tiktoken==0.12.0 tokenizers==0.22.1 && python3 tokenizer/testdata/golden_tiktoken.py
"""

import base64
import json
import random

import tiktoken
from tiktoken._educational import bpe_train

from golden import FRAGMENTS, HERE, LLAMA3, O200K, strings
from golden_text import CORPUS, MORE

KIMI = "|".join([
    r"""[\p{Han}]+""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""",
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*""",
    r"""\s*[\r\n]+""",
    r"""\s+(?!\S)""",
    r"""\s+""",
])
SPECIAL = {"[BOS]": 1000, "[EOS]": 1001, "<|im_end|>": 1002, "<|im_start|>": 1100}
HAN = ["你好world", "a你b", "\u3005\u3007", "\u2e80", "!\u2e80", "\u4f60's", "it's\u4f60", "\U00020000\U0002ebf0", "日本語テキスト", "漢字かな交じり文", "第3章", "\u3021", "[BOS]", "[EOS]", "[BO", "aaaaaaa"]


def main():
    rng = random.Random(13)
    ranks = bpe_train(CORPUS * 2 + "aaa aaaaa aaaa " * 40, 700, O200K, visualise=None)
    with open(HERE / "ranks.tiktoken", "wb") as out:
        for token, rank in ranks.items():
            out.write(base64.b64encode(token) + b" %d\n" % rank)
    FRAGMENTS.extend(MORE + HAN)
    with open(HERE / "golden_tiktoken.jsonl", "w") as out:
        for name, pattern in {"o200k": O200K, "kimi": KIMI, "llama3": LLAMA3}.items():
            encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=SPECIAL)
            line = {"variant": name, "pattern": pattern, "special": SPECIAL, "encode": [], "decode": []}
            for n, text in enumerate(strings(rng, 330)):
                all, plain = encoding.encode(text, allowed_special="all"), encoding.encode_ordinary(text)
                line["encode"].append([text, all] if all == plain else [text, all, plain])
                if n % 3 == 0:
                    ids = [rng.choice([rng.randint(0, 699), rng.randint(128, 255), rng.choice(list(SPECIAL.values()))]) for _ in range(rng.randint(0, 8))]
                    line["decode"].append([ids, encoding.decode(ids)])
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
