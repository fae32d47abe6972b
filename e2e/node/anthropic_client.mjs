import Anthropic from '@anthropic-ai/sdk'
import { base, key, weatherSchema } from './cases.mjs'

export const client = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0, timeout: 60_000 })

export const weather = { name: 'get_weather', description: 'Tells the weather of a city.', input_schema: weatherSchema }

export const user = (content) => [{ role: 'user', content }]
