import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import { base, key, model, run } from './cases.mjs'
import { client, user } from './anthropic_client.mjs'

const create = (body) => client.messages.create({ model, max_tokens: 10, messages: user('hello'), ...body })

await run({
  async unknown_model() {
    await assert.rejects(create({ model: 'no/such' }), (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === 'not_found_error' && !!e.requestID)
  },

  async no_messages() {
    await assert.rejects(create({ messages: [] }), (e) => e instanceof Anthropic.BadRequestError && /messages/.test(e.message))
  },

  async no_tokens() {
    await assert.rejects(create({ max_tokens: 0 }), (e) => e instanceof Anthropic.BadRequestError && /max_tokens/.test(e.message))
  },

  async error_before_a_stream() {
    await assert.rejects(client.messages.stream({ model: 'no/such', max_tokens: 10, messages: user('hello') }).finalMessage(), Anthropic.NotFoundError)
  },

  async prompt_too_long() {
    await assert.rejects(create({ messages: user('word '.repeat(60_000)) }), (e) => e instanceof Anthropic.BadRequestError && /prompt is too long: \d+ tokens > \d+ maximum/.test(e.message))
  },

  async wrong_key() {
    const other = new Anthropic({ baseURL: base, apiKey: 'wrong', maxRetries: 0 })
    await assert.rejects(other.messages.create({ model, max_tokens: 10, messages: user('hello') }), Anthropic.AuthenticationError)
  },

  async either_header() {
    assert.notEqual(key, 'any')
    const other = new Anthropic({ baseURL: base, authToken: key, apiKey: null, maxRetries: 0 })
    assert.equal((await other.messages.create({ model, max_tokens: 10, messages: user('hello') })).role, 'assistant')
    assert.equal((await create()).role, 'assistant')
  },
})
