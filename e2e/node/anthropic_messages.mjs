import assert from 'node:assert/strict'
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema'
import { args, assertReused, model, run, said, watched, weatherSchema } from './cases.mjs'
import { client, user, weather } from './anthropic_client.mjs'

const create = (body) => client.messages.create({ model, max_tokens: 500, ...body })
const asked = { messages: user('weather in Rome?'), tools: [weather], thinking: { type: 'enabled', budget_tokens: 1024 }, max_tokens: 2048 }

// What was cached is told in three members, which differ between two requests.
const stripped = (m) => said(m, 'input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens', 'cache_creation')

await run({
  async models() {
    const ids = []
    for await (const m of client.models.list()) {
      assert.equal(m.type, 'model')
      ids.push(m.id)
    }
    assert(ids.includes(model), ids.join())
    assert.equal((await client.models.retrieve(model)).id, model)
  },

  async text() {
    const m = await create({ messages: user('hello'), system: 'Be brief.' })
    assert.equal(m.type, 'message')
    assert.deepEqual(m.content.map((b) => [b.type, b.text]), [['text', 'Hello! How can I help?']])
    assert.equal(m.stop_reason, 'end_turn')
    assert(m.usage.input_tokens + m.usage.cache_read_input_tokens > 0 && m.usage.output_tokens > 0)
  },

  async thought_text_and_call() {
    const m = await create(asked)
    assert.deepEqual(m.content.map((b) => b.type), ['thinking', 'text', 'tool_use'])
    assert.equal(m.content[0].thinking, 'A tool knows the weather.')
    assert(m.content[0].signature)
    assert.deepEqual(m.content[2].input, JSON.parse(args))
    assert.match(m.content[2].id, /^toolu_/)
    assert.equal(m.stop_reason, 'tool_use')
  },

  // The SDK puts the answer together from the events.
  async the_stream_is_the_answer() {
    for (const body of [{ messages: user('hello') }, asked, { messages: user('both cities'), tools: [weather] }, { messages: user('hello'), max_tokens: 3 }]) {
      const unary = await create(body)
      const stream = client.messages.stream({ model, max_tokens: 500, ...body })
      assert.deepEqual(stripped(await stream.finalMessage()), stripped(unary))
    }
  },

  async a_tool_in_a_loop() {
    const watch = watched()
    const own = client.withOptions({ fetch: watch.fetch })
    const messages = user('weather in Rome?')
    const first = await own.messages.create({ model, ...asked, messages })
    const call = first.content.find((b) => b.type === 'tool_use')
    messages.push(
      { role: 'assistant', content: first.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: '21 degrees' }] }] },
    )
    const second = await own.messages.create({ model, ...asked, messages })
    assert.equal(second.content.at(-1).text, 'It says: 21 degrees')
    assert.equal(second.stop_reason, 'end_turn')
    assertReused(watch.told)
  },

  // The SDK's own loop, on the beta route.
  async the_runner_of_tools() {
    let asked
    const tool = betaTool({
      name: 'get_weather', description: 'Tells the weather of a city.', inputSchema: weatherSchema,
      run: (input) => {
        asked = input
        return '23 degrees'
      },
    })
    const final = await client.beta.messages.toolRunner({ model, max_tokens: 500, messages: user('weather in Rome?'), tools: [tool] })
    assert.equal(final.content.at(-1).text, 'It says: 23 degrees')
    assert.equal(asked.city, 'Rome')
  },

  async the_beta_route() {
    const m = await client.beta.messages.create({
      model, max_tokens: 500, messages: user('hello'), betas: ['interleaved-thinking-2025-05-14', 'unheard-of-2030-01-01'],
      context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    })
    assert.equal(m.content.at(-1).text, 'Hello! How can I help?')
  },

  async counted_before() {
    const { input_tokens } = await client.messages.countTokens({ model, messages: user('hello'), tools: [weather], system: 'Be brief.' })
    const { usage } = await create({ messages: user('hello'), tools: [weather], system: 'Be brief.' })
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens)
  },

  async length() {
    const m = await create({ messages: user('say something'), max_tokens: 5 })
    assert.equal(m.stop_reason, 'max_tokens')
    assert.equal(m.usage.output_tokens, 5)
  },

  async stop_sequence() {
    const m = await create({ messages: user('hello'), stop_sequences: ['can I'] })
    assert.deepEqual([m.stop_reason, m.stop_sequence, m.content[0].text], ['stop_sequence', 'can I', 'Hello! How '])
  },

  async tool_choice() {
    const none = await create({ messages: user('weather in Rome?'), tools: [weather], tool_choice: { type: 'none' } })
    assert(none.content.every((b) => b.type !== 'tool_use'))
    const one = await create({ messages: user('both cities'), tools: [weather], tool_choice: { type: 'auto', disable_parallel_tool_use: true } })
    assert.equal(one.content.filter((b) => b.type === 'tool_use').length, 1)
  },

  async structured_output() {
    const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }
    const m = await create({ messages: user('a city as JSON'), output_config: { format: { type: 'json_schema', schema } } })
    assert.equal(typeof JSON.parse(m.content.at(-1).text).city, 'string')
  },

  async an_error_of_a_tool() {
    const m = await create({
      tools: [weather],
      messages: [
        ...user('weather in Rome?'),
        { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_foreign', name: 'get_weather', input: { city: 'Rome' } }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_foreign', content: 'no signal', is_error: true }] },
      ],
    })
    assert.equal(m.content.at(-1).text, 'It says: no signal')
  },
})
