// What answers carry for clients that ask by nvext, as the official SDKs see it.
import assert from 'node:assert/strict'
import { client as anthropic } from './anthropic_client.mjs'
import { model, run } from './cases.mjs'
import { client as openai, user, weather } from './openai_client.mjs'

const nvext = { extra_fields: ['worker_id', 'timing', 'completion_token_ids', 'stop_reason'] }
const chat = { model, messages: user('hello'), stop: ['can I'], nvext }

function complete(ext, stop = 'can I') {
  assert.equal(ext.worker_id.prefill_worker_id, ext.worker_id.decode_worker_id)
  assert(Number.isSafeInteger(ext.worker_id.decode_worker_id))
  assert(ext.timing.ttft_ms <= ext.timing.total_time_ms)
  assert(ext.completion_token_ids.length > 0)
  assert.equal(ext.stop_reason ?? null, stop)
}

// The members of all chunks, added up.
async function added(stream) {
  const ids = []
  let ext = {}
  for await (const chunk of stream) {
    ids.push(...(chunk.nvext?.completion_token_ids ?? []))
    ext = { ...ext, ...chunk.nvext }
  }
  return { ...ext, completion_token_ids: ids }
}

await run({
  async chat() {
    complete((await openai.chat.completions.create(chat)).nvext)
  },

  async chat_streamed() {
    complete(await added(await openai.chat.completions.create({ ...chat, stream: true })))
  },

  // The SDK's own accumulator must take the chunks of thoughts and calls.
  async chat_helper() {
    const asked = { model, messages: user('weather in Rome?'), tools: [weather], nvext }
    const r = await openai.chat.completions.stream(asked).finalChatCompletion()
    assert.equal(r.choices[0].message.tool_calls[0].function.name, 'get_weather')
  },

  async responses() {
    const asked = { model, input: 'hello', nvext }
    complete((await openai.responses.create(asked)).nvext, null)
    complete((await openai.responses.stream(asked).finalResponse()).nvext, null)
  },

  async messages() {
    const asked = { model, max_tokens: 100, messages: user('hello'), stop_sequences: ['can I'], nvext }
    complete((await anthropic.messages.create(asked)).nvext)
    const ends = []
    const stream = anthropic.messages.stream(asked)
    for await (const event of stream) {
      if (event.type === 'message_delta') ends.push(event.nvext)
      else assert.equal(event.nvext, undefined)
    }
    assert.equal(ends.length, 1)
    complete(ends[0])
    assert.equal((await stream.finalMessage()).stop_sequence, 'can I')
  },
})
