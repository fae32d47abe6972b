"""Writes golden_first_blank.jsonl: what classes of transformers with "legacy" false
make of our strings with models of golden_sentencepiece.jsonl.gz. They take the blank
before a text from the library's hands: the first text gets one unless it begins with
one, no other does, and blanks at its start stay, which the unknown token in front of
it sees to.

    pip install sentencepiece==0.2.1 protobuf==6.33.0 && python3 tokenizer/testdata/golden_first_blank.py
"""

import base64
import gzip
import json
import pathlib

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = pathlib.Path(__file__).parent
VARIANTS = ["bpe without symbols", "bpe without bytes", "bpe of equal scores", "unigram", "char"]
TEXTS = ["a", " ", "  ", " a", "  a", "a ", "a  b  ", " \n a", "\n", "\u3000a", "\u00a0 a", "The cache", " the  cache "]


def main():
    with gzip.open(HERE / "golden_sentencepiece.jsonl.gz", "rt") as f, open(HERE / "golden_first_blank.jsonl", "w") as out:
        for line in f:
            vectors = json.loads(line)
            if vectors["variant"] not in VARIANTS:
                continue
            model = pb.ModelProto()
            model.ParseFromString(base64.b64decode(vectors["file"]))
            model.normalizer_spec.add_dummy_prefix = False
            sp = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
            unknown = len(sp.encode("<unk>"))

            def later(text):
                if text.startswith((" ", "\u2581")):
                    return sp.encode("<unk>" + text)[unknown:]
                return sp.encode(text)

            # What begins with any other blank is left out: these classes do not see
            # that it will be one, and those over tokenizers do.
            texts = TEXTS + [t for t, *_ in vectors["encode"][:80]]
            for text in texts:
                if "\u2581" in text or text[:1].isspace() and text[0] != " ":
                    continue
                first = later(text if text.startswith(" ") or not text else "\u2581" + text)
                out.write(json.dumps([vectors["variant"], text, first, later(text)], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
