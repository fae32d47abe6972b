"""redis-py, as LMCache's connector uses it and otherwise, against a kvstore."""

import os
import struct
import sys
import threading

import redis

PORT, MEMORY = int(sys.argv[1]), int(sys.argv[2])


def raises(kind, words, call):
    try:
        got = call()
    except kind as e:
        assert words in str(e), e
        return
    raise AssertionError(f"got {got!r}, want {kind.__name__} with {words!r}")


def commands(r):
    assert r.ping()
    assert r.set("a", b"\x00\r\n\xff") and r.get("a") == b"\x00\r\n\xff"
    assert r.set("a", "2", nx=True) is None and r.set("b", "3", xx=True) is None
    assert r.set("b", "3", ex=100) and r.mget("a", "none", "b") == [b"\x00\r\n\xff", None, b"3"]
    assert r.exists("a", "b", "none") == 2 and r.strlen("a") == 4
    assert sorted(r.scan_iter(match="[ab]", count=1)) == [b"a", b"b"] and r.keys("b*") == [b"b"]
    assert r.info()["redis_version"] == "7.0.0" and r.dbsize() == 2
    assert r.delete("a", "b", "none") == 2 and r.get("a") is None
    raises(redis.ResponseError, "unknown command", lambda: r.lpush("l", 1))
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"p{i}", str(i))
            p.get(f"p{i}")
        answers = p.execute()
    assert answers[1::2] == [str(i).encode() for i in range(1000)]
    assert r.delete(*[f"p{i}" for i in range(1000)]) == 1000


def pairs(r):
    """The order in which LMCache writes, looks up and reads a chunk."""
    key = "meta-llama/Llama-3.1-8B@1@0@{:016x}@bfloat16"
    body = os.urandom(2 << 20)
    for i in range(20):
        k = key.format(i)
        assert not r.exists(k + "metadata")
        r.set(k + "kv_bytes", body)
        r.set(k + "metadata", struct.pack("7i", len(body), 1, 3, 2, 32, 256, 1024))
    for i in range(20):
        k = key.format(i)
        assert r.exists(k + "metadata")
        assert struct.unpack("7i", r.get(k + "metadata"))[0] == len(body)
        assert r.get(k + "kv_bytes") == body
    hashes = [f"{i:016x}" for i in (0, 1, 2, 99)]
    assert r.execute_command("KV.PREFIX", "meta-llama/Llama-3.1-8B", *hashes) == 3
    # The memory is twice full: whatever is announced is there.
    n = 2 * MEMORY // len(body)
    for i in range(100, 100 + n):
        k = key.format(i)
        r.set(k + "kv_bytes", body)
        r.set(k + "metadata", b"m")
    there = 0
    for i in range(100, 100 + n):
        k = key.format(i)
        if r.exists(k + "metadata"):
            there += 1
            assert r.strlen(k + "kv_bytes") == len(body), k
    assert n // 4 < there < n * 3 // 4, (there, n)
    large = os.urandom(80 << 20)
    assert r.set("large", large) and r.get("large") == large


def threads(r):
    failed = []

    def work(n):
        try:
            for i in range(50):
                value = bytes([n]) * (100_000 + n)
                r.set(f"t{n}", value)
                assert r.get(f"t{n}") == value
        except Exception as e:  # noqa: BLE001 - reported below
            failed.append(e)

    all_threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in all_threads:
        t.start()
    for t in all_threads:
        t.join()
    assert not failed, failed


def namespaces(r):
    closed = redis.Redis(port=PORT, password="secret")
    closed.delete("shared")
    r.set("shared", "open")
    assert closed.get("shared") is None
    closed.set("shared", "closed")
    assert r.get("shared") == b"open"
    raises(redis.ResponseError, "quota", lambda: closed.set("x", bytes(65 << 20)))
    raises(redis.AuthenticationError, "invalid", lambda: redis.Redis(port=PORT, password="wrong").ping())


def retention(r):
    r.set("kept", "v")
    assert r.execute_command("KV.RETAIN", "kept", "PRIO", 90, "PIN", 60_000, "SESSION", "s") == 1
    assert r.execute_command("KV.SESSION", "CLOSE", "s") == b"idle"
    assert b"keys" in r.execute_command("KV.STATS")


for protocol in (2, 3):
    client = redis.Redis(port=PORT, protocol=protocol)
    for test in (commands, pairs, threads, namespaces, retention):
        client.delete(*client.keys("*") or ["none"])
        test(client)
        print("ok", test.__name__, "RESP", protocol)
