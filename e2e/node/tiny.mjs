// A model that computes, through the SDKs of OpenAI, Anthropic and Vercel: it calls their
// tools, reads what they return, and answers.
import assert from 'node:assert/strict'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import Anthropic from '@anthropic-ai/sdk'
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai'
import OpenAI from 'openai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import { client as messages } from './anthropic_client.mjs'
import { base, key, model, run, total, untilIdle } from './cases.mjs'
import { client as openai, user } from './openai_client.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false // stdout is for the cases

// Tools that really look something up, which nobody could guess, and what they were asked.
function lookups() {
  const known = {}
  const asked = []
  const of = (key, make) => {
    asked.push(key)
    return (known[key] ??= make())
  }
  const below = (n) => Math.floor(Math.random() * n)
  return {
    known,
    asked,
    height: ({ mountain }) => of(mountain, () => `${1000 + below(9000)} meters`),
    weather: ({ city }) => of(city, () => `cloudy, ${10 + below(30)} degrees`),
  }
}

const height = { description: 'Tells the height of a mountain.', input: z.object({ mountain: z.string() }) }
const weather = { description: 'Tells the weather of a city.', input: z.object({ city: z.string() }) }
const thing = z.object({ name: z.string().max(20), colour: z.enum(['red', 'green', 'violet']), tags: z.array(z.enum(['old', 'new'])).max(2) })
const lamp = 'The colour of the lamp is violet. What is the colour of the lamp?'

const tells = (text, value) => assert(value && text?.includes(value), `got ${JSON.stringify(text)}, want ${JSON.stringify(value)} in it`)

// What it thinks about before it answers; the thoughts are its own.
const sum = 'What is 12 plus 7?'
const thinking = { type: 'enabled', budget_tokens: 1024 }

// A call that has to be made, of some nine hundred tokens at least: long enough to leave.
const marks = {
  type: 'object', properties: { marks: { type: 'array', items: { enum: ['a'] }, minItems: 300 } },
  required: ['marks'], additionalProperties: false,
}
const long = 900
const marking = {
  chat: { model, messages: user('Go on.'), max_tokens: 1500, tools: [{ type: 'function', function: { name: 'mark', parameters: marks } }], tool_choice: 'required' },
  responses: { model, input: 'Go on.', max_output_tokens: 1500, tools: [{ type: 'function', name: 'mark', strict: true, parameters: marks }], tool_choice: 'required' },
  messages: { model, messages: user('Go on.'), max_tokens: 1500, tools: [{ name: 'mark', input_schema: marks }], tool_choice: { type: 'any' } },
}

// Leaves a stream, and then an answer that is not streamed: each is counted, and what was
// computed for it is far from its end.
async function leaves(create) {
  for (const stream of [true, false]) {
    const [left, made] = [await total('dynamo_frontend_model_cancellation_total'), await total('dynamo_frontend_output_tokens_total')]
    const controller = new AbortController()
    const pending = create(stream, { signal: controller.signal })
    if (stream) {
      let n = 0
      for await (const _ of await pending) if (++n === 20) break
    } else {
      const aborted = assert.rejects(pending, (e) => e instanceof OpenAI.APIUserAbortError || e instanceof Anthropic.APIUserAbortError)
      while ((await total('dynamo_frontend_active_requests')) === 0) await new Promise((resume) => setTimeout(resume, 5))
      controller.abort()
      await aborted
    }
    await untilIdle()
    assert.equal(await total('dynamo_frontend_model_cancellation_total'), left + 1)
    const tokens = (await total('dynamo_frontend_output_tokens_total')) - made
    assert(tokens < long, `${tokens} tokens were computed`)
  }
}

