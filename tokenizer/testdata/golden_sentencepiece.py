"""Trains small SentencePiece models and writes golden_sentencepiece.jsonl.gz: the
models, and what the SentencePiece library makes of our strings with them.

    pip install sentencepiece==0.2.1 tokenizers==0.22.1 protobuf==6.33.0 && python3 tokenizer/testdata/golden_sentencepiece.py
"""

import base64
import gzip
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

from golden import FRAGMENTS, HERE, strings
from golden_text import CORPUS, MORE

FRAGMENTS.extend(MORE + [
    "<0x0A>", "<tag>", "<tag><tag>", "<tag>the", "z\u0301 z", "the<tag> <tag>", "the cache", "\u2047", " \u2047 ", "<ctl>", "\ufb01", "\ufb01\u0301", "\uff21\uff22\uff23", "\u2460\u2461", "\u3392",
    "\u0639\u0644\u064a\u0647", "\u200bx\u200b", "\ufeffx", "\u2581\u2581\u2581x \u2581", "a \u3000 b", "\t\t \n x \n", "a\u0300\u0316\u0301", "\u1100\u1161\u11a8", "\uac01",
    "two words", "two  words", "\u0130\u0049\u0307", "thethethethe", "  the  cache  ",
])

PLAIN = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
SYMBOLS = dict(user_defined_symbols=["<tag>", "two words", "the", "\u2581\u2581", "<tag><tag>"], control_symbols=["<ctl>"])


def train(kind, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.split("\n") * 2), model_writer=out, model_type=kind, num_threads=1, minloglevel=2, hard_vocab_limit=False, **options,
    )
    model = pb.ModelProto()
    model.ParseFromString(out.getvalue())
    # Of the training they say nothing but what use needs.
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    model.ClearField("self_test_data")
    return model


def rules():
    """A file of rules of our own: case, blanks, what goes, what grows."""
    pairs = [(chr(c), chr(c + 32)) for c in range(ord("A"), ord("Z") + 1)]
    pairs += [(c, " ") for c in "\t\n\r\u00a0\u3000\u200b"] + [(c, "") for c in "\u200d\x7f"]
    pairs += [("e\u0301", "\u00e9"), ("z", "Z"), ("z\u0301", "\u017a"), ("a\u0301", "\u00e1"), ("\ufb01", "fi"), ("\u2460", " (1) "), ("...", "\u2026"), ("\U0001f600", ":-)"), ("\u2047", "  ?  ")]
    path = pathlib.Path(tempfile.mkdtemp()) / "rules.tsv"
    path.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in pairs))
    return str(path)


def tied(model):
    """Pieces of equal score, as they are appended to a vocabulary to extend it."""
    for i, p in enumerate(model.pieces):
        if p.type == pb.ModelProto.SentencePiece.NORMAL and i % 3:
            p.score = 0 if i % 2 else -7
    return model


def near(model):
    """Characters that together are nearly as good as the symbol they spell."""
    for p in model.pieces:
        if p.type == pb.ModelProto.SentencePiece.NORMAL and p.piece in "the":
            p.score = -0.05
    return model


def rounded(model):
    """Scores of which many ways have the same sum but for how it is rounded."""
    for p in model.pieces:
        if p.type == pb.ModelProto.SentencePiece.NORMAL:
            p.score = -0.1 * len(p.piece)
    return model


def unused(model):
    for i, p in enumerate(model.pieces):
        if p.type == pb.ModelProto.SentencePiece.NORMAL and i % 5 == 1:
            p.type = pb.ModelProto.SentencePiece.UNUSED
    return model


def orphans(model):
    """Characters that only longer pieces have."""
    for i, p in enumerate(model.pieces):
        if p.type == pb.ModelProto.SentencePiece.NORMAL and p.piece in "aeotn":
            p.piece = f"\u4f60{i}"
    return model


MODELS = {
    "bpe": lambda: train("bpe", vocab_size=700, byte_fallback=True, **PLAIN, **SYMBOLS),
    "bpe without symbols": lambda: train("bpe", vocab_size=620, byte_fallback=True, **PLAIN),
    "bpe without bytes": lambda: train("bpe", vocab_size=400, normalization_rule_tsv=rules(), remove_extra_whitespaces=True, character_coverage=0.98, unk_surface="??"),
    "bpe of equal scores": lambda: tied(train("bpe", vocab_size=700, byte_fallback=True, **PLAIN, **SYMBOLS)),
    "bpe with unused": lambda: unused(train("bpe", vocab_size=420, **PLAIN)),
    "bpe with orphans": lambda: orphans(train("bpe", vocab_size=700, byte_fallback=True, **PLAIN)),
    "unigram": lambda: train("unigram", vocab_size=420, **SYMBOLS),
    "unigram of near scores": lambda: near(train("unigram", vocab_size=420, **PLAIN, **SYMBOLS)),
    "unigram of rounded scores": lambda: rounded(train("unigram", vocab_size=420, **PLAIN)),
    "unigram with bytes": lambda: train("unigram", vocab_size=700, byte_fallback=True, treat_whitespace_as_suffix=True, **PLAIN),
    "unigram without blanks": lambda: train("unigram", vocab_size=420, add_dummy_prefix=False, normalization_rule_name="identity", user_defined_symbols=["a\u0301", "x"]),
    "unigram with unused": lambda: unused(train("unigram", vocab_size=420, add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_tsv=rules())),
    "char": lambda: train("char", vocab_size=200, character_coverage=0.99, **PLAIN, user_defined_symbols=["<tag>"]),
    "blanks as they are": lambda: plain_blanks(train("bpe", vocab_size=420, **PLAIN)),
}


def plain_blanks(model):
    model.normalizer_spec.escape_whitespaces = False
    for p in model.pieces:
        p.piece = p.piece.replace("\u2581", " ")
    return model


def main():
    rng = random.Random(16)
    with gzip.GzipFile(HERE / "golden_sentencepiece.jsonl.gz", "wb", mtime=0) as out:
        for name, make in MODELS.items():
            model = make()
            data = model.SerializeToString()
            sp = sentencepiece.SentencePieceProcessor(model_proto=data)
            line = {"variant": name, "file": base64.b64encode(data).decode(), "encode": [], "decode": []}
            size = sp.get_piece_size()
            for text in strings(rng, 340):
                ids = sp.encode(text)
                line["encode"].append([text, ids, sp.decode(ids)])
                ids = [rng.choice([rng.randrange(size), rng.randrange(min(size, 264)), rng.choice(ids or [0])]) for _ in range(rng.randint(0, 8))]
                line["decode"].append([ids, sp.decode(ids)])
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    main()
