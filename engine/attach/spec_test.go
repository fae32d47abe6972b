package attach_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
)

func TestParse(t *testing.T) {
	for text, ok := range map[string]func(*attach.Spec) bool{
		"vllm=http://h:8000": func(s *attach.Spec) bool { return s.Kind == attach.VLLM && s.URL == "http://h:8000" },
		"http://h:8000/":     func(s *attach.Spec) bool { return s.Kind == attach.Auto && s.URL == "http://h:8000" },
		"auto=https://h/a/b": func(s *attach.Spec) bool { return s.Kind == attach.Auto && s.URL == "https://h/a/b" },
		" url=http://h , kind=sglang": func(s *attach.Spec) bool {
			return s.Kind == attach.SGLang && s.URL == "http://h"
		},
		"vllm=http://h,model=org/m,block_size=16,total_blocks=9,context_length=4096,dp.start=2,dp.size=3": func(s *attach.Spec) bool {
			return s.Model == "org/m" && s.BlockSize == 16 && s.TotalBlocks == 9 && s.ContextLength == 4096 && s.DPStart == 2 && s.DPSize == 3
		},
		"vllm=http://h,events=tcp://*:5557,replay=tcp://*:5558,events.topic=kv": func(s *attach.Spec) bool {
			return s.Events == "tcp://*:5557" && s.Replay == "tcp://*:5558" && s.Topic == "kv"
		},
		"vllm=http://h,role=prefill,disagg.style=mooncake,disagg.bootstrap_host=g,disagg.bootstrap_port=9": func(s *attach.Spec) bool {
			return s.Role == engine.Prefill && s.DisaggStyle == "mooncake" && s.BootstrapHost == "g" && s.BootstrapPort == 9
		},
		"vllm=http://h,events.endpoint=tcp://*:5557": func(s *attach.Spec) bool { return s.Events == "tcp://*:5557" },
		"trtllm=http://h,events=poll,role=prefill,priority_enabled=yes,load.interval=250ms": func(s *attach.Spec) bool {
			return s.Events == "poll" && s.Role == engine.Prefill && *s.Priority && s.Every == 250*time.Millisecond
		},
		"sglang=http://h,priority_enabled=no,disagg.bootstrap_host=10.0.0.1": func(s *attach.Spec) bool {
			return !*s.Priority && s.BootstrapHost == "10.0.0.1"
		},
		`llamacpp=http://h,extra_body={"a":[1,2],"b":"x,y"},model=m`: func(s *attach.Spec) bool {
			return string(s.ExtraBody) == `{"a":[1,2],"b":"x,y"}` && s.Model == "m"
		},
		`openai=http://h,api_key=k,headers.X-Team="a, \"b\"",model="a=b"`: func(s *attach.Spec) bool {
			return s.Key == "k" && s.Header.Get("x-team") == `a, "b"` && s.Model == "a=b"
		},
		"vllm=https://h,tls.insecure=true,model_path=/m": func(s *attach.Spec) bool {
			return s.TLS.InsecureSkipVerify && s.ModelPath == "/m"
		},
	} {
		s, err := attach.Parse(text)
		if err != nil || !ok(s) {
			t.Errorf("%s: %+v %v", text, s, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "url: want the server's address, as in auto=http://HOST:PORT",
		"vllm":                              `"vllm": want key=value`,
		"vllm=":                             "vllm: there is no such key: want one of kind, url, model",
		"vlm=http://h":                      `kind: "vlm": want one of vllm, sglang, trtllm, llamacpp, openai, auto`,
		"vllm=http://h,kind=sglang,kind=x":  "kind: is given twice",
		"kind=vllm,url=h:8000":              "url: engine address",
		"vllm=http://h?x=1":                 "want no query",
		"vllm=http://u:hush@h":              "url: want no user and password",
		"vllm=http://h,blocksize=16":        "blocksize: there is no such key; did you mean block_size?",
		"vllm=http://h,block_size=0":        `block_size: "0": want 1..1048576`,
		"vllm=http://h,block_size=1x":       `block_size: "1x": want 1..`,
		"vllm=http://h,disagg.style=pigeon": `disagg.style: "pigeon": want one of nixl, moriio`,
		"vllm=http://h,model=":              `model: "": want a text that is not empty`,
		"vllm=http://h,extra_body={}":       "extra_body: is no key of vllm, but of llamacpp, openai",
		"sglang=http://h,total_blocks=1":    "total_blocks: is no key of sglang, but of vllm",
		"vllm=http://h,role=both":           `role: "both": want aggregated, prefill or decode`,
		"vllm=http://h,events=here":         `events: "here": want an address such as tcp://HOST:5557`,
		"vllm=http://h,events=poll":         `events: "poll": want an address`,
		"trtllm=http://h,events=tcp://h:1":  `events: "tcp://h:1": want poll`,
		"vllm=http://h,replay=tcp://h:1":    "replay: want events with it",
		"vllm=http://h,priority_enabled=x":  `priority_enabled: "x": want true or false`,
		"vllm=http://h,load.interval=1":     `load.interval: "1": want a time from 10ms to 1m`,
		"openai=http://h,extra_body={a}":    "extra_body: want JSON behind {",
		`openai=http://h,extra_body={} x`:   `extra_body: want a comma before "x"`,
		"openai=http://h,extra_body=1":      `extra_body: "1": want a JSON object`,
		"vllm=http://h,headers.=x":          "headers.: want a header's name",
		"vllm=http://h,tls.ca=/no/such/one": `tls.ca: "/no/such/one": want a file of certificates`,
	} {
		if _, err := attach.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Whatever is accepted can be opened, and what is refused shows no secret.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"vllm=http://h:8000,model=m", "http://h", `openai=http://h,extra_body={"a":1},api_key="x,y"`, "trtllm=http://h,events=poll",
		"kind=sglang,url=http://h,headers.a=b", "auto=http://h,load.interval=1s", "=", ",", "a=b=c", `x="`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := attach.Parse(text)
		if err != nil {
			return
		}
		e, err := attach.New(s, attach.Config{})
		if err != nil {
			t.Fatalf("%q: accepted, and then %v", text, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
