import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { base, key, model, run } from './cases.mjs'
import { client, user } from './openai_client.mjs'

const create = (body) => client.chat.completions.create({ model, messages: user('hello'), ...body })

await run({
  async unknown_model() {
    await assert.rejects(create({ model: 'no/such' }), OpenAI.NotFoundError)
  },

  async bad_temperature() {
    await assert.rejects(create({ temperature: 9 }), (e) => e instanceof OpenAI.BadRequestError && /temperature/i.test(e.message))
  },

  async error_before_a_stream() {
    await assert.rejects(create({ n: -1, stream: true }), OpenAI.BadRequestError)
  },

  async wrong_key() {
    const other = new OpenAI({ baseURL: base + '/v1', apiKey: 'wrong', maxRetries: 0 })
    await assert.rejects(other.models.list(), (e) => e instanceof OpenAI.AuthenticationError && e.status === 401)
  },

  async right_key() {
    assert.notEqual(key, 'any')
    await client.models.list()
  },
})
