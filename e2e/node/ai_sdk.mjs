// The Vercel AI SDK, with each of its providers that can speak to a server here.
import assert from 'node:assert/strict'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateObject, generateText, stepCountIs, streamText, tool } from 'ai'
import { z } from 'zod'
import { assertReused, base, key, model, run, untilIdle, watched } from './cases.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false // stdout is for the cases

const settings = { baseURL: base + '/v1', apiKey: key }
const openai = (more) => createOpenAI({ ...settings, ...more })
const anthropic = (more) => createAnthropic({ ...settings, ...more })
const compatible = (more) => createOpenAICompatible({ name: 'dynago', includeUsage: true, supportsStructuredOutputs: true, ...settings, ...more })

const providers = {
  openai_responses: { of: (id, more) => openai(more).responses(id), thinks: { openai: { reasoningSummary: 'auto', forceReasoning: true } } },
  openai_responses_stateless: { of: (id, more) => openai(more).responses(id), thinks: { openai: { reasoningSummary: 'auto', forceReasoning: true, store: false, include: ['reasoning.encrypted_content'] } } },
  openai_chat: { of: (id, more) => openai(more).chat(id), hides: true }, // thoughts
  anthropic: { of: (id, more) => anthropic(more)(id), thinks: { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } } },
  openai_compatible: { of: (id, more) => compatible(more)(id) },
}

// tools whose results are known, and what they were asked.
function withTools() {
  const asked = []
  const get_weather = tool({
    description: 'Tells the weather of a city.',
    inputSchema: z.object({ city: z.string(), note: z.string().optional() }),
    execute: (input) => {
      asked.push(input.city)
      return '21 degrees'
    },
  })
  return { asked, tools: { get_weather } }
}

const cases = {}
for (const [name, p] of Object.entries(providers)) {
  const settings = { model: p.of(model), maxRetries: 0, providerOptions: p.thinks }

  cases[`${name}: text`] = async () => {
    const { text, finishReason, usage } = await generateText({ ...settings, prompt: 'hello' })
    assert.deepEqual([text, finishReason], ['Hello! How can I help?', 'stop'])
    assert(usage.inputTokens > 0 && usage.outputTokens > 0)
  }

  cases[`${name}: a stream`] = async () => {
    const unary = await generateText({ ...settings, prompt: 'hello' })
    const stream = streamText({ ...settings, prompt: 'hello', onError: ({ error }) => { throw error } })
    let text = ''
    for await (const part of stream.textStream) text += part
    assert.equal(text, unary.text)
    assert.equal(await stream.finishReason, 'stop')
    assert.equal((await stream.usage).outputTokens, unary.usage.outputTokens)
  }

  // The SDK calls the tool, and sends back what it knows of the first step.
  for (const streamed of [false, true]) {
    cases[`${name}: tools in a loop${streamed ? ', streamed' : ''}`] = async () => {
      const { asked, tools } = withTools()
      const watch = watched()
      const body = { ...settings, model: p.of(model, { fetch: watch.fetch }), prompt: 'weather in Rome?', tools, stopWhen: stepCountIs(4) }
      let result
      if (streamed) {
        const stream = streamText({ ...body, onError: ({ error }) => { throw error } })
        for await (const part of stream.fullStream) assert.notEqual(part.type, 'error', String(part.error))
        result = { text: await stream.text, steps: await stream.steps }
      } else {
        result = await generateText(body)
      }
      assert.deepEqual(asked, ['Rome'])
      assert.equal(result.text, 'It says: 21 degrees')
      assert.deepEqual(result.steps.map((s) => s.finishReason), ['tool-calls', 'stop'])
      if (p.hides) return
      assert.equal(result.steps[0].reasoningText, 'A tool knows the weather.')
      assertReused(watch.told)
    }
  }

  cases[`${name}: a conversation goes on`] = async () => {
    const { tools } = withTools()
    const messages = [{ role: 'user', content: 'weather in Rome?' }]
    const first = await generateText({ ...settings, messages, tools, stopWhen: stepCountIs(4) })
    messages.push(...first.response.messages, { role: 'user', content: 'hello' })
    const second = await generateText({ ...settings, messages, tools })
    assert.equal(second.text, 'Hello! How can I help?')
  }

  cases[`${name}: an object`] = async () => {
    const { object } = await generateObject({ ...settings, providerOptions: undefined, prompt: 'a city as JSON', schema: z.object({ city: z.string() }) })
    assert.equal(typeof object.city, 'string')
  }

  cases[`${name}: errors`] = async () => {
    await assert.rejects(generateText({ model: p.of('no/such'), prompt: 'hello', maxRetries: 0 }), (e) => APICallError.isInstance(e) && e.statusCode === 404 && /no\/such/.test(e.message))
  }

  cases[`${name}: cancelled`] = async () => {
    const controller = new AbortController()
    const stream = streamText({ ...settings, prompt: 'go on endlessly', abortSignal: controller.signal, onError() {} })
    for await (const part of stream.textStream) if (part) break
    controller.abort()
    await untilIdle()
  }
}

await run(cases)
