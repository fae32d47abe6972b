package frontend

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/dynago/dynago/openai"
)

// prefetchDescription tells of the routes by which agents have blocks brought up.
func prefetchDescription() openai.Description {
	const id = `[{"name":"id","in":"path","required":true,"description":"a prefetch_id","schema":{"type":"string"}}]`
	const unknown = "The tenant has begun no such prefetch, or it is forgotten"
	about := func(method, name, summary string) openai.Operation {
		return openai.Operation{
			Method: method, Path: prefetchPath + "/{id}", ID: name, Summary: summary, Params: id,
			Answer: schemaRef("PrefetchState"), Refusals: map[int]string{http.StatusNotFound: unknown},
		}
	}
	return openai.Description{
		Operations: []openai.Operation{
			{
				Method: "post", Path: prefetchPath, ID: "prefetch", Summary: "Bring what is cached of a prompt up ahead of its request",
				Body: json.RawMessage(prefetchSchema), Answer: schemaRef("Prefetch"), Status: http.StatusAccepted,
				Refusals: map[int]string{
					http.StatusBadRequest: "The body is malformed or breaks a rule", http.StatusNotFound: "The model is unknown",
					http.StatusNotImplemented: "No worker of the model can prefetch", http.StatusServiceUnavailable: "The model or the service is not ready",
				},
			},
			about("get", "prefetchState", "Tell how far a prefetch is"),
			about("delete", "cancelPrefetch", "End a prefetch"),
		},
		Schemas: map[string]string{
			"Prefetch":      `{"type":"object","required":["prefetch_id","worker_id","state","blocks"],"properties":{"prefetch_id":{"type":"string"},"worker_id":{"type":"integer"},"state":` + prefetchStates + `,"blocks":{"type":"object","required":["requested","already","scheduled","missing"],"properties":{"requested":{"type":"integer"},"already":{"type":"integer"},"scheduled":{"type":"integer"},"missing":{"type":"integer"}}}}}`,
			"PrefetchState": `{"type":"object","required":["state","loaded","failed"],"properties":{"state":` + prefetchStates + `,"loaded":{"type":"integer"},"failed":{"type":"integer"}}}`,
		},
	}
}

const (
	prefetchStates = `{"enum":["running","done","cancelled","expired"]}`
	blockHashes    = `{"type":"array","minItems":1,"maxItems":1048576,"items":{"oneOf":[{"type":"integer","minimum":0},{"type":"string","pattern":"^[0-9]+$"}]},"description":"Hashes of prefixes, by block."}`
	prefetchSchema = `{"type":"object","required":["model"],"description":"One of messages, prompt, token_ids and block_hashes.","properties":{` +
		`"model":{"type":"string"},` +
		`"messages":{"type":"array","items":{"$ref":"#/components/schemas/Message"}},` +
		`"tools":{"type":"array","items":{"$ref":"#/components/schemas/Tool"}},` +
		`"prompt":{"type":"string"},` +
		`"token_ids":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},` +
		`"block_hashes":` + blockHashes + `,` +
		`"session_id":{"type":"string","maxLength":256},` +
		`"cache_salt":{"type":"string","maxLength":1024},` +
		`"nvext":{"$ref":"#/components/schemas/NVExt"},` +
		`"target_tier":{"enum":["g1","device","g2","host_pinned"],"default":"g1"},` +
		`"deadline":{"type":"string","format":"date-time"},` +
		`"worker":{"oneOf":[{"const":"auto"},{"type":"integer"},{"type":"string","pattern":"^[0-9]+$"}],"default":"auto"}}}`
)

const modelQuery = `[{"name":"model","in":"query","description":"all models without it","schema":{"type":"string"}}]`

// kvStatsDescription tells of the route by which operators see what is cached.
func kvStatsDescription() openai.Description {
	return openai.Description{
		Operations: []openai.Operation{{
			Method: "get", Path: kvStatsPath, ID: "cacheStats", Summary: "Tell what the router knows of caches, and how true that is",
			Params: modelQuery, Answer: schemaRef("CacheStats"), Refusals: map[int]string{},
		}},
		Schemas: map[string]string{
			"CacheStats": `{"type":"object","required":["index","ranks"],"properties":{` +
				`"index":{"type":"object","required":["prefixes","blocks"],"properties":{"prefixes":{"type":"integer","description":"Distinct blocks, with everything before them."},"blocks":{"type":"integer","description":"Over all ranks."}}},` +
				`"ranks":{"type":"array","items":{"type":"object","required":["worker_id","worker","model","dp_rank","cached_blocks"],"properties":{"worker_id":{"type":"integer"},"worker":{"type":"string"},"model":{"type":"string"},"dp_rank":{"type":"integer"},"cached_blocks":{"type":"integer"},` +
				`"prediction":{"type":"object","description":"What answers have shown, absent before the first of them.","required":["answers","predicted_tokens","reported_tokens","drift","doubted"],"properties":{"answers":{"type":"integer"},"predicted_tokens":{"type":"integer"},"reported_tokens":{"type":"integer"},"drift":{"type":"number","minimum":0,"maximum":1,"description":"Share of blocks that were not as expected, of late."},"doubted":{"type":"boolean"}}}}}}}}`,
		},
	}
}

