"""tokens.py with a cache that it tells of: requests go where their prompt is known.

The worker names its blocks as it likes, and sends the tokens with them; frontends
make of that what they compare prompts with. Here a name is a count, and nothing is
ever evicted.
"""
import asyncio
import tokens
from tokens import pb

SIZE = 16


class Worker(tokens.Worker):
    def __init__(self, *args):
        super().__init__(*args)
        self.card.block_size, self.card.hash_scheme = SIZE, "xxh3"
        self.card.features.extend(["events", "cached_tokens"])
        self.blocks, self.log, self.news = {}, [], asyncio.Condition()

    async def Generate(self, r, context):
        cached = await self.store(r.token_ids)
        async for delta in super().Generate(r, context):
            if delta.finish:
                delta.usage.cached_tokens = cached
            yield delta

    async def store(self, ids):
        """Stores a prompt, and returns how many of its tokens were known."""
        parent, cached = None, 0
        for end in range(SIZE, len(ids), SIZE):  # the last token is always computed
            key = tuple(ids[:end])
            if key in self.blocks:
                cached = end
            else:
                self.blocks[key] = len(self.blocks) + 1
                self.log.append(pb.TokenEvent(kind=pb.EVENT_KIND_STORED, hashes=[self.blocks[key]], parent=parent, token_ids=key[-SIZE:]))
            parent = self.blocks[key]
        async with self.news:
            self.news.notify_all()
        return cached

    async def Events(self, request, context):
        at = [c for c in getattr(request, "from") if c.rank == 0]
        cursor = [c for c in at if c.epoch == self.epoch and c.sequence <= len(self.log)]
        last = cursor[0].sequence if cursor else 0
        if at and not cursor:
            yield pb.EventBatch(epoch=self.epoch, gap=pb.Gap(reason="future" if at[0].epoch == self.epoch else "restart"))
        if not cursor:  # what there is, then what comes
            yield pb.EventBatch(epoch=self.epoch, snapshot=pb.Snapshot(end=False))
            last = len(self.log)
            for event in self.log[:last]:
                yield pb.EventBatch(epoch=self.epoch, token_events=pb.TokenEvents(events=[event]))
            yield pb.EventBatch(epoch=self.epoch, last=last, snapshot=pb.Snapshot(end=True))
        while True:
            for event in self.log[last:]:
                last += 1
                yield pb.EventBatch(epoch=self.epoch, first=last, last=last, token_events=pb.TokenEvents(events=[event]))
            async with self.news:
                try:
                    await asyncio.wait_for(self.news.wait(), 5)
                except asyncio.TimeoutError:
                    yield pb.EventBatch(epoch=self.epoch, last=last, mark=pb.Mark())


if __name__ == "__main__":
    tokens.run(Worker)
