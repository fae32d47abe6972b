"""An engine that has a KV cache and publishes its events on libzmq, and nothing else.

It publishes and replays as vLLM and SGLang do: a thread of its own sends
[topic, sequence, batch] on a PUB socket, keeps the newest batches, and between
two batches looks for one replay request on a ROUTER socket. The PUB socket binds
if its endpoint has a wildcard (or is ipc), and connects otherwise; both ports
are raised by the rank.

The cache is a tree of blocks with random tokens, from a seed. Commands come in
as lines of JSON, and each is answered by one line:

  {"do": "run", "batches": n}    n steps of storing and evicting, published
  {"do": "drop", "batches": n}   the same, but the batches are lost on the way
  {"do": "clear"}                drop the whole cache, and say so
  {"do": "silence", "on": bool}  leave replay requests unanswered
  {"do": "restart"}              another life: empty cache, sequence 0, same ports
  {"do": "state"}                what the cache holds, parents before children
  {"do": "stop"}

Every answer has the next sequence number as "next" and the number of blocks as
"blocks"; the first line has the addresses as "endpoint" and "replay".
"""

import argparse
import collections
import hashlib
import json
import queue
import random
import struct
import sys
import threading
import time

import msgpack
import zmq

END = (-1).to_bytes(8, "big", signed=True)


def flags():
    p = argparse.ArgumentParser()
    p.add_argument("--endpoint", default="tcp://127.0.0.1:*")
    p.add_argument("--replay", default="", help="no replay if empty")
    p.add_argument("--topic", default="")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--hwm", type=int, default=100_000)
    p.add_argument("--buffer-steps", type=int, default=10_000)
    p.add_argument("--replay-topic", action="store_true", help="replay frames have the topic, as in newer builds")
    p.add_argument("--encoding", choices=["map", "positional"], default="map")
    p.add_argument("--hashes", choices=["int", "signed", "bytes"], default="int")
    p.add_argument("--block-size", type=int, default=16)
    p.add_argument("--capacity", type=int, default=1024, help="blocks of the cache")
    p.add_argument("--events", type=int, default=4, help="events of a batch, at most")
    p.add_argument("--duplicates", type=float, default=0.02, help="share of stores of a second copy")
    p.add_argument("--seed", type=int, default=1)
    options = p.parse_args()
    options.endpoint, options.replay = raised(options.endpoint, options.rank), raised(options.replay, options.rank)
    options.binds = "*" in options.endpoint or "::" in options.endpoint or options.endpoint.startswith("ipc://")
    return options


class Block:
    def __init__(self, parent, tokens):
        self.parent, self.tokens = parent, tokens
        root = parent.digest if parent else b"root"
        self.digest = hashlib.sha256(root + b"".join(struct.pack(">I", t) for t in tokens)).digest()
        self.children, self.copies = 0, 0


class Cache:
    """A tree of blocks; what was used longest ago and has no child goes first."""

    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.blocks = collections.OrderedDict()  # digest -> Block, by last use

    def name(self, block):
        if block is None:
            return None
        match self.options.hashes:
            case "int":
                return int.from_bytes(block.digest[-8:], "big")
            case "signed":
                return int.from_bytes(block.digest[-8:], "big", signed=True)
            case "bytes":
                return block.digest

    def store(self, parent, blocks):
        fields = {
            "block_hashes": [self.name(b) for b in blocks],
            "parent_block_hash": self.name(parent),
            "token_ids": [t for b in blocks for t in b.tokens],
            "block_size": self.options.block_size,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": None,
        }
        return self.event("BlockStored", fields)

    def remove(self, blocks):
        return self.event("BlockRemoved", {"block_hashes": [self.name(b) for b in blocks], "medium": "GPU"})

    def event(self, tag, fields):
        if self.options.encoding == "positional":
            return [tag, *fields.values()]
        # Fields with their default are left out.
        return {"type": tag} | {k: v for k, v in fields.items() if v is not None or k == "parent_block_hash"}

    def touch(self, block):
        while block is not None:
            self.blocks.move_to_end(block.digest)
            block = block.parent

    def step(self):
        """Returns the events of one scheduler step."""
        events = []
        for _ in range(self.random.randint(1, self.options.events)):
            if self.blocks and self.random.random() < self.options.duplicates:
                block = self.random.choice(list(self.blocks.values()))
                block.copies += 1
                events.append(self.store(block.parent, [block]))
                continue
            parent = None
            if self.blocks and self.random.random() < 0.8:
                # The last blocks used are the likely ones to be continued.
                recent = [*self.blocks.values()][-64:]
                parent = self.random.choice(recent)
                self.touch(parent)
            first, added = parent, []
            for _ in range(self.random.randint(1, 4)):
                tokens = [self.random.randrange(150_000) for _ in range(self.options.block_size)]
                block = Block(parent, tokens)
                if parent:
                    parent.children += 1
                block.copies = 1
                self.blocks[block.digest] = block
                added.append(block)
                parent = block
            events.append(self.store(first, added))
            if gone := self.evict(set(b.digest for b in added)):
                events.append(self.remove(gone))
        return events

    def evict(self, keep):
        gone = []
        while len(self.blocks) > self.options.capacity:
            block = next((b for b in self.blocks.values() if not b.children and b.digest not in keep), None)
            if block is None:
                break
            # Each copy is removed for itself.
            gone += [block] * block.copies
            del self.blocks[block.digest]
            if block.parent:
                block.parent.children -= 1
        return gone

    def clear(self):
        self.blocks.clear()
        return [self.event("AllBlocksCleared", {})]

    def state(self):
        order, seen = [], set()
        for block in self.blocks.values():
            chain = []
            while block is not None and block.digest not in seen:
                seen.add(block.digest)
                chain.append(block)
                block = block.parent
            order += reversed(chain)
        # JSON has no bytes: a digest is named by the number in its last 8.
        number = lambda b: int.from_bytes(b.digest[-8:], "big")
        return [
            {"hash": number(b), "parent": number(b.parent) if b.parent else None, "tokens": b.tokens, "copies": b.copies}
            for b in order
        ]


