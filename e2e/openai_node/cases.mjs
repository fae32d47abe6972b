// Runs cases and reports each as a line of JSON: name, ok, detail.
import assert from 'node:assert/strict'
import OpenAI from 'openai'

export const base = process.env.DYNAGO_URL
export const model = process.env.DYNAGO_MODEL
export const key = process.env.DYNAGO_KEY ?? 'any'

export const client = new OpenAI({ baseURL: base + '/v1', apiKey: key, maxRetries: 0, timeout: 60_000 })

export async function run(cases) {
  for (const [name, body] of Object.entries(cases)) {
    let detail = ''
    try {
      await body()
    } catch (e) {
      detail = String(e.stack ?? e)
    }
    console.log(JSON.stringify({ name, ok: detail === '', detail }))
  }
}

export const user = (content) => [{ role: 'user', content }]

// The sum of the gauge over all models.
export async function activeRequests() {
  const page = await (await fetch(base + '/metrics')).text()
  return page
    .split('\n')
    .filter((line) => line.startsWith('dynamo_frontend_active_requests'))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}

export async function untilIdle() {
  for (const deadline = Date.now() + 10_000; (await activeRequests()) !== 0; ) {
    assert(Date.now() < deadline, `${await activeRequests()} requests are still active`)
    await new Promise((resume) => setTimeout(resume, 20))
  }
}

export const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Tells the weather of a city.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, note: { type: 'string' } },
      required: ['city'],
    },
  },
}
export const args = '{"city": "Rome", "note": "</tool_call> is data"}'
