"""LMCache's native client of Redis, as its resp:// connectors use it, against a
kvstore. It is loaded without LMCache itself, which would want PyTorch."""

import importlib.util
import os
import select
import sys

PORT = int(sys.argv[1])
spec = importlib.util.spec_from_file_location("lmcache_redis", sys.argv[2])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)


class Client:
    def __init__(self, password=""):
        self.native = native.LMCacheRedisClient("127.0.0.1", PORT, 4, "", password)

    def wait(self, job):
        """The flags of a job's answer; other jobs are not in flight."""
        done = []
        while not done:
            assert select.select([self.native.event_fd()], [], [], 20)[0], "no answer"
            done = self.native.drain_completions()
        (number, ok, error, flags), = done
        assert int(number) == int(job)
        if not ok:
            raise RuntimeError(error)
        return flags and [bool(f) for f in flags]

    def set(self, keys, values):
        return self.wait(self.native.submit_batch_set(keys, [memoryview(v) for v in values]))

    def get(self, keys, buffers):
        return self.wait(self.native.submit_batch_get(keys, [memoryview(b) for b in buffers]))

    def exists(self, keys):
        return self.wait(self.native.submit_batch_exists(keys))


SIZE = 1 << 20
keys = [f"org/model@1@0@{i:016x}@bfloat16" for i in range(32)]
values = [bytearray(os.urandom(SIZE)) for _ in keys]
client = Client()
assert client.exists(keys[:2]) == [False, False]
client.set(keys, values)
assert client.exists([keys[0], "none", keys[31]]) == [True, False, True]
got = [bytearray(SIZE) for _ in keys]
client.get(keys, got)
assert got == values
# It never asks for a key that is not there: it would wait for the rest of the
# answer, of Redis as well. That is what leases are for.
client.native.close()

closed = Client("secret")
assert closed.exists(keys[:1]) == [False]
closed.set(keys[:1], values[1:2])
closed.get(keys[:1], got[:1])
assert got[0] == values[1]
closed.native.close()
print("ok LMCache's native client")
