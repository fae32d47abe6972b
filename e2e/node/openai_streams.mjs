import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { activeRequests, model, run, untilIdle } from './cases.mjs'
import { client, user } from './openai_client.mjs'

const create = (body, options) => client.chat.completions.create({ model, stream: true, ...body }, options)

await run({
  async cancelled_in_the_middle() {
    const stream = await create({ messages: user('go on endlessly') })
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content) break
    }
    stream.controller.abort()
    await untilIdle()
  },

  async cancelled_by_a_signal() {
    const controller = new AbortController()
    const pending = create({ messages: user('go on endlessly'), stream: false }, { signal: controller.signal })
    while ((await activeRequests()) === 0) await new Promise((resume) => setTimeout(resume, 20))
    controller.abort()
    await assert.rejects(pending, OpenAI.APIUserAbortError)
    await untilIdle()
  },

  async two_hundred_streams() {
    const answers = await Promise.all(
      Array.from({ length: 200 }, async () => {
        let text = '', finish
        for await (const chunk of await create({ messages: user('count slowly') })) {
          text += chunk.choices[0]?.delta.content ?? ''
          finish = chunk.choices[0]?.finish_reason ?? finish
        }
        return `${finish}: ${text}`
      }),
    )
    assert.equal(new Set(answers).size, 1)
    assert.match(answers[0], /^stop: one two .* done$/)
    await untilIdle()
  },
})
