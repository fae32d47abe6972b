package vllm

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

const plainPiece = `{"request_id":"chatcmpl-3f","choices":[{"finish_reason":null,"index":0,"logprobs":null,"token_ids":[151667]}]}`

// What servers write for nearly every token is read quickly.
func TestQuick(t *testing.T) {
	for _, tt := range []struct {
		name, piece string
		ids         []uint32
		text        bool
		reason      string
	}{
		{"a token", plainPiece, []uint32{151667}, false, ""},
		{"tokens, with blanks", "{ \"choices\" : [ {\"index\": 0, \"token_ids\": [ 0, 4294967295 ] } ],\r\n \"created\": 7 } ", []uint32{0, 4294967295}, false, ""},
		{"the other route", `{"id":"cmpl-1","object":"text_completion","created":1764500000,"model":"m","choices":[{"index":0,"text":"né","logprobs":null,"finish_reason":"stop","stop_reason":2,"token_ids":[2],"prompt_token_ids":null}],"usage":null}`, []uint32{2}, true, "stop"},
		{"the end alone", `{"kv_transfer_params":null,"prompt_logprobs":null,"choices":[{"index":0,"token_ids":[],"finish_reason":"length"}]}`, nil, false, "length"},
	} {
		got, ok := quick([]byte(tt.piece), nil)
		if !ok || !slices.Equal(got.ids, tt.ids) || got.text != tt.text || got.reason != tt.reason {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
}

// What may be more than ids, or is no JSON, is left to the other decoder.
func TestNotQuick(t *testing.T) {
	for _, piece := range []string{
		``, `{}`, `[]`, `{"choices":[]}`, plainPiece + `x`, plainPiece[:len(plainPiece)-1],
		`{"choices":[{"index":1,"token_ids":[7]}]}`,
		`{"choices":[{"index":0,"token_ids":[7]},{"index":1,"token_ids":[8]}]}`,
		`{"choices":[{"index":0,"token_ids":[7],"token_ids":[8]}]}`,
		`{"choices":[{"index":0,"token_ids":[7]}],"choices":[]}`,
		`{"choices":[{"index":0,"token_ids":[4294967296]}]}`,
		`{"choices":[{"index":0,"token_ids":[18446744073709551617]}]}`,
		`{"choices":[{"index":0,"token_ids":[7,]}]}`,
		`{"choices":[{"index":0,"token_ids":[07]}]}`,
		`{"choices":[{"index":0,"token_ids":[7.0]}]}`,
		`{"choices":[{"index":0,"token_ids":[-7]}]}`,
		`{"choices":[{"index":0,"token_ids":null}]`,
		`{"choices":[{"index":0,"token_ids":[7],"finish_reason":"st\u006fp"}]}`,
		`{"choices":[{"index":0,"token_ids":[7],"logprobs":{"content":[]}}]}`,
		`{"choices":[{"index":0,"token_ids":[7]}],"usage":{"prompt_tokens":1}}`,
		`{"choices":[{"index":0,"token_ids":[7]}],"error":{"message":"x"}}`,
		`{"object":"error","choices":[{"index":0,"token_ids":[7]}]}`,
		`{"choices":[{"index":0,"token_ids":[7]}],"x":{}}`,
		`{"choices":[{"index":0,"token_ids":[7]}],}`,
		`{"choices":[{"index":0 "token_ids":[7]}]}`,
		"{\"choices\":[{\"index\":0,\"token_ids\":[7],\"x\":\"\n\"}]}",
	} {
		if got, ok := quick([]byte(piece), nil); ok {
			t.Errorf("%s: %+v", piece, got)
		}
	}
}

// Where both read, they read the same.
func FuzzQuick(f *testing.F) {
	f.Add([]byte(plainPiece))
	f.Add([]byte(`{"created":12,"x":null,"error":null,"choices":[{"text":"a","index":0,"token_ids":[1,2],"finish_reason":"stop"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := quick(data, nil)
		if !ok {
			return
		}
		var p piece
		if err := json.Unmarshal(data, &p, lenient); err != nil {
			t.Fatalf("%q: read, and no JSON: %v", data, err)
		}
		if len(p.Choices) != 1 || p.Choices[0].Index != 0 || p.Object == "error" || len(p.Error) > 0 && string(p.Error) != "null" || p.Usage != nil {
			t.Fatalf("%q: %+v", data, p)
		}
		c := &p.Choices[0]
		if !slices.Equal(got.ids, c.TokenIDs) || got.text != (c.Text != "") || got.reason != c.FinishReason || c.Logprobs != nil {
			t.Fatalf("%q: %+v, not %+v", data, got, c)
		}
	})
}

// A piece that is like another one is read as it would be on its own, and none that
// differs in more than ids is.
func TestAlike(t *testing.T) {
	var a alike
	if _, ok := a.ids([]byte(plainPiece), nil); ok {
		t.Error("a piece is like no other")
	}
	example, ok := quick([]byte(plainPiece), nil)
	if !ok {
		t.Fatal("the example is not quick")
	}
	a.learn([]byte(plainPiece), &example)
	before, behind := plainPiece[:example.from], plainPiece[example.to:]
	for ids, want := range map[string][]uint32{
		"[1]": {1}, "[ 4294967295, 2]": {4294967295, 2}, "[]": {},
		"": nil, "[1": nil, "1]": nil, "[1]]": nil, "[1],\"x\":[2]": nil, "[-1]": nil, "[4294967296]": nil, "null": nil, "[1,]": nil,
	} {
		piece := []byte(before + ids + behind)
		got, ok := a.ids(piece, nil)
		if ok != (want != nil) || !slices.Equal(got, want) && ok {
			t.Errorf("%s: %v, %v; want %v", ids, got, ok, want)
		}
		if alone, quick := quick(piece, nil); ok && (!quick || !slices.Equal(alone.ids, got)) {
			t.Errorf("%s: %v on its own", ids, alone)
		}
	}
	for _, piece := range []string{before + "[1]" + behind[1:], before[1:] + "[1]" + behind, before + behind, before} {
		if _, ok := a.ids([]byte(piece), nil); ok {
			t.Errorf("%s is not like %s", piece, plainPiece)
		}
	}
	for _, other := range []string{`{"choices":[{"index":0,"token_ids":[7],"finish_reason":"stop"}]}`, `{"choices":[{"index":0,"token_ids":[7],"text":"a"}]}`} {
		told, ok := quick([]byte(other), nil)
		var none alike
		none.learn([]byte(other), &told)
		if _, like := none.ids([]byte(other), nil); !ok || like {
			t.Errorf("%s is an example", other)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	k := 1
	for _, bench := range []struct {
		name, piece string
		logprobs    *int
	}{
		{"plain", plainPiece, nil},
		{"likelihoods", `{"choices":[{"index":0,"token_ids":[7],"logprobs":{"content":[{"token":"token_id:7","logprob":-0.5,"top_logprobs":[{"token":"token_id:7","logprob":-0.5}]}]}}]}`, &k},
		{"usage", `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":9}}}`, nil},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			a := answer{r: &engine.Request{Logprobs: bench.logprobs}}
			for b.Loop() {
				if _, err := a.read([]byte(bench.piece)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