const cases = {
  async 'openai: thoughts'() {
    const body = { model, temperature: 0, messages: user(sum) }
    const whole = await openai.chat.completions.create(body)
    const { content, reasoning_content: thought } = whole.choices[0].message
    assert(thought && !/</.test(thought + content), JSON.stringify(whole))
    tells(content, '19')
    const { reasoning_tokens } = whole.usage.completion_tokens_details
    assert(reasoning_tokens > 0 && reasoning_tokens < whole.usage.completion_tokens, JSON.stringify(whole.usage))
    let [told, said] = ['', '']
    for await (const chunk of await openai.chat.completions.create({ ...body, stream: true })) {
      told += chunk.choices[0]?.delta.reasoning_content ?? ''
      said += chunk.choices[0]?.delta.content ?? ''
    }
    assert.deepEqual([told, said], [thought, content])

    const asked = { model, temperature: 0, input: sum, reasoning: { summary: 'auto' } }
    const response = await openai.responses.create(asked)
    assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'message'])
    assert.equal(response.output[0].summary[0].text, thought)
    told = ''
    for await (const event of await openai.responses.create({ ...asked, stream: true })) {
      if (event.type === 'response.reasoning_summary_text.delta') told += event.delta
    }
    assert.equal(told, thought)
  },

  async 'anthropic: thoughts'() {
    const body = { model, max_tokens: 1500, thinking, messages: user(sum) }
    const whole = await messages.messages.create(body)
    assert.deepEqual(whole.content.map((block) => block.type), ['thinking', 'text'])
    const { thinking: thought, signature } = whole.content[0]
    assert(thought && signature, JSON.stringify(whole))
    tells(whole.content[1].text, '19')
    let told = ''
    const stream = messages.messages.stream(body).on('thinking', (more) => { told += more })
    assert.equal((await stream.finalMessage()).content[0].thinking, thought)
    assert.equal(told, thought)
  },

  async 'openai: left in the middle'() {
    await leaves((stream, options) => openai.chat.completions.create({ ...marking.chat, stream }, options))
    await leaves((stream, options) => openai.responses.create({ ...marking.responses, stream }, options))
  },

  async 'anthropic: left in the middle'() {
    await leaves((stream, options) => messages.messages.create({ ...marking.messages, stream }, options))
  },

  async 'refusals'() {
    const long = 'The lamp is red. '.repeat(600)
    const tooLong = (e) => e instanceof OpenAI.BadRequestError && e.code === 'context_length_exceeded'
    await assert.rejects(openai.chat.completions.create({ model, messages: user(long) }), tooLong)
    await assert.rejects(openai.chat.completions.create({ model, messages: user(long), stream: true }), tooLong)
    await assert.rejects(openai.responses.create({ model, input: long }), tooLong)
    await assert.rejects(messages.messages.create({ model, max_tokens: 100, messages: user(long) }), (e) => e instanceof Anthropic.BadRequestError && /prompt is too long/.test(e.message))
    const response_format = { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'string', pattern: '(' } } }
    await assert.rejects(openai.chat.completions.create({ model, messages: user('Hello'), response_format }), OpenAI.BadRequestError)
    await assert.rejects(openai.chat.completions.create({ model, messages: user('Hello'), logit_bias: { 4000: 1 } }), OpenAI.BadRequestError)
  },

  async 'openai: run tools'() {
    const tools = lookups()
    const body = {
      model, temperature: 0, messages: user('What is the height of Eiger?'),
      tools: [
        zodFunction({ name: 'get_weather', description: weather.description, parameters: weather.input, function: tools.weather }),
        zodFunction({ name: 'get_height', description: height.description, parameters: height.input, function: tools.height }),
      ],
    }
    for (const stream of [false, true]) tells(await openai.chat.completions.runTools({ ...body, stream }).finalContent(), tools.known.Eiger)
    assert.deepEqual(tools.asked, ['Eiger', 'Eiger'])
  },

  async 'openai: an answer of a form'() {
    const got = await openai.chat.completions.parse({ model, temperature: 0, max_tokens: 300, messages: user(lamp), response_format: zodResponseFormat(thing, 'thing') })
    thing.parse(got.choices[0].message.parsed)
  },

  async 'openai: responses'() {
    const tools = lookups()
    const given = [{ type: 'function', name: 'get_height', description: height.description, strict: true, parameters: { type: 'object', properties: { mountain: { type: 'string' } }, required: ['mountain'], additionalProperties: false } }]
    let before
    for (const mountain of ['Eiger', 'Rigi']) {
      const first = await openai.responses.create({ model, temperature: 0, tools: given, previous_response_id: before, input: `What is the height of ${mountain}?` })
      const call = first.output.find((item) => item.type === 'function_call')
      assert.deepEqual(JSON.parse(call?.arguments), { mountain })
      const stream = await openai.responses.stream({
        model, temperature: 0, tools: given, previous_response_id: first.id,
        input: [{ type: 'function_call_output', call_id: call.call_id, output: tools.height(JSON.parse(call.arguments)) }],
      })
      const second = await stream.finalResponse()
      tells(second.output_text, tools.known[mountain])
      before = second.id
    }
  },

  async 'anthropic: the tool runner'() {
    const tools = lookups()
    const given = [{
      type: 'custom', name: 'get_height', description: height.description,
      input_schema: { type: 'object', properties: { mountain: { type: 'string' } }, required: ['mountain'] },
      parse: (text) => text, run: tools.height,
    }]
    const body = { model, max_tokens: 300, tools: given, messages: user('What is the height of Eiger?') }
    for (const stream of [false, true]) tells((await messages.beta.messages.toolRunner({ ...body, stream }).runUntilDone()).content.at(-1).text, tools.known.Eiger)
    assert.deepEqual(tools.asked, ['Eiger', 'Eiger'])
  },
}

