"""LMCache's own connectors for Redis, over tensors, against a kvstore.

Arguments: the port of the store, and how many bytes of memory it has.
"""

import asyncio
import os
import sys
import threading

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.connector import CreateConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

PORT, MEMORY = int(sys.argv[1]), int(sys.argv[2])
LAYERS, CHUNK, HEADS, HEAD = 8, 256, 4, 64


def key(i, model="org/model"):
    return CacheEngineKey(model, 1, 0, 0xABC000 + i, torch.bfloat16)


class Engine:
    """As much of LMCache's engine as its connectors want."""

    def __init__(self, scheme, extra, password=""):
        user = f":{password}@" if password and scheme == "redis" else ""
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK, local_cpu=False, max_local_cpu_size=0.1,
            remote_url=f"{scheme}://{user}127.0.0.1:{PORT}", remote_serde="naive", extra_config=extra,
            save_unfull_chunk=False,
        )
        metadata = LMCacheMetadata("org/model", 1, 1, 0, 0, torch.bfloat16, (LAYERS, 2, CHUNK, HEADS, HEAD))
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.cpu = LocalCPUBackend(config, metadata, "cpu")
        self.connector = CreateConnector(config.remote_url, self.loop, self.cpu, config, metadata)
        self.layout = self.connector.getWrappedConnector()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def chunk(self, i):
        """Memory with the numbers of chunk i."""
        c = self.layout
        obj = self.cpu.allocate(c.meta_shapes, c.meta_dtypes, c.meta_fmt)
        data = torch.frombuffer(obj.byte_array, dtype=torch.int32)
        data.copy_(torch.arange(data.numel(), dtype=torch.int32) * 7 + i)
        return obj

    def same(self, i, obj):
        want = self.chunk(i)
        equal = bytes(want.byte_array) == bytes(obj.byte_array)
        want.ref_count_down()
        obj.ref_count_down()
        return equal


def store_and_load(e, first):
    run, c = e.run, e.connector
    keys = [key(first + i) for i in range(8)]
    objs = [e.chunk(first + i) for i in range(8)]
    assert not run(c.exists(keys[0])) and not c.exists_sync(keys[0])
    run(c.put(keys[0], objs[0]))
    run(c.batched_put(keys[1:], objs[1:]))
    for obj in objs:
        obj.ref_count_down()
    missing = key(first + 100)
    assert run(c.exists(keys[0])) and c.exists_sync(keys[7]) and not run(c.exists(missing))
    assert run(c.batched_async_contains("lookup", [*keys[:5], missing, keys[5]])) == 5
    assert e.same(first, run(c.get(keys[0])))
    for i, obj in enumerate(run(c.batched_get_non_blocking("lookup", keys))):
        assert e.same(first + i, obj), i


def overflow(e, first):
    """What is told to be there is there and right, also when the store is full."""
    run, c = e.run, e.connector
    n = 2 * MEMORY // e.layout.full_chunk_size_bytes
    for i in range(n):
        obj = e.chunk(first + i)
        run(c.put(key(first + i), obj))
        obj.ref_count_down()
    there = [i for i in range(n) if run(c.exists(key(first + i)))]
    assert n // 4 < len(there) < n, (n, len(there))
    for i in there:
        assert e.same(first + i, run(c.get(key(first + i)))), i


for scheme, extra in (("redis", {}), ("resp", {"save_chunk_meta": False, "resp_num_threads": 4})):
    engine = Engine(scheme, extra)
    for test in (store_and_load, overflow):
        test(engine, 1000 * (scheme == "resp"))
        print("ok", scheme, test.__name__, flush=True)

secret = Engine("redis", {}, "secret")
assert not secret.run(secret.connector.exists(key(0)))
print("ok redis with a password", flush=True)
os._exit(0)
