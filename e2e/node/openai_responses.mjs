import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { args, assertReused, model, run, said, untilIdle, watched, weatherSchema } from './cases.mjs'
import { client } from './openai_client.mjs'

const create = (body, options) => client.responses.create({ model, ...body }, options)

const weather = { type: 'function', name: 'get_weather', description: 'Tells the weather of a city.', parameters: weatherSchema, strict: false }
const asked = { input: 'weather in Rome?', tools: [weather], reasoning: { summary: 'auto' } }

await run({
  async text() {
    const r = await create({ input: 'hello' })
    assert.equal(r.object, 'response')
    assert.equal(r.status, 'completed')
    assert.equal(r.output_text, 'Hello! How can I help?')
    assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens)
  },

  async thought_text_and_call() {
    const r = await create(asked)
    assert.deepEqual(r.output.map((i) => i.type), ['reasoning', 'message', 'function_call'])
    assert.equal(r.output[0].summary[0].text, 'A tool knows the weather.')
    assert.equal(r.output[2].arguments, args)
    assert.match(r.output[2].call_id, /^call_/)
  },

  // The SDK puts the answer together from the events.
  async the_stream_is_the_answer() {
    for (const body of [{ input: 'hello' }, asked, { input: 'both cities', tools: [weather] }]) {
      const unary = await create(body)
      const stream = client.responses.stream({ model, ...body })
      let events = 0
      for await (const event of stream) assert.equal(event.sequence_number, events++)
      assert.deepEqual(said(await stream.finalResponse(), 'cached_tokens'), said(unary, 'cached_tokens'))
    }
  },

  async a_tool_in_a_loop() {
    const watch = watched()
    const own = client.withOptions({ fetch: watch.fetch })
    const input = [{ role: 'user', content: 'weather in Rome?' }]
    const first = await own.responses.create({ model, ...asked, input, store: false, include: ['reasoning.encrypted_content'] })
    assert(first.output[0].encrypted_content)
    const call = first.output.find((i) => i.type === 'function_call')
    input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: '21 degrees' })
    const second = await own.responses.create({ model, ...asked, input, store: false })
    assert.equal(second.output_text, 'It says: 21 degrees')
    assertReused(watch.told)
  },

  async going_on_from_a_stored_response() {
    const first = await create(asked)
    const call = first.output.find((i) => i.type === 'function_call')
    const second = await create({
      ...asked, previous_response_id: first.id, input: [{ type: 'function_call_output', call_id: call.call_id, output: '22 degrees' }],
    })
    assert.equal(second.output_text, 'It says: 22 degrees')
    assert.equal(second.previous_response_id, first.id)
    assert.deepEqual(said((await client.responses.retrieve(first.id)).output), said(first.output))
    const items = []
    for await (const item of client.responses.inputItems.list(second.id, { order: 'asc' })) items.push(item.type)
    assert.equal(items.at(-1), 'function_call_output')
    await client.responses.delete(first.id)
    await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError)
    await assert.rejects(create({ ...asked, previous_response_id: first.id }), OpenAI.APIError)
  },

  async a_stored_stream_is_told_again() {
    const told = []
    let id
    for await (const event of await create({ ...asked, stream: true })) {
      id ??= event.response.id
      told.push(event.type)
    }
    const again = []
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: 1 })) again.push(event.type)
    assert.deepEqual(again, told.slice(2))
  },

  async structured_output() {
    const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }
    const r = await create({ input: 'a city as JSON', text: { format: { type: 'json_schema', name: 'city', schema, strict: true } } })
    assert.equal(typeof JSON.parse(r.output_text).city, 'string')
  },

  async free_text_for_a_tool() {
    const tools = [{ type: 'custom', name: 'run_code', description: 'Runs it.' }]
    const r = await create({ input: 'some code', tools })
    const call = r.output.find((i) => i.type === 'custom_tool_call')
    assert.equal(call.input, 'print("<b>")\n')
    const stream = client.responses.stream({ model, input: 'some code', tools })
    let input = ''
    for await (const event of stream) if (event.type === 'response.custom_tool_call_input.delta') input += event.delta
    assert.equal(input, call.input)
    assert.deepEqual(said(await stream.finalResponse()).output, said(r).output)
  },

  async counted_before() {
    const counted = await client.responses.inputTokens.count({ model, input: 'hello' })
    assert.equal(counted.input_tokens, (await create({ input: 'hello' })).usage.input_tokens)
  },

  async in_the_background() {
    const begun = await create({ input: 'count slowly', background: true })
    assert(['queued', 'in_progress'].includes(begun.status), begun.status)
    const cancelled = await client.responses.cancel(begun.id)
    assert.equal(cancelled.status, 'cancelled')
    await untilIdle()
  },

  async hosted_tools_are_passed_over() {
    const r = await create({ input: 'hello', tools: [{ type: 'web_search' }] })
    assert.equal(r.output_text, 'Hello! How can I help?')
    assert.equal(r.tools[0].type, 'web_search')
  },

  async errors() {
    await assert.rejects(create({ model: 'no/such', input: 'hello' }), OpenAI.NotFoundError)
    await assert.rejects(create({ input: 'hello', temperature: 9 }), (e) => e instanceof OpenAI.BadRequestError && /temperature/i.test(e.message))
    await assert.rejects(create({ input: 'hello', stream: true, previous_response_id: 'resp_none' }), OpenAI.APIError)
    await assert.rejects(create({ input: [{ type: 'item_reference', id: 'msg_none' }] }), OpenAI.NotFoundError)
  },

  async cancelled_in_the_middle() {
    const stream = await create({ input: 'go on endlessly', stream: true })
    for await (const event of stream) if (event.type === 'response.output_text.delta') break
    stream.controller.abort()
    await untilIdle()
  },
})
