// A model that computes, through the SDKs of OpenAI, Anthropic and Vercel: it calls their
// tools, reads what they return, and answers.
import assert from 'node:assert/strict'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import { client as messages } from './anthropic_client.mjs'
import { base, key, model, run } from './cases.mjs'
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

const cases = {
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

  cases[`ai sdk, ${name}: an object`] = async () => {
    const { object } = await generateObject({ ...body, prompt: lamp, schema: thing })
    thing.parse(object)
  }
}

await run(cases)
