//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// One conversation has one answer, by whichever route it comes: the routes of KServe
// are those of completions in other words.
func TestKServeRESTAgrees(t *testing.T) {
	t.Parallel()
	p := serve(t, "--kserve-rest", "--speedup-ratio", "0")
	const text, sampling = `Name \"three\" rivers.`, `"max_tokens":12,"temperature":0`
	var completion struct {
		Choices []struct {
			Text   string
			Reason string `json:"finish_reason"`
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Output int `json:"completion_tokens"`
		}
	}
	p.post("/v1/completions", `{"model":"dynago/demo","prompt":"`+text+`",`+sampling+`}`, &completion)
	want := completion.Choices[0]
	if want.Text == "" || want.Reason != "length" {
		t.Fatalf("%+v", completion)
	}

	var inferred struct {
		Parameters map[string]int
		Outputs    []struct {
			Name string
			Data []string
		}
	}
	p.post("/v2/models/dynago%2Fdemo/infer", `{"parameters":{`+sampling+`},"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1,1],"data":[["`+text+`"]]}]}`, &inferred)
	if o := inferred.Outputs; len(o) != 2 || o[0].Name != "text_output" || o[0].Data[0] != want.Text || o[1].Data[0] != want.Reason || inferred.Parameters["completion_tokens"] != 12 || inferred.Parameters["prompt_tokens"] != completion.Usage.Prompt {
		t.Errorf("infer: %+v, want %+v", inferred, completion)
	}

	type generated struct {
		Text   string `json:"text_output"`
		Reason string `json:"finish_reason"`
		Prompt int    `json:"prompt_tokens"`
		Output int    `json:"completion_tokens"`
	}
	var whole generated
	const ask = `{"text_input":"` + text + `","parameters":{` + sampling + `}}`
	p.post("/v2/models/dynago/demo/versions/1/generate", ask, &whole)
	if (whole != generated{want.Text, want.Reason, completion.Usage.Prompt, 12}) {
		t.Errorf("generate: %+v, want %+v", whole, completion)
	}

	stream := p.send("/v2/models/dynago/demo/generate_stream", ask)
	var folded generated
	pieces := strings.Split(strings.TrimSuffix(stream.body, "\n\n"), "\n\n")
	for _, piece := range pieces {
		var g generated
		if err := json.Unmarshal([]byte(strings.TrimPrefix(piece, "data: ")), &g); err != nil {
			t.Fatalf("%q: %v", piece, err)
		}
		g.Text = folded.Text + g.Text
		folded = g
	}
	if folded != whole || len(pieces) < 12 || stream.header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("generate_stream: %v %s", stream.header, stream.body)
	}
}

func TestKServeRESTIsAskedFor(t *testing.T) {
	t.Parallel()
	off := serve(t)
	if status, body := off.get(off.url + "/v2"); status != 404 || !strings.Contains(body, `"type":"Not Found"`) {
		t.Errorf("nobody asked for it: %d %s", status, body)
	}
	on, _ := kserved(t)
	if status, body := on.get(on.url + "/v2/models/dynago/demo/ready"); status != 200 || body != `{"name":"dynago/demo","ready":true}` {
		t.Errorf("with gRPC: %d %s", status, body)
	}
}

// A large tensor of numbers costs the server a few times its size, and no more.
func TestKServeRESTLargeTensors(t *testing.T) {
	// Garbage is collected often, so that what is measured is what is held.
	p := serveIn(t, []string{"GOGC=25"}, "--kserve-rest", "--tensor-echo", "echo")
	random := rand.New(rand.NewPCG(3, 4))
	data := []byte(`[`)
	n := 0
	for ; len(data) < 16<<20; n++ {
		data = append(strconv.AppendFloat(data, float64(random.Float32()), 'g', -1, 32), ',')
	}
	data[len(data)-1] = ']'
	before := p.peak()
	r := p.send("/v2/models/echo/infer", fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"FP32","shape":[%d],"data":%s}]}`, n, data))
	if r.status != 200 || !strings.HasSuffix(r.body, `"data":`+string(data)+`}]}`) {
		t.Fatalf("%d, %d bytes", r.status, len(r.body))
	}
	if grown := p.peak() - before; grown > 256<<20 {
		t.Errorf("it took %d MB to answer a request of 16 MB", grown>>20)
	}
}

// peak returns the most memory that the program has had, in bytes; 0 where the system
// does not tell.
func (p *program) peak() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	kb, err := strconv.Atoi(string(m[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return kb << 10
}
