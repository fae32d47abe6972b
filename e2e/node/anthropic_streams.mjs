import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import { activeRequests, model, run, untilIdle } from './cases.mjs'
import { client, user, weather } from './anthropic_client.mjs'

const endless = { model, max_tokens: 500, messages: user('go on endlessly') }

await run({
  async cancelled_in_the_middle() {
    const stream = client.messages.stream(endless)
    await new Promise((resolve) => stream.once('text', resolve))
    assert.equal(await activeRequests(), 1)
    stream.abort()
    await assert.rejects(stream.done(), Anthropic.APIUserAbortError)
    await untilIdle()
  },

  async cancelled_by_a_signal() {
    const controller = new AbortController()
    const pending = client.messages.create(endless, { signal: controller.signal })
    while ((await activeRequests()) === 0) await new Promise((resume) => setTimeout(resume, 20))
    controller.abort()
    await assert.rejects(pending, Anthropic.APIUserAbortError)
    await untilIdle()
  },

  // A call is closed before the next one begins.
  async calls_one_after_another() {
    const order = []
    for await (const e of await client.messages.create({ model, max_tokens: 500, messages: user('both cities'), tools: [weather], stream: true })) {
      if (e.type.startsWith('content_block')) order.push(`${e.type.slice(14)} ${e.index}`)
    }
    assert.deepEqual([...new Set(order)], ['start 0', 'delta 0', 'stop 0', 'start 1', 'delta 1', 'stop 1'])
  },

  async a_hundred_streams() {
    const answers = await Promise.all(
      Array.from({ length: 100 }, async () => {
        const m = await client.messages.stream({ model, max_tokens: 500, messages: user('count slowly') }).finalMessage()
        return `${m.stop_reason}: ${m.content[0].text}`
      }),
    )
    assert.equal(new Set(answers).size, 1)
    assert.match(answers[0], /^end_turn: one two .* done$/)
    await untilIdle()
  },
})
