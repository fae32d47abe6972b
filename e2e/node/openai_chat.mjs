import assert from 'node:assert/strict'
import { args, model, run } from './cases.mjs'
import { client, user, weather } from './openai_client.mjs'

const create = (body) => client.chat.completions.create({ model, ...body })

await run({
  async models() {
    const ids = []
    for await (const m of client.models.list()) ids.push(m.id)
    assert(ids.includes(model), ids.join())
  },

  async chat() {
    const r = await create({ messages: user('hello') })
    assert.equal(r.object, 'chat.completion')
    assert.equal(r.choices[0].message.content, 'Hello! How can I help?')
    assert.equal(r.choices[0].finish_reason, 'stop')
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
  },

  async chat_streamed() {
    const unary = await create({ messages: user('hello') })
    let text = '', finish, usage
    for await (const chunk of await create({ messages: user('hello'), stream: true, stream_options: { include_usage: true } })) {
      usage = chunk.usage ?? usage
      text += chunk.choices[0]?.delta.content ?? ''
      finish = chunk.choices[0]?.finish_reason ?? finish
    }
    assert.equal(text, unary.choices[0].message.content)
    assert.equal(finish, 'stop')
    assert.equal(usage.completion_tokens, unary.usage.completion_tokens)
    assert.equal(usage.prompt_tokens, unary.usage.prompt_tokens)
  },

  async choices() {
    const r = await create({ messages: user('say something'), n: 2, max_tokens: 8 })
    assert.deepEqual(r.choices.map((c) => c.index), [0, 1])
    assert.equal(r.usage.completion_tokens, 16)
  },

  async logprobs() {
    const r = await create({ messages: user('hello'), logprobs: true, top_logprobs: 2 })
    const content = r.choices[0].logprobs.content
    const bytes = content.flatMap((t) => t.bytes)
    assert.equal(Buffer.from(bytes).toString(), r.choices[0].message.content)
    for (const t of content) assert(t.logprob <= 0 && t.top_logprobs.length === 2)
  },

  async completions() {
    const unary = await client.completions.create({ model, prompt: 'hello', max_tokens: 6, seed: 1 })
    let text = ''
    for await (const chunk of await client.completions.create({ model, prompt: 'hello', max_tokens: 6, seed: 1, stream: true })) {
      text += chunk.choices[0]?.text ?? ''
    }
    assert(text.length > 0)
    assert.equal(text, unary.choices[0].text)
  },

  async tools() {
    const r = await create({ messages: user('weather in Rome?'), tools: [weather] })
    assert.equal(r.choices[0].finish_reason, 'tool_calls')
    const [call] = r.choices[0].message.tool_calls
    assert.match(call.id, /^call_/)
    assert.deepEqual(call.function, { name: 'get_weather', arguments: args })
    assert.equal(r.choices[0].message.reasoning_content, 'A tool knows the weather.')
  },

  async tools_streamed() {
    let name = '', got = '', finish
    for await (const chunk of await create({ messages: user('weather in Rome?'), tools: [weather], stream: true })) {
      finish = chunk.choices[0]?.finish_reason ?? finish
      for (const t of chunk.choices[0]?.delta.tool_calls ?? []) {
        assert.equal(t.index, 0)
        name += t.function.name ?? ''
        got += t.function.arguments ?? ''
      }
    }
    assert.deepEqual([name, got, finish], ['get_weather', args, 'tool_calls'])
  },

  // The SDK's own loop calls the function and asks again.
  async run_tools() {
    let asked
    const runner = client.chat.completions.runTools({
      model,
      messages: user('weather in Rome?'),
      tools: [{
        type: 'function',
        function: {
          ...weather.function,
          parse: JSON.parse,
          function: (a) => {
            asked = a
            return '21 degrees'
          },
        },
      }],
    })
    assert.equal(await runner.finalContent(), 'It says: 21 degrees')
    assert.equal(asked.city, 'Rome')
  },

  async stream_helper() {
    const final = await client.chat.completions.stream({ model, messages: user('hello') }).finalChatCompletion()
    assert.equal(final.choices[0].message.content, 'Hello! How can I help?')
  },
})
