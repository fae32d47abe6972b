package trace_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace"
)

func TestRedact(t *testing.T) {
	picture := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1, 2, 3, 4, 5}, 20)) // 100 bytes
	for _, tc := range []struct{ name, body, want string }{
		{"as it is", ` {"b": 1.50, "a": [true, null, "x\u00e9"], "big": 10773075109927122010} `, `{"b":1.50,"a":[true,null,"xé"],"big":10773075109927122010}`},
		{"repeated members", `{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{"no UTF-8", "{\"a\":\"\xff\"}", `{"a":"�"}`},
		{"keys by name", `{"api_key":"x","Authorization":"y","tools":[{"headers":{"X-Api-Key":"z","x":"w"}}],"client_secret":"v"}`, `{"api_key":"[redacted]","Authorization":"[redacted]","tools":[{"headers":{"X-Api-Key":"[redacted]","x":"w"}}],"client_secret":"[redacted]"}`},
		{"keys in a list", `{"passwords":["a",["b"]],"c":"d"}`, `{"passwords":["[redacted]",["[redacted]"]],"c":"d"}`},
		{"keys that are no texts", `{"api_key":12345,"password":{"v":"x","n":[1,{"w":"y"}],"ok":true,"o":{}},"cookies":[{"name":"a"}],"max":7}`, `{"api_key":"[redacted]","password":{"v":"[redacted]","n":["[redacted]",{"w":"[redacted]"}],"ok":true,"o":{}},"cookies":[{"name":"[redacted]"}],"max":7}`},
		{"names of parameters", `{"properties":{"password":{"type":"string","enum":["a"]}},"required":["password"]}`, `{"properties":{"password":{"type":"string","enum":["a"]}},"required":["password"]}`},
		{"tokens of answers", `{"logprobs":[{"token":"Hello"}],"max_tokens":5}`, `{"logprobs":[{"token":"Hello"}],"max_tokens":5}`},
		{"bearer", `{"content":"curl -H 'Authorization: Bearer abcdefgh12345' and BEARER abcdefgh.12-_ and a bearer of news"}`, `{"content":"curl -H 'Authorization: Bearer [redacted]' and BEARER [redacted] and a bearer of news"}`},
		{"keys in texts", `{"content":["sk-proj-abcdefghijk AKIAABCDEFGHIJ ghp_abcdefghij","ask-me-anything risk-averse-people"]}`, `{"content":["sk-[redacted] AKIA[redacted] ghp_[redacted]","ask-me-anything risk-averse-people"]}`},
		{
			"keys of other houses", `{"content":"github_pat_11ABCDEFG0 glpat-abcdefgh12 xoxb-1234-5678 AIzaSyA-1234567 hf_` + strings.Repeat("aB", 17) + ` and hf_hub_download, roxborough-streets"}`,
			`{"content":"github_pat_[redacted] glpat-[redacted] xoxb-[redacted] AIza[redacted] hf_[redacted] and hf_hub_download, roxborough-streets"}`,
		},
		{"signed address", `{"url":"https://h/p?X-Amz-Signature=0123456789abcdef&x=1"}`, `{"url":"https://h/p?X-Amz-Signature=[redacted]&x=1"}`},
		{"picture of chat", `{"image_url":{"url":"data:image/png;base64,` + picture + `"}}`, `{"image_url":{"url":"data:image/png;base64,[100 bytes]"}}`},
		{"picture in capitals", `{"url":"DATA:image/png;Base64,` + picture + `"}`, `{"url":"DATA:image/png;Base64,[100 bytes]"}`},
		{"picture in a text", `{"text":"![a](data:image/svg+xml;charset=utf-8;base64,` + picture + `) b"}`, `{"text":"![a](data:image/svg+xml;charset=utf-8;base64,[100 bytes]) b"}`},
		{"picture of messages", `{"source":{"type":"base64","media_type":"image/png","data":"` + picture + `"}}`, `{"source":{"type":"base64","media_type":"image/png","data":"[100 bytes]"}}`},
		{"file of responses", `{"type":"input_file","file_data":"` + picture + `"}`, `{"type":"input_file","file_data":"[100 bytes]"}`},
		{"data that is a text", `{"data":"` + strings.Repeat("not base64, ", 10) + `"}`, `{"data":"` + strings.Repeat("not base64, ", 10) + `"}`},
		{"short data", `{"data":"abcd"}`, `{"data":"abcd"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := trace.Redact([]byte(tc.body))
			if err != nil || string(got) != tc.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tc.want)
			}
		})
	}
	for _, body := range []string{`{"a":`, `{"a" 1}`, `{]`, "\x00", "", "{} {}"} {
		if got, err := trace.Redact([]byte(body)); err == nil {
			t.Errorf("%q: got %s", body, got)
		}
	}
}

func TestRedactHeader(t *testing.T) {
	for _, tc := range [][3]string{
		{"x-tenant", "acme", "acme"},
		{"authorization", "Basic abc", "[redacted]"},
		{"x-api-key", "abc", "[redacted]"},
		{"cookie", "a=b", "[redacted]"},
		{"x-amz-security-token", "abc", "[redacted]"},
		{"x-forwarded-auth", "Bearer abcdefgh1", "Bearer [redacted]"},
	} {
		if got := trace.RedactHeader(tc[0], tc[1]); got != tc[2] {
			t.Errorf("%s: got %q, want %q", tc[0], got, tc[2])
		}
	}
}

// Whatever is redacted is JSON of the same shape, and stays as it is if it is
// redacted again.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":["data:x;base64,AAAA",{"api_key":"sk-abcdefghij"}],"b":"Bearer abcdefgh"}`))
	f.Add([]byte(`[[],{},"\ud800",1e999]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := trace.Redact(body)
		if err != nil {
			return
		}
		if !got.IsValid(jsontext.AllowDuplicateNames(true)) || bytes.Contains(got, []byte("\n")) {
			t.Fatalf("%q became %q", body, got)
		}
		again, err := trace.Redact(got)
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("%q became %q and then %q, %v", body, got, again, err)
		}
	})
}