// careDescription tells of the routes by which operators look after caches.
func careDescription() openai.Description {
	guarded := map[int]string{http.StatusForbidden: "The server listens to other machines, and this route changes it"}
	wrong := maps.Clone(guarded)
	wrong[http.StatusBadRequest] = "The body is malformed or breaks a rule"
	return openai.Description{
		Operations: []openai.Operation{
			{
				Method: "post", Path: "/v1/kv/flush", ID: "flushCaches", Summary: "Empty the caches of workers",
				Params: modelQuery, Answer: `{"type":"object","properties":{"flushed":` + caredList + `,"failed":` + caredList + `}}`, Refusals: guarded,
			},
			{
				Method: "post", Path: "/v1/kv/retain", ID: "retainBlocks", Summary: "Say what blocks are worth",
				Body:   json.RawMessage(`{"type":"object","required":["block_hashes","priority"],"properties":{"model":{"type":"string"},"block_hashes":` + blockHashes + `,"priority":{"type":"integer","minimum":0,"maximum":100},"ttl":{"$ref":"#/components/schemas/Lifetime"}}}`),
				Answer: `{"type":"object","properties":{"retained":` + caredList + `,"failed":` + caredList + `}}`, Refusals: wrong,
			},
			{
				Method: "post", Path: "/clear_kv_blocks", ID: "clearBlocks", Summary: "The same as /v1/kv/flush, in the words of others",
				Params: modelQuery, Answer: `{"type":"object"}`, Refusals: guarded,
			},
		},
	}
}

const caredList = `{"type":"array","items":{"type":"object","required":["worker_id","worker","model"],"properties":{"worker_id":{"type":"integer"},"worker":{"type":"string"},"model":{"type":"string"},"updated":{"type":"integer"},"error":{"type":"string"}}}}`

// inventoryDescription tells of the routes by which operators see what is bound and
// pinned.
func inventoryDescription() openai.Description {
	const pages = `[{"name":"model","in":"query","description":"all models without it","schema":{"type":"string"}},` +
		`{"name":"tenant","in":"query","description":"all tenants without it; with a tenant's key there are no others","schema":{"type":"string"}},` +
		`{"name":"from","in":"query","schema":{"type":"integer","minimum":0,"default":0}},` +
		`{"name":"limit","in":"query","schema":{"type":"integer","minimum":1,"maximum":1000,"default":100}}]`
	const ofTarget = `"worker_id":{"type":"integer"},"dp_rank":{"type":"integer"}`
	list := func(name, required, properties string) string {
		return `{"type":"object","required":["total","` + name + `"],"properties":{"total":{"type":"integer"},"next":{"type":"integer","description":"What to ask for as from; absent at the end."},"` + name +
			`":{"type":"array","items":{"type":"object","required":[` + required + `],"properties":{` + properties + `,` + ofTarget + `}}}}}`
	}
	wrong := map[int]string{http.StatusBadRequest: "from or limit is none"}
	return openai.Description{
		Operations: []openai.Operation{
			{
				Method: "get", Path: kvSessionsPath, ID: "listSessions", Summary: "Tell which sessions are bound to which workers", Params: pages, Refusals: wrong,
				Answer: list("sessions", `"session_id","model","state","running"`, `"session_id":{"type":"string"},"model":{"type":"string"},"tenant":{"type":"string"},"role":{"type":"string"},"from":{"type":"string","description":"The router_id of another frontend that has bound it."},"state":{"enum":["choosing","active","idle","closing"]},"running":{"type":"integer"},"kept_by_engine":{"type":"boolean"},"ephemeral":{"type":"boolean"},"timeout_s":{"type":"number"},"expires_in_s":{"type":"number"}`),
			},
			{
				Method: "get", Path: kvPinsPath, ID: "listPins", Summary: "Tell which prefixes were pinned, or are kept warm, by requests of this server", Params: pages, Refusals: wrong,
				Answer: list("pins", `"block_hash","blocks","model","by","ends_in_s"`, `"block_hash":{"type":"string","description":"Of the last block."},"blocks":{"type":"integer"},"model":{"type":"string"},"tenant":{"type":"string"},"session_id":{"type":"string"},"by":{"enum":["nvext","blocks","prompt_cache_retention","hold"]},"kept_warm":{"type":"boolean"},"ends_in_s":{"type":"number"}`),
			},
			{
				Method: "get", Path: kvKeysPath, ID: "showBlock", Summary: "Tell who holds a block",
				Params:   `[{"name":"hash","in":"path","required":true,"description":"the name that its engine has for it","schema":{"type":"string","pattern":"^[0-9]+$"}}]`,
				Answer:   `{"type":"object","required":["block_hash","holders"],"properties":{"block_hash":{"type":"string"},"holders":{"type":"array","items":{"type":"object","properties":{` + ofTarget + `,"tiers":{"type":"array","items":{"type":"string"}}}}}}}`,
				Refusals: map[int]string{http.StatusBadRequest: "The name is none", http.StatusNotFound: "Nobody has told of the block"},
			},
		},
	}
}
