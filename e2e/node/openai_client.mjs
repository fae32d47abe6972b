import OpenAI from 'openai'
import { base, key, weatherSchema } from './cases.mjs'

export const client = new OpenAI({ baseURL: base + '/v1', apiKey: key, maxRetries: 0, timeout: 60_000 })

export const user = (content) => [{ role: 'user', content }]

export const weather = {
  type: 'function',
  function: { name: 'get_weather', description: 'Tells the weather of a city.', parameters: weatherSchema },
}
