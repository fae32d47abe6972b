"""Answers what the real libraries make of texts and ids.

Each line of the input is a JSON object: a vocabulary, and what to encode and
decode with it; the ids of the first texts, as many as "again" says, are decoded
too. Each line of the output is the answer.

    {"library": "tokenizers", "vocabulary": {"file": "tokenizer.json"}, "encode": ["text"], "special": ["text"], "decode": [[1, 2]]}
    {"library": "tiktoken", "vocabulary": {"file": "ranks", "encoding": "o200k_base"}, ...}
    {"library": "tiktoken", "vocabulary": {"file": "ranks", "pattern": "...", "special": {"<|end|>": 5}}, ...}
    {"library": "tekken", "vocabulary": {"file": "tekken.json"}, ...}
    {"library": "sentencepiece", "vocabulary": {"file": "tokenizer.model"}, ...}
"""

import base64
import json
import sys
import time


class Tokenizers:
    def __init__(self, file, **_):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(file)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def special(self, text):
        return self.tokenizer.encode(text).ids

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)


class Tiktoken:
    def __init__(self, file, encoding=None, pattern=None, special=None, **_):
        import tiktoken

        ranks = self.ranks(file)
        if encoding:
            import tiktoken_ext.openai_public as openai

            openai.load_tiktoken_bpe = lambda *_, **__: ranks
            self.encoding = tiktoken.Encoding(**getattr(openai, encoding)())
        else:
            self.encoding = tiktoken.Encoding("ours", pat_str=pattern or self.pattern, mergeable_ranks=ranks, special_tokens=special or {})

    def ranks(self, file):
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in open(file, "rb") if line.strip())}

    def encode(self, text):
        return self.encoding.encode(text, allowed_special="all", disallowed_special=())

    special = encode

    def decode(self, ids, skip):
        if skip:
            ids = [i for i in ids if i not in self.encoding._special_tokens.values()]
        return self.encoding.decode(ids, errors="replace")


class Tekken(Tiktoken):
    """The vocabulary alone: Mistral's library puts a thousand special ids before it."""

    def ranks(self, file):
        file = json.load(open(file, "rb"))
        config = file["config"]
        self.pattern = config["pattern"]
        n = config["default_vocab_size"] - config["default_num_special_tokens"]
        return {base64.b64decode(t["token_bytes"]): t["rank"] for t in file["vocab"][:n]}


class SentencePiece:
    def __init__(self, file, **_):
        from sentencepiece import SentencePieceProcessor

        self.processor = SentencePieceProcessor(model_file=file)

    def encode(self, text):
        return self.processor.encode(text)

    special = encode

    def decode(self, ids, skip):
        return self.processor.decode(ids)


LIBRARIES = {"tokenizers": Tokenizers, "tiktoken": Tiktoken, "tekken": Tekken, "sentencepiece": SentencePiece}


def main():
    for line in sys.stdin:
        request = json.loads(line)
        library = LIBRARIES[request["library"]](**request["vocabulary"])
        start = time.process_time()
        answer = {"encode": [library.encode(text) for text in request["encode"]]}
        answer["seconds"] = time.process_time() - start
        answer["special"] = [library.special(text) for text in request["special"]]
        sequences = answer["encode"][: request["again"]] + request["decode"]
        answer["decode"] = [[library.decode(ids, False), library.decode(ids, True)] for ids in sequences]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