const settings = { baseURL: base + '/v1', apiKey: key }
const providers = {
  openai_responses: createOpenAI(settings).responses(model),
  openai_chat: createOpenAI(settings).chat(model),
  anthropic: createAnthropic(settings)(model),
  openai_compatible: createOpenAICompatible({ name: 'dynago', supportsStructuredOutputs: true, ...settings })(model),
}
for (const [name, provider] of Object.entries(providers)) {
  const body = { model: provider, temperature: 0, maxRetries: 0, maxOutputTokens: 300 }

  // Two turns; in each the SDK calls the tool, and sends back what it knows of the step.
  cases[`ai sdk, ${name}: tools in steps`] = async () => {
    const { known, asked, ...run } = lookups()
    const tools = {
      get_weather: tool({ description: weather.description, inputSchema: weather.input, execute: run.weather }),
      get_height: tool({ description: height.description, inputSchema: height.input, execute: run.height }),
    }
    const said = []
    for (const [question, about] of [['What is the height of Eiger?', 'Eiger'], ['What is the weather in Lisbon?', 'Lisbon']]) {
      said.push({ role: 'user', content: question })
      const result = await generateText({ ...body, tools, messages: said, stopWhen: stepCountIs(4) })
      tells(result.text, known[about])
      assert.deepEqual(result.steps.map((s) => s.finishReason), ['tool-calls', 'stop'])
      said.push(...result.response.messages)
    }
    const stream = streamText({ ...body, tools, messages: [...said, { role: 'user', content: 'What is the height of Titlis?' }], stopWhen: stepCountIs(4), onError: ({ error }) => { throw error } })
    let text = ''
    for await (const part of stream.textStream) text += part
    tells(text, known.Titlis)
    assert.deepEqual(asked, ['Eiger', 'Lisbon', 'Titlis'])
  }

  // What chat completions tell of thoughts is no part of OpenAI's own API.
  if (name !== 'openai_chat') {
    cases[`ai sdk, ${name}: thoughts`] = async () => {
      const providerOptions = { openai: { reasoningSummary: 'auto', forceReasoning: true } }
      const { reasoningText, text } = await generateText({ ...body, providerOptions, prompt: sum })
      assert(reasoningText, JSON.stringify({ reasoningText, text }))
      tells(text, '19')
      const parts = { 'reasoning-delta': '', 'text-delta': '' }
      for await (const part of streamText({ ...body, providerOptions, prompt: sum }).fullStream) {
        if (part.type in parts) parts[part.type] += part.text
      }
      assert.deepEqual(parts, { 'reasoning-delta': reasoningText, 'text-delta': text })
    }
  }

  cases[`ai sdk, ${name}: an object`] = async () => {
    const { object } = await generateObject({ ...body, prompt: lamp, schema: thing })
    thing.parse(object)
  }
}

await run(cases)
