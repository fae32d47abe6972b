"""Write KV event messages as engines do, with the libraries that they use.

    python3 -m venv v && v/bin/pip install -r requirements.txt
    v/bin/python engines.py > engines.txt

Every entry of the output is a name, the payloads in hexadecimal, and what they
say: lines that begin with ">" tell the events that a reader should make of
them. Keys are written as unsigned numbers, blocks as key=token,token,….
"""

import msgpack
import msgspec


def struct(name, fields, array, omit):
    """A msgspec struct of an event, as one build of an engine declares it."""
    return msgspec.defstruct(
        name,
        [(f, object) if required else (f, object, None) for f, required in fields],
        array_like=array,
        omit_defaults=omit,
        tag=True,
    )


def fields(required, optional=""):
    return [(f, True) for f in required.split()] + [(f, False) for f in optional.split()]


STORED = "block_hashes parent_block_hash token_ids block_size"

# What builds differ in: the fields of the events, whether events and messages
# are arrays or maps.
BUILDS = {
    "vllm, 2025": dict(stored=fields(STORED + " lora_id"), removed=fields("block_hashes"), array=True, rank=False),
    "vllm, with media": dict(stored=fields(STORED + " lora_id medium"), removed=fields("block_hashes medium"), array=True),
    "vllm, with adapter names": dict(stored=fields(STORED + " lora_id medium lora_name"), removed=fields("block_hashes medium"), array=True),
    "vllm, with extra keys": dict(stored=fields(STORED + " lora_id medium lora_name", "extra_keys"), removed=fields("block_hashes medium"), array=True),
    "vllm, with groups": dict(
        stored=fields(STORED + " lora_id medium lora_name", "extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window"),
        removed=fields("block_hashes medium", "group_idx"),
        array=True,
    ),
    "vllm, maps": dict(
        stored=fields(STORED + " lora_id medium lora_name", "extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window locality ownership"),
        removed=fields("block_hashes medium", "group_idx locality ownership"),
        array=False,
    ),
    "vllm, maps all the way": dict(
        stored=fields(STORED + " lora_id medium lora_name", "extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window"),
        removed=fields("block_hashes medium", "group_idx"),
        array=False,
        batch_array=False,
    ),
    "sglang, arrays": dict(stored=fields(STORED + " lora_id", "medium"), removed=fields("block_hashes", "medium"), array=True),
    "sglang, metadata": dict(stored=fields(STORED + " lora_id", "medium metadata"), removed=fields("block_hashes", "medium"), array=True),
    "sglang, maps": dict(stored=fields(STORED + " lora_id", "medium metadata component_types"), removed=fields("block_hashes", "medium"), array=False),
    "five fields": dict(stored=fields(STORED), removed=fields("block_hashes"), array=True),
}


class Build:
    def __init__(self, stored, removed, array, rank=True, batch_array=True, omit=True):
        self.names = [f for f, _ in stored], [f for f, _ in removed]
        self.stored = struct("BlockStored", stored, array, omit)
        self.removed = struct("BlockRemoved", removed, array, omit)
        self.cleared = struct("AllBlocksCleared", [], array, omit)
        batch = [("ts", float), ("events", list)] + ([("data_parallel_rank", object, None)] if rank else [])
        self.batch = msgspec.defstruct("Batch", batch, array_like=batch_array, omit_defaults=True)
        self.rank = rank

    def message(self, *events, rank=0):
        made = []
        for kind, given in events:
            names = dict(stored=self.names[0], removed=self.names[1], cleared=[])[kind]
            required = {f: None for f in names}
            made.append(getattr(self, kind)(**{f: v for f, v in {**required, **given}.items() if f in names}))
        more = {"data_parallel_rank": rank} if self.rank else {}
        return msgspec.msgpack.encode(self.batch(ts=1764460800.25, events=made, **more))


def unsigned(key):
    if isinstance(key, bytes):
        return int.from_bytes(key[-8:], "big")
    return key % 2**64


def told(blocks, parent, tier="device"):
    """What a reader should make of a store: blocks are (key, tokens)."""
    line = f"> stored {tier} {'root' if parent is None else unsigned(parent)}"
    return line + "".join(f" {unsigned(k)}=" + ",".join(map(str, t)) for k, t in blocks)


def stored(blocks, parent=None, **more):
    size = len(blocks[0][1])
    given = dict(
        block_hashes=[k for k, _ in blocks],
        parent_block_hash=parent,
        token_ids=[t for _, tokens in blocks for t in tokens],
        block_size=size,
        lora_id=None,
        medium="GPU",
    )
    return ("stored", given | more)


