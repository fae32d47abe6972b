package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
	"github.com/dynago/dynago/bench/stats"
)

func TestCPUOfProcessStatus(t *testing.T) {
	// The name of a program may hold brackets and blanks.
	const stat = "4711 (a) b (c)) S 1 4711 4711 0 -1 4194304 5 0 0 0 123 45 9 9 20 0 7 0 100 0 0"
	got, err := parseCPU(stat)
	if want := 1680 * time.Millisecond; got != want || err != nil {
		t.Errorf("parseCPU = %v, %v; want %v", got, err, want)
	}
	if _, err := parseCPU("4711 (a) S 1"); err == nil {
		t.Error("no error for a status that is cut off")
	}
}

func TestRSSOfRollup(t *testing.T) {
	got, err := parseRSS("55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:                9876 kB\nPss:                 100 kB\n")
	if got != 9876*1024 || err != nil {
		t.Errorf("parseRSS = %v, %v; want %d", got, err, 9876*1024)
	}
	if _, err := parseRSS("Pss: 100 kB\n"); err == nil {
		t.Error("no error for a rollup without Rss")
	}
}

func TestMetricsPage(t *testing.T) {
	p, err := parsePage(strings.NewReader(`# TYPE dynamo_frontend_active_requests gauge
dynamo_frontend_active_requests{model="a"} 2
dynamo_frontend_active_requests{model="b"} 3
# TYPE dynamo_frontend_worker_active_decode_blocks gauge
dynamo_frontend_worker_active_decode_blocks{worker_id="1",dp_rank="none",worker_type="decode"} 7
# TYPE go_goroutines gauge
go_goroutines 31
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"dynamo_frontend_active_requests":             5,
		"dynamo_frontend_worker_active_decode_blocks": 7,
		"go_goroutines": 31,
	} {
		if got, err := p.value(name); got != want || err != nil {
			t.Errorf("%s = %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := p.value("dynamo_frontend_inflight_requests"); err == nil {
		t.Error("no error for a family that is not there: it must not count as zero")
	}
}

func TestPartIsJudgedByItsLines(t *testing.T) {
	p := median("cost", "µs", []float64{90, 160, 110}).against("bare", 55).atMost(150).aim(100)
	if p.Value != 110 || p.Runs != 3 || p.Spread.Min != 90 || p.Spread.Max != 160 || *p.Ratio != 2 {
		t.Errorf("part %+v, want the median, its spread and the ratio", p)
	}
	if !*p.Pass || *p.Aim {
		t.Errorf("pass %v, aim %v; want it to pass and to miss the aim", *p.Pass, *p.Aim)
	}
	const want = "cost: 110 µs (90 to 160 in 3 runs), 2.00× bare at 55; pass ≤ 150: yes; aim ≤ 100: NO"
	if got := p.line(); got != want {
		t.Errorf("line %q, want %q", got, want)
	}
}

func TestPartOfWhichMoreIsBetter(t *testing.T) {
	p := median("rate", "1/s", []float64{70, 90, 65}).atLeast(60).aimAtLeast(150)
	if !*p.Pass || *p.Aim {
		t.Errorf("pass %v, aim %v; want it to pass and to miss the aim", *p.Pass, *p.Aim)
	}
	const want = "rate: 70 1/s (65 to 90 in 3 runs); pass ≥ 60: yes; aim ≥ 150: NO"
	if got := p.line(); got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if p = p.atLeast(71).aimAtLeast(70); *p.Pass || !*p.Aim {
		t.Errorf("pass %v, aim %v; want only what reaches its line", *p.Pass, *p.Aim)
	}
}

func TestRecord(t *testing.T) {
	good := count("hung requests", 0).atMost(0)
	bad := count("wrong answers", 2).atMost(0)
	told := count("answers", 9)
	f := figure{id: "B16", what: "soak"}
	tests := []struct {
		name  string
		parts []part
		want  map[string]any
	}{
		{"one part is inline", []part{good}, map[string]any{"id": "B16", "what": "hung requests", "value": 0.0, "unit": "count", "pass": true, "parts": nil}},
		{"several are a list", []part{good, told}, map[string]any{"id": "B16", "what": "soak", "value": nil, "pass": true}},
		{"one that fails fails all", []part{good, bad}, map[string]any{"pass": false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.json")
			if err := writeRecords(path, []record{newRecord(f, tt.parts, machine{CPU: "abacus"})}); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			for key, want := range tt.want {
				if !reflect.DeepEqual(got[key], want) {
					t.Errorf("%s = %v, want %v in %s", key, got[key], want, text)
				}
			}
			if m, _ := got["machine"].(map[string]any); m["cpu"] != "abacus" {
				t.Errorf("machine = %v", got["machine"])
			}
		})
	}
}

func TestAimIsMetOnlyIfItWasTriedFor(t *testing.T) {
	met, missed := count("a", 1).atMost(2).aim(1), count("b", 2).atMost(2).aim(1)
	without := count("c", 0).atMost(0)
	for _, tt := range []struct {
		name  string
		parts []part
		want  bool
	}{
		{"met", []part{met, without}, true},
		{"missed by one", []part{met, missed}, false},
		{"no part has one", []part{without}, false},
	} {
		if got := newRecord(figure{}, tt.parts, machine{}).Aim; got != tt.want {
			t.Errorf("%s: aim = %v, want %v", tt.name, got, tt.want)
		}
	}
	for soak, want := range map[time.Duration]bool{10 * time.Minute: false, 2 * time.Hour: true} {
		b := &bench{soak: soak}
		flat := []stats.Point{{At: soak / 2, Value: 1}, {At: soak, Value: 1}}
		if got := newRecord(figure{}, b.soakParts(loadgen.Result{}, flat, leftovers{}), machine{}).Aim; got != want {
			t.Errorf("clean soak of %v: aim = %v, want %v", soak, got, want)
		}
	}
}

func TestOnlyCountsBreakABuild(t *testing.T) {
	slow := median("cost", "µs", []float64{200}).atMost(150)
	wrong := count("wrong answers", 1).atMost(0)
	told := count("answers", 9)
	for _, tt := range []struct {
		name  string
		parts []part
		want  bool
	}{
		{"slow", []part{slow}, false},
		{"wrong", []part{wrong}, true},
		{"wrong among others", []part{slow, told, wrong}, true},
		{"not judged", []part{told}, false},
	} {
		if got := newRecord(figure{}, tt.parts, machine{}).broken(); got != tt.want {
			t.Errorf("%s: broken = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestChosenFigures(t *testing.T) {
	tests := []struct {
		ids  idList
		want []string
		err  string
	}{
		{idList{"B15", "B8"}, []string{"B8", "B15"}, ""},
		{idList{"ALL"}, []string{"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B7H", "B8", "B8H", "B9", "B9H", "B10", "B11", "B11L", "B12", "B13", "B14", "B15", "B16", "B18", "B20", "B21", "B21H", "B22", "B23", "B24", "B25", "B26", "B27", "B28"}, ""},
		{nil, nil, "no -id"},
		{idList{"B99"}, nil, "-id B99: want one of B1"},
	}
	for _, tt := range tests {
		chosen, err := tt.ids.figures()
		var got []string
		for _, f := range chosen {
			got = append(got, f.id)
		}
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%v: %v, %v; want %v, %q", tt.ids, got, err, tt.want, tt.err)
		}
	}
	var list idList
	if err := list.Set("b8, B9"); err != nil || !slices.Equal(list, idList{"B8", "B9"}) {
		t.Errorf("list %v, %v", list, err)
	}
}

func TestUsageErrorsNeedNoBuild(t *testing.T) {
	var out, log bytes.Buffer
	if _, err := run(t.Context(), []string{"-id", "B0"}, &out, &log); err == nil || out.Len() > 0 {
		t.Errorf("error %v after printing %q, want a refusal at once", err, out.String())
	}
}

func TestSoakIsJudged(t *testing.T) {
	var heap []stats.Point
	for i := range 121 {
		at := time.Duration(i) * 5 * time.Second
		value := 100.0
		if at < soakWarmUp {
			value = 50 + at.Minutes() // growth that is not to count
		}
		heap = append(heap, stats.Point{At: at, Value: value})
	}
	leaking := slices.Clone(heap)
	for i := range leaking {
		leaking[i].Value += 3 * leaking[i].At.Minutes()
	}
	clean := leftovers{}
	long, brief := &bench{soak: 10 * time.Minute}, &bench{soak: 20 * time.Second}
	tests := []struct {
		name string
		b    *bench
		load loadgen.Result
		heap []stats.Point
		left leftovers
		want bool
	}{
		{"clean", long, loadgen.Result{Requests: 9}, heap, clean, true},
		{"hung", long, loadgen.Result{Hung: 1}, heap, clean, false},
		{"wrong", long, loadgen.Result{Wrong: 1}, heap, clean, false},
		{"request left", long, loadgen.Result{}, heap, leftovers{requests: 1}, false},
		{"booking left", long, loadgen.Result{}, heap, leftovers{blocks: 1}, false},
		{"goroutine left", long, loadgen.Result{}, heap, leftovers{goroutines: goroutines{"f": 1}}, false},
		{"heap grows", long, loadgen.Result{}, leaking, clean, false},
		{"too short to judge the heap", brief, loadgen.Result{}, leaking, clean, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parts := tt.b.soakParts(tt.load, tt.heap, tt.left)
			if r := newRecord(figure{}, parts, machine{}); r.Pass != tt.want {
				t.Errorf("pass = %v, want %v:\n%s", r.Pass, tt.want, r.lines())
			}
		})
	}
}
