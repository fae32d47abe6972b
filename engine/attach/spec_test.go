package attach_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/trtllm"
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
		`trtllm=http://h,disagg.style=generation_first,adapters={"b":"/b","a":"/a"}`: func(s *attach.Spec) bool {
			return s.DisaggStyle == trtllm.GenerationFirst && s.Adapters["a"] == "/a" && len(s.Adapters) == 2
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
		"ollama=http://h,keep_alive=30m,max_seqs=4": func(s *attach.Spec) bool { return *s.KeepAlive == 30*time.Minute && s.MaxSeqs == 4 },
		"ollama=http://h,keep_alive=-1":             func(s *attach.Spec) bool { return *s.KeepAlive < 0 },
		"llamacpp=http://h,pin_sessions=true":       func(s *attach.Spec) bool { return s.PinSessions },
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
		"vlm=http://h":                      `kind: "vlm": want one of vllm, sglang, trtllm, llamacpp, ollama, openai, remote, auto`,
		"vllm=http://h,kind=sglang,kind=x":  "kind: is given twice",
		"kind=vllm,url=h:8000":              "url: engine address",
		"vllm=http://h?x=1":                 "want no query",
		"vllm=http://u:hush@h":              "url: want no user and password",
		"vllm=http://h,blocksize=16":        "blocksize: there is no such key; did you mean block_size?",
		"vllm=http://h,block_size=0":        `block_size: "0": want 1..1048576`,
		"vllm=http://h,block_size=1x":       `block_size: "1x": want 1..`,
		"vllm=http://h,disagg.style=pigeon": `disagg.style: "pigeon": want one of nixl, moriio`,
		"vllm=http://h,model=":              `model: "": want a text that is not empty`,
		"vllm=http://h,extra_body={}":       "extra_body: is no key of vllm, but of sglang, trtllm, llamacpp, ollama, openai",
		"vllm=http://h,disagg.style=generation_first":              `disagg.style: "generation_first": is none of vllm`,
		"trtllm=http://h,disagg.style=nixl":                        `disagg.style: "nixl": is none of trtllm`,
		`trtllm=http://h,adapters={"a":1}`:                         `want a JSON object of names and paths on the server`,
		"openai=http://h,total_blocks=1":                           "total_blocks: is no key of openai, but of vllm",
		"vllm=http://h,role=both":                                  `role: "both": want aggregated, prefill or decode`,
		"vllm=http://h,events=here":                                `events: "here": want an address such as tcp://*:5557`,
		"vllm=http://h,events.mode=zmq":                            `events.mode: "zmq": want events with it`,
		"vllm=http://h,events.mode=push":                           `events.mode: "push": want auto, zmq, poll or none`,
		"vllm=http://h,events.mode=none,events=tcp://*:1":          `events.mode: "none": want no address with it`,
		"vllm=http://h,events.mode=poll":                           `events: "poll": want an address`,
		"vllm=http://h,events.bind=yes":                            "events.bind: want events with it",
		"vllm=http://h,events=none,replay=tcp://*:1":               "replay: want events with it",
		"vllm=http://h,events=tcp://*:1,events.endpoint=tcp://*:2": "events.endpoint: is given twice",
		"vllm=http://h,dp.select=mine":                             `dp.select: "mine": want auto`,
		"vllm=http://h,load.source=mine":                           `load.source: "mine": want auto, or none`,
		"vllm=http://h,disagg.side_channel=h:0":                    `disagg.side_channel: "h:0": want HOST or HOST:PORT`,
		"vllm=http://h,aliases=":                                   `aliases: "": want a name`,
		"vllm=http://h,api_key_file=/no/such/one":                  `api_key_file: "/no/such/one": want a file with the key`,
		"vllm=http://h,api_key=a,api_key=b":                        "api_key: is given twice",
		"vllm=https://h,tls.cert=a":                                "tls.cert and tls.key: want both, or neither",
		"vllm=https://h,tls.cert=/no/a,tls.key=/no/b":              `tls.cert: "/no/a": want a certificate in PEM`,
		"vllm=http://h,drain=perhaps":                              `drain: "perhaps": want true or false`,
		"vllm=http://h,events=poll":                                `events: "poll": want an address`,
		"trtllm=http://h,events=tcp://h:1":                         `events: "tcp://h:1": want poll`,
		"vllm=http://h,replay=tcp://h:1":                           "replay: want events with it",
		"vllm=http://h,priority_enabled=x":                         `priority_enabled: "x": want true or false`,
		"vllm=http://h,load.interval=1":                            `load.interval: "1": want a time from 10ms to 1m`,
		"openai=http://h,extra_body={a}":                           "extra_body: want JSON behind {",
		`openai=http://h,extra_body={} x`:                          `extra_body: want a comma before "x"`,
		"openai=http://h,extra_body=1":                             `extra_body: "1": want a JSON object`,
		"vllm=http://h,headers.=x":                                 "headers.: want a header's name",
		"ollama=http://h,keep_alive=soon":                          `keep_alive: "soon": want a time such as 30m`,
		"llamacpp=http://h,pin_sessions=x":                         `pin_sessions: "x": want true or false`,
		"vllm=http://h,tls.ca=/no/such/one":                        `tls.ca: "/no/such/one": want a file of certificates`,
	} {
		if _, err := attach.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestParseMore(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]func(*attach.Spec) bool{
		"vllm=http://h,aliases=fast,alias=cheap": func(s *attach.Spec) bool { return slices.Equal(s.Aliases, []string{"fast", "cheap"}) },
		"vllm=http://h,pod=vllm-0,drain=true":    func(s *attach.Spec) bool { return s.Pod == "vllm-0" && s.Drain },
		"vllm=http://h,api_key_file=" + key:      func(s *attach.Spec) bool { return s.Key == "hush" },
		"vllm=https://h,tls.server_name=n":       func(s *attach.Spec) bool { return s.TLS.ServerName == "n" },
		"vllm=http://h,events.mode=none":         func(s *attach.Spec) bool { return s.Events == "none" },
		"trtllm=http://h,events.mode=poll":       func(s *attach.Spec) bool { return s.Events == "poll" },
		"vllm=http://h,events=tcp://*:5557,events.mode=zmq,events.bind=no": func(s *attach.Spec) bool {
			return s.Events == "tcp://*:5557" && !*s.Bind
		},
		"sglang=http://h,dp.select=none,load.source=none,total_blocks=7": func(s *attach.Spec) bool {
			return s.OwnRanks && s.NoLoad && s.TotalBlocks == 7
		},
		"vllm=http://h,disagg.side_channel=10.0.0.1:5600": func(s *attach.Spec) bool {
			return s.BootstrapHost == "10.0.0.1" && s.BootstrapPort == 5600
		},
		"ollama=http://h,keep_alive=30m,max_seqs=4": func(s *attach.Spec) bool { return *s.KeepAlive == 30*time.Minute && s.MaxSeqs == 4 },
		"ollama=http://h,keep_alive=-1":             func(s *attach.Spec) bool { return *s.KeepAlive < 0 },
		"llamacpp=http://h,pin_sessions=true":       func(s *attach.Spec) bool { return s.PinSessions },
	} {
		s, err := attach.Parse(text)
		if err != nil || !ok(s) {
			t.Errorf("%s: %+v %v", text, s, err)
		}
	}
}

// However a spec is written, it is one and the same.
func TestText(t *testing.T) {
	const want = `kind=vllm,url=http://h:1,aliases=b,aliases=a,events=tcp://*:5557,headers.X="a, \"b\"",model=m`
	for _, text := range []string{
		`vllm=http://h:1,aliases=b,aliases=a,events=tcp://*:5557,model=m,headers.X="a, \"b\""`,
		` url=http://h:1/, kind=vllm, model=m, headers.X="a, \"b\"", events.endpoint=tcp://*:5557, alias=b, alias=a, drain=true`,
	} {
		s, err := attach.Parse(text)
		if err != nil || s.Text() != want {
			t.Errorf("%s: %v\n%s, want\n%s", text, err, s.Text(), want)
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
		again, err := attach.Parse(s.Text())
		if err != nil || again.Text() != s.Text() {
			t.Fatalf("%q: %q is read as %+v %v", text, s.Text(), again, err)
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
