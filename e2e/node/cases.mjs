// Runs cases and reports each as a line of JSON: name, ok, detail.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

export const base = process.env.DYNAGO_URL
export const model = process.env.DYNAGO_MODEL
export const key = process.env.DYNAGO_KEY ?? 'any'

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

// The sum of a metric over all its labels.
export async function total(metric) {
  const page = await (await fetch(base + '/metrics')).text()
  return page
    .split('\n')
    .filter((line) => line.startsWith(metric))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}

export const activeRequests = () => total('dynamo_frontend_active_requests')

export async function untilIdle() {
  for (const deadline = Date.now() + 10_000; (await activeRequests()) !== 0; ) {
    assert(Date.now() < deadline, `${await activeRequests()} requests are still active`)
    await new Promise((resume) => setTimeout(resume, 20))
  }
}

// A fetch for one conversation, and what the server tells of each of its prompts:
// with how much of the turn before it begins.
export function watched() {
  const told = []
  const session = randomUUID()
  return {
    told,
    async fetch(url, init) {
      const headers = new Headers(init.headers)
      headers.set('x-session-id', session)
      headers.set('x-dynago-debug', '1')
      const answer = await fetch(url, { ...init, headers })
      if (answer.ok) told.push(JSON.parse(answer.headers.get('x-dynago-debug')))
      return answer
    },
  }
}

// Each turn begins with the one before it, or nearly.
export function assertReused(told) {
  assert(told.length > 1, 'there was but one turn')
  for (const t of told.slice(1)) assert(t.prompt_ratio >= 0.99 && t.answer_ratio >= 0.95, JSON.stringify(t))
}

// What an answer says, without what is another's with every answer, what an SDK
// adds, and members that are null.
export const said = (answer, ...others) =>
  JSON.parse(JSON.stringify(answer, (name, value) => ([...volatile, ...others].includes(name) || value === null ? undefined : value)))

const volatile = ['id', 'item_id', 'call_id', '_request_id', 'created_at', 'completed_at', 'encrypted_content', 'output_text', 'parsed', 'output_parsed', 'parsed_output', 'parsed_arguments']

// What a call of get_weather has in the script.
export const args = '{"city": "Rome", "note": "</tool_call> is data"}'

export const weatherSchema = {
  type: 'object',
  properties: { city: { type: 'string' }, note: { type: 'string' } },
  required: ['city'],
}
