// Computes log-probabilities with llama.cpp. Reads lines of JSON, {"model": path,
// "prompt": [id, ...]}, and answers each with the float32 numbers of all tokens at
// all positions, natural logarithms, one row behind the other. Where "text" stands
// instead of "prompt", it answers with the ids of the text behind their number.
//
// The first argument is the folder of the prebuilt libraries. They are called as
// they are, since what is around them for JavaScript gives no probabilities for
// the positions of a prompt.
'use strict'
const path = require('node:path')
const readline = require('node:readline')

const libraries = process.argv[2]
const llama = require(path.join(libraries, 'llama-addon.node'))

// open loads a model and returns what computes with it. Keys and values are kept
// in 32 bits, as ours are.
async function open (file) {
  const model = new llama.AddonModel(file, { addonExports: llama, gpuLayers: 0, checkTensors: true })
  if (!await model.init()) throw new Error(`${file}: llama.cpp cannot load it`)
  const size = Math.min(model.getTrainContextSize(), 2048)
  const float = llama.getGgmlType('F32')
  const context = new llama.AddonContext(model, {
    contextSize: size, batchSize: size, sequences: 1, threads: 2, flashAttention: false, kvCacheKeyType: float, kvCacheValueType: float
  })
  if (!await context.init()) throw new Error(`${file}: llama.cpp makes no context`)
  const sampler = new llama.AddonSampler(model)
  sampler.applyConfig({})
  return { model, context, sampler }
}

// logProbabilities evaluates a prompt in one batch.
async function logProbabilities ({ context, sampler }, prompt) {
  context.disposeSequence(0)
  context.initBatch(prompt.length)
  const positions = context.addToBatch(0, 0, Uint32Array.from(prompt), Uint32Array.from(prompt.keys()))
  await context.decodeBatch()
  let all
  for (const [row, position] of positions.entries()) {
    // Tokens and probabilities take turns, the likeliest first.
    const [, pairs] = await context.sampleToken(position, sampler, true)
    const vocabulary = pairs.length / 2
    all ??= new Float32Array(prompt.length * vocabulary)
    for (let i = 0; i < pairs.length; i += 2) all[row * vocabulary + pairs[i]] = Math.log(pairs[i + 1])
  }
  return all
}

async function main () {
  llama.setLogger((level, text) => process.stderr.write(text))
  llama.setLoggerLogLevel(1) // errors
  llama.loadBackends(libraries)
  await llama.init()
  let opened, file
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { model, prompt, text } = JSON.parse(line)
    if (model !== file) {
      opened = await open(model)
      file = model
    }
    if (text !== undefined) {
      const ids = opened.model.tokenize(text, true)
      process.stdout.write(Buffer.from(Uint32Array.of(ids.length, ...ids).buffer))
      continue
    }
    process.stdout.write(Buffer.from((await logProbabilities(opened, prompt)).buffer))
  }
  // Without this the libraries take their time to unload.
  process.stdout.end(() => process.exit(0))
}

main()