def removed(*keys, **more):
    return ("removed", dict(block_hashes=list(keys), medium="GPU") | more)


CLEARED = ("cleared", {})


def tokens(n, size):
    """Tokens whose numbers take one, two, three and five bytes."""
    return [(7919 * i * i + 13 * i) % 152064 if i % 3 else i % 256 for i in range(n, n + size)]


def entry(name, payloads, lines):
    print(name)
    for p in payloads:
        print("  " + p.hex())
    for line in lines:
        print("  " + line)
    print()


def histories():
    keys = {
        "unsigned": lambda i: (0x9E3779B97F4A7C15 * (i + 1)) % 2**64,
        "signed": lambda i: (0x9E3779B97F4A7C15 * (i + 1)) % 2**64 - 2**63,
        "bytes": lambda i: bytes((37 * i + j) % 256 for j in range(32)),
        "small": lambda i: i + 1,
    }
    for name, build in BUILDS.items():
        for form, key in keys.items():
            b = Build(**build)
            one = [(key(i), tokens(16 * i, 16)) for i in range(3)]
            two = [(key(i), tokens(1000 + 16 * i, 16)) for i in range(3, 8)]
            yield f"{name}, {form} keys", [
                b.message(CLEARED, stored(one)),
                b.message(stored(two, parent=one[-1][0]), removed(one[2][0])),
                b.message(stored(one[2:], parent=one[1][0]), removed(two[0][0], two[1][0])),
            ], [
                "> cleared",
                told(one, None),
                told(two, one[-1][0]),
                f"> removed device {unsigned(one[2][0])}",
                told(one[2:], one[1][0]),
                f"> removed device {unsigned(two[0][0])} {unsigned(two[1][0])}",
            ]


def main():
    for h in histories():
        entry(*h)

    block = [(7, tokens(0, 4))]
    text = told(block, None)
    maps = Build(**BUILDS["vllm, maps"])
    groups = Build(**BUILDS["vllm, with groups"])
    image = "00000000000000ff" + "0" * 48
    for name, b in ("maps", maps), ("arrays", groups):
        entry(f"main group, {name}", [b.message(stored(block, group_idx=1, kv_cache_spec_kind="full_attention"), removed(7, group_idx=1))], [text, "> removed device 7"])
        entry(f"window group, {name}", [b.message(stored(block, group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=128), removed(7, group_idx=1))], [])
        entry(f"window of an untold group, {name}", [b.message(stored(block, kv_cache_spec_kind="full_attention", kv_cache_spec_sliding_window=128))], [text])
        entry(f"adapter, {name}", [b.message(stored(block, lora_id=3, lora_name="sql", extra_keys=[("sql",)]))], [text + " lora=sql"])
        entry(f"salt, {name}", [b.message(stored(block, extra_keys=[("dynamo-cache-salt:a",)]))], [text + " salt=a"])
        entry(f"image, {name}", [b.message(stored(block, extra_keys=[(image,)]))], [text + " media=255"])
        entry(f"image with a place, {name}", [b.message(stored(block, extra_keys=[((image, -3),)]))], [text + " media=255"])
        entry(f"embeddings, {name}", [b.message(stored(block, extra_keys=[(b"\x01\x02",)]))], [])
        entry(f"host, {name}", [b.message(stored(block, medium="CPU"), removed(7, medium="CPU"))], [told(block, None, "host_pinned"), "> removed host_pinned 7"])
    entry("elsewhere", [maps.message(stored(block, locality="REMOTE"))], [])
    entry("here", [maps.message(stored(block, locality="LOCAL"))], [text])

    for name in "sglang, metadata", "sglang, maps":
        b = Build(**BUILDS[name])
        entry(f"salt, {name}", [b.message(stored(block, metadata={"cache_salt": "dynamo-cache-salt:a", "session_id": "s"}))], [text + " salt=a"])
        entry(f"session without a salt, {name}", [b.message(stored(block, metadata={"cache_salt": None, "session_id": "s"}))], [text])

    # The other library that Python has writes the same values; floats it may
    # write short.
    plain = [1764460800.25, [["BlockStored", [7], None, block[0][1], 4, None, "GPU"], ["BlockRemoved", [7], "GPU"]], 0]
    entry("msgpack", [msgpack.packb(plain)], [text, "> removed device 7"])
    entry("msgpack, short floats", [msgpack.packb(plain, use_single_float=True)], [text, "> removed device 7"])
    entry("msgpack, text as raw bytes of old", [msgpack.packb([0, [["BlockRemoved", [b"\x00" * 7 + b"\x07"], "GPU"]], 0], use_bin_type=False)], ["> removed device 7"])


main()