def raised(endpoint, rank):
    """Returns the endpoint with its TCP port raised by the rank."""
    head, _, port = endpoint.rpartition(":")
    if not endpoint.startswith("tcp://") or not port.isdigit():
        return endpoint
    return f"{head}:{int(port) + rank}"


class Publisher(threading.Thread):
    def __init__(self, context, options):
        super().__init__(daemon=True)
        self.options = options
        self.sequence = 0
        self.queue = queue.Queue()
        self.buffer = collections.deque(maxlen=options.buffer_steps)
        self.silent, self.stopped = False, False
        self.pub = context.socket(zmq.PUB)
        self.pub.setsockopt(zmq.SNDHWM, options.hwm)
        self.pub.setsockopt(zmq.LINGER, 0)
        if options.binds:
            self.bind(self.pub, options.endpoint)
        else:
            self.pub.connect(options.endpoint)
        self.endpoint = self.pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay, self.replay_endpoint = None, ""
        if options.replay:
            self.replay = context.socket(zmq.ROUTER)
            self.replay.setsockopt(zmq.LINGER, 0)
            self.bind(self.replay, options.replay)
            self.replay_endpoint = self.replay.getsockopt_string(zmq.LAST_ENDPOINT)

    @staticmethod
    def bind(socket, endpoint):
        # libzmq closes sockets in the background, so that the port of a life
        # before this one can be taken a little longer.
        for attempt in range(200):
            try:
                return socket.bind(endpoint)
            except zmq.ZMQError as e:
                if e.errno != zmq.EADDRINUSE or attempt == 199:
                    raise
                time.sleep(0.02)

    def publish(self, events, lost=False):
        self.queue.put((events, lost))

    def run(self):
        while not self.stopped or not self.queue.empty():
            if self.replay is not None and not self.silent and self.replay.poll(0):
                self.answer()
            try:
                events, lost = self.queue.get(timeout=0.01)
            except queue.Empty:
                continue
            payload = msgpack.packb([time.monotonic(), events, self.options.rank])
            number = self.sequence.to_bytes(8, "big")
            if not lost:
                self.pub.send_multipart((self.options.topic.encode(), number, payload))
            self.buffer.append((self.sequence, payload))
            self.sequence += 1
            self.queue.task_done()
        self.pub.close()
        if self.replay is not None:
            self.replay.close()

    def answer(self):
        frames = self.replay.recv_multipart()
        if len(frames) != 3:
            return
        client, _, start = frames
        topic = (self.options.topic.encode(),) if self.options.replay_topic else ()
        for number, payload in self.buffer:
            if number >= int.from_bytes(start, "big"):
                self.replay.send_multipart((client, b"", *topic, number.to_bytes(8, "big"), payload))
        end = (b"",) if self.options.replay_topic else ()
        self.replay.send_multipart((client, b"", *end, END, b""))

    def stop(self):
        self.stopped = True
        self.join()


def main():
    options = flags()
    context = zmq.Context()
    cache, publisher = Cache(options), Publisher(context, options)
    publisher.start()

    def say(**more):
        publisher.queue.join()
        print(json.dumps(more | {"next": publisher.sequence, "blocks": len(cache.blocks)}), flush=True)

    say(endpoint=publisher.endpoint, replay=publisher.replay_endpoint)
    for line in sys.stdin:
        command = json.loads(line)
        match command["do"]:
            case "run" | "drop" as what:
                for _ in range(command["batches"]):
                    publisher.publish(cache.step(), lost=what == "drop")
                say()
            case "clear":
                publisher.publish(cache.clear())
                say()
            case "silence":
                publisher.silent = command["on"]
                say()
            case "restart":
                publisher.stop()
                # Ports that were wildcards stay what they became.
                options.endpoint, options.replay = publisher.endpoint, publisher.replay_endpoint
                options.seed += 1
                cache, publisher = Cache(options), Publisher(context, options)
                publisher.start()
                say(endpoint=publisher.endpoint, replay=publisher.replay_endpoint)
            case "state":
                say(state=cache.state())
            case "stop":
                break
            case other:
                raise SystemExit(f"unknown command {other!r}")
    publisher.stop()
    context.destroy(linger=0)


if __name__ == "__main__":
    main()
