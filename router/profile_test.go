package router_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

func policyFile(t rapid.TB, text string) *router.PolicyFile {
	t.Helper()
	f, err := router.ParsePolicyFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wholeFile(t rapid.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestPolicyFile(t *testing.T) {
	f := policyFile(t, string(wholeFile(t)))
	got := ""
	for _, model := range []string{"", "acme/llm"} {
		got += fmt.Sprintf("model %q\n", model)
		for _, c := range f.Profile(model).Classes {
			got += fmt.Sprintf("%s family=%s bucket=%s order=%s quantum=%d busy=%s/%s limits=%s/%s/%s waits=%t\n",
				c.Name, c.Family, c.Bucket, c.Order, c.Quantum,
				optional(c.PrefillBusyThreshold), optional(c.PrefillBusyThresholdFrac),
				optional(c.RequestLimit), optional(c.TokenLimit), optional(c.CachedTokenLimit), c.Waits())
		}
	}
	want := `model ""
chat-hot family=chat bucket=hot order=fcfs quantum=8192 busy=-/1.5 limits=-/-/- waits=true
chat-cold family=chat bucket=cold order=wspt quantum=2048 busy=12000/- limits=16/262144/131072 waits=true
bulk-hot family=bulk bucket=hot order=lcfs quantum=512 busy=0/0 limits=0/-/- waits=true
bulk-cold family=bulk bucket=cold order=fcfs quantum=512 busy=-/- limits=-/-/- waits=false
nightly family= bucket= order=fcfs quantum=256 busy=4000/- limits=-/-/- waits=true
model "acme/llm"
d-all family=d bucket=all order=fcfs quantum=1 busy=-/- limits=-/-/- waits=false
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	selection := &router.Selection{
		Instances: []router.Instance{{Name: "least-busy", Type: "acme-least-busy", Parameters: map[string]any{"margin": 2, "names": []any{"a", "b"}}}},
		Roles:     map[engine.Role]string{engine.Decode: "least-busy", engine.Aggregated: router.DefaultInstance},
	}
	if !reflect.DeepEqual(f.Selection, selection) {
		t.Errorf("%+v, want %+v", f.Selection, selection)
	}
	if got := (*router.PolicyFile)(nil).Profile("m"); got != nil {
		t.Errorf("no file has %v", got)
	}
}

func optional[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

func TestClassify(t *testing.T) {
	f := policyFile(t, string(wholeFile(t)))
	for _, c := range []struct {
		model, class string
		uncached     int
		want         string
	}{
		{"", "", 0, "chat-hot"},
		{"", "", 5999, "chat-hot"},
		{"", "", 6000, "chat-cold"},
		{"", "", 1 << 40, "chat-cold"},
		{"", "chat", 6000, "chat-cold"},
		{"", "bulk", 1, "bulk-hot"},
		{"", "bulk", 6001, "bulk-cold"},
		{"", "nightly", 0, "nightly"},
		{"", "nightly", 100_000, "nightly"},
		{"", "bulk-hot", 0, "chat-hot"}, // a class of a family cannot be named
		{"", "hot", 0, "chat-hot"},
		{"", "unheard-of", 7000, "chat-cold"},
		{"other", "bulk", 0, "bulk-hot"}, // no profile of its own
		{"acme/llm", "bulk", 9999, "d-all"},
		{"acme/llm", "", 0, "d-all"},
	} {
		if got := f.Profile(c.model).Classify(c.class, c.uncached); got.Name != c.want {
			t.Errorf("model %q, class %q, %d uncached: %s, want %s", c.model, c.class, c.uncached, got.Name, c.want)
		}
	}
	p := router.DefaultProfile(nil, router.WSPT)
	for _, class := range []string{"", "default", "x"} {
		if got := p.Classify(class, 1<<40); got != p.Classes[0] || got.Name != "default" || got.Quantum != 1 || got.Order != router.WSPT || got.Waits() {
			t.Errorf("class %q without a file: %+v", class, got)
		}
	}
}

func TestBusy(t *testing.T) {
	for _, c := range []struct {
		absolute       *int
		fraction       *float64
		prefill, batch int
		want           bool
	}{
		{nil, nil, 1 << 60, 1, false},
		{new(0), nil, 0, 8192, false}, // a target with nothing to do is free at 0
		{new(0), nil, 1, 8192, true},
		{new(12000), nil, 12000, 0, false},
		{new(12000), nil, 12001, 0, true},
		{nil, new(1.5), 12288, 8192, false},
		{nil, new(1.5), 12289, 8192, true},
		{nil, new(0.0), 0, 8192, false},
		{nil, new(0.0), 1, 8192, true},
		{nil, new(1.0), 10_000_000, 0, false}, // of a worker that does not tell
		{nil, new(1.0), 10_000_001, 0, true},
		{new(10), new(0.5), 11, 10_000_000, true}, // either will do
		{new(10), new(0.5), 6, 10, true},
		{new(10), new(0.5), 5, 10, false},
	} {
		class := router.Class{PrefillBusyThreshold: c.absolute, PrefillBusyThresholdFrac: c.fraction}
		if got := class.Busy(c.prefill, c.batch); got != c.want {
			t.Errorf("%d waiting of %d in a step, thresholds %s and %s: %t, want %t",
				c.prefill, c.batch, optional(c.absolute), optional(c.fraction), got, c.want)
		}
	}
}

// A wrong file is told by the line, the key, what stands there, and what would
// be right.
func TestBadPolicyFiles(t *testing.T) {
	const good = `default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: hot}, {min_tokens: 10, bucket: cold}]
policy_classes:
  - {name: a, policy_family: chat, cache_bucket: hot, quantum: 1}
  - {name: b, policy_family: chat, cache_bucket: cold, quantum: 2}
`
	policyFile(t, good)
	with := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "it says nothing, want a profile, models or worker_selection"},
		{"a comment", "# none\n", "it says nothing, want a profile, models or worker_selection"},
		{"null", "~", "it says nothing, want a profile, models or worker_selection"},
		{"empty mapping", "{}", "it says nothing, want a profile, models or worker_selection"},
		{"no models", "models: {}", "it says nothing, want a profile, models or worker_selection"},
		{"two documents", good + "---\na: b\n", "line 6: a second document, want one"},
		{"a list", "- a", "line 1: got a list, want a mapping"},
		{"a text", "chat", `line 1: got "chat", want a mapping`},
		{"unknown key", good + "defualt: x\n", "line 6: defualt: it is unknown, want one of models, worker_selection, default_policy_family, uncached_isl_buckets, policy_classes"},
		{"unknown key of a class", with("quantum: 2", "quantm: 2"), "line 5: policy_classes[1].quantm: it is unknown, want one of name, policy_family, cache_bucket, queue_policy, quantum, prefill_busy_threshold, prefill_busy_threshold_frac, request_queue_limit_per_worker, raw_isl_token_queue_limit_per_worker, cached_token_queue_limit_per_worker"},
		{"unknown key of a bucket", with("bucket: cold}", "bucket: cold, max_tokens: 5}"), "line 2: uncached_isl_buckets[1].max_tokens: it is unknown, want one of min_tokens, bucket"},
		{"key twice", good + "default_policy_family: chat\n", "line 6: default_policy_family: it stands in line 1 already"},
		{"key is a list", good + "? [a]\n: b\n", "line 6: a key is no text"},
		{"half a profile", "default_policy_family: chat\nmodels: {}", "line 1: uncached_isl_buckets is missing"},
		{"half a model's profile", "models:\n  m:\n    policy_classes: [{name: a, quantum: 1}]\n", "line 3: models.m: default_policy_family is missing"},
		{"a model without a name", "models: {\"\": {}}", "line 1: models.: a model needs a name"},
		{"models is a list", "models: [m]", "line 1: models: got a list, want a mapping"},
		{"too many buckets", with("[{min_tokens: 0, bucket: hot}, {min_tokens: 10, bucket: cold}]", "["+strings.Repeat("x, ", 1025)+"]"), "line 2: uncached_isl_buckets: got a list of 1025, want at most 1024"},
		{"no buckets", with("[{min_tokens: 0, bucket: hot}, {min_tokens: 10, bucket: cold}]", "[]"), "line 2: uncached_isl_buckets: got a list, want a list with something in it"},
		{"first bucket", with("min_tokens: 0", "min_tokens: 1"), "line 2: uncached_isl_buckets[0].min_tokens: got 1, want 0 for the first bucket"},
		{"buckets not increasing", with("min_tokens: 10", "min_tokens: 0"), "line 2: uncached_isl_buckets[1].min_tokens: got 0, want more than 0, where the bucket before begins"},
		{"negative bucket", with("min_tokens: 10", "min_tokens: -1"), `line 2: uncached_isl_buckets[1].min_tokens: got "-1", want a whole number from 0 to 2^53`},
		{"bucket twice", with("bucket: cold}", "bucket: hot}"), `line 2: uncached_isl_buckets[1].bucket: got "hot", which is the name of another bucket`},
		{"bucket without a name", with(", bucket: cold", ""), "line 2: uncached_isl_buckets[1]: bucket is missing"},
		{"bucket name", with("bucket: cold}", "bucket: so cold}"), `line 2: uncached_isl_buckets[1].bucket: got "so cold", want a name of letters, digits, _, . and -`},
		{"class name", with("name: b", "name: b/c"), `line 5: policy_classes[1].name: got "b/c", want a name of letters, digits, _, . and -`},
		{"class name is empty", with("name: b", `name: ""`), `line 5: policy_classes[1].name: got "", want a name of letters, digits, _, . and -`},
		{"class name is null", with("name: b", `name: ~`), `line 5: policy_classes[1]: name is missing`},
		{"class twice", with("name: b", "name: a"), `line 5: policy_classes[1].name: got "a", which is the name of another class`},
		{"a class is a text", with("- {name: a, policy_family: chat, cache_bucket: hot, quantum: 1}", "- a"), `line 4: policy_classes[0]: got "a", want a mapping`},
		{"quantum missing", with(", quantum: 2", ""), "line 5: policy_classes[1]: quantum is missing"},
		{"quantum 0", with("quantum: 2", "quantum: 0"), `line 5: policy_classes[1].quantum: got "0", want a whole number from 1 to 2^53`},
		{"quantum too large", with("quantum: 2", "quantum: 9007199254740993"), `line 5: policy_classes[1].quantum: got "9007199254740993", want a whole number from 1 to 2^53`},
		{"quantum is a text", with("quantum: 2", `quantum: "2"`), `line 5: policy_classes[1].quantum: got "2", want a whole number from 1 to 2^53`},
		{"quantum is a fraction", with("quantum: 2", "quantum: 1.5"), `line 5: policy_classes[1].quantum: got "1.5", want a whole number from 1 to 2^53`},
		{"queue policy", with("quantum: 2", "quantum: 2, queue_policy: sjf"), `line 5: policy_classes[1].queue_policy: unknown queue policy "sjf": want fcfs, lcfs or wspt`},
		{"threshold", with("quantum: 2", "quantum: 2, prefill_busy_threshold: -1"), `line 5: policy_classes[1].prefill_busy_threshold: got "-1", want a whole number from 0 to 2^53`},
		{"fraction below 0", with("quantum: 2", "quantum: 2, prefill_busy_threshold_frac: -0.1"), `line 5: policy_classes[1].prefill_busy_threshold_frac: got "-0.1", want a finite number, 0 or more`},
		{"fraction infinite", with("quantum: 2", "quantum: 2, prefill_busy_threshold_frac: .inf"), `line 5: policy_classes[1].prefill_busy_threshold_frac: got ".inf", want a finite number, 0 or more`},
		{"fraction is no number", with("quantum: 2", "quantum: 2, prefill_busy_threshold_frac: .nan"), `line 5: policy_classes[1].prefill_busy_threshold_frac: got ".nan", want a finite number, 0 or more`},
		{"limit", with("quantum: 2", "quantum: 2, cached_token_queue_limit_per_worker: many"), `line 5: policy_classes[1].cached_token_queue_limit_per_worker: got "many", want a whole number from 0 to 2^53`},
		{"family without bucket", with("cache_bucket: cold, ", ""), "line 5: policy_classes[1]: cache_bucket is missing"},
		{"bucket without family", with("policy_family: chat, cache_bucket: cold", "cache_bucket: cold"), "line 5: policy_classes[1]: policy_family is missing"},
		{"unknown bucket", with("cache_bucket: cold", "cache_bucket: warm"), `line 5: policy_classes[1].cache_bucket: got "warm", want one of the buckets: hot, cold`},
		{"cell twice", with("cache_bucket: cold", "cache_bucket: hot"), `line 5: policy_classes[1]: family "chat" has a class for bucket "hot" already: a`},
		{"cell empty", with("policy_family: chat, cache_bucket: cold", "policy_family: bulk, cache_bucket: cold"), `line 4: policy_classes: family "chat" has no class for bucket "cold", want one`},
		{"explicit class named like a family", good + "  - {name: chat, quantum: 1}\n", `line 4: policy_classes: class "chat" has the name of a family, want another name`},
		{"default family", with("default_policy_family: chat", "default_policy_family: bulk"), `line 1: default_policy_family: got "bulk", want a family that has classes`},
		{"selection says nothing", "worker_selection: {}", "line 1: worker_selection: it says nothing, want a role or instances"},
		{"selection without its instance", "worker_selection:\n  decode: x\n", `line 2: worker_selection.decode: got "x", want an instance: default`},
		{"selection of an unknown role", "worker_selection: {both: default}", "line 1: worker_selection.both: it is unknown, want one of aggregated, prefill, decode, encode, instances"},
		{"instance named default", "worker_selection: {instances: [{name: default, type: t}]}", `line 1: worker_selection.instances[0].name: "default" is the built-in policy, want another name`},
		{"instance twice", "worker_selection: {instances: [{name: x, type: t}, {name: x, type: t}]}", `line 1: worker_selection.instances[1].name: got "x", which is the name of another instance`},
		{"instance without type", "worker_selection: {instances: [{name: x}]}", "line 1: worker_selection.instances[0]: type is missing"},
		{"parameters", "worker_selection: {instances: [{name: x, type: t, parameters: 1}]}", `line 1: worker_selection.instances[0].parameters: got "1", want a mapping`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := router.ParsePolicyFile([]byte(c.text))
			if want := "router policy file: " + c.want; err == nil || err.Error() != want {
				t.Errorf("%+v %v\nwant %s", f, err, want)
			}
		})
	}
}

// What the file leaves open, or says in another way.
func TestPolicyFileLoosely(t *testing.T) {
	f := policyFile(t, `
worker_selection: ~
default_policy_family: &f chat
uncached_isl_buckets: [{min_tokens: 0, bucket: 1.0}]
policy_classes:
  - {name: a, policy_family: *f, cache_bucket: 1.0, quantum: 1, prefill_busy_threshold: ~, prefill_busy_threshold_frac: 2}
`)
	c := f.Profile("any").Classify("", 5)
	if c.Name != "a" || c.PrefillBusyThreshold != nil || *c.PrefillBusyThresholdFrac != 2 || f.Selection != nil {
		t.Errorf("%+v", c)
	}
	if f := policyFile(t, "worker_selection: {decode: default}"); f.Profile("m") != nil {
		t.Error("a file without profiles has one")
	}
	if f := policyFile(t, "worker_selection: {instances: [{name: x, type: t}]}"); f.Selection.Instances[0].Parameters != nil {
		t.Error("parameters from nowhere")
	}
	if f, err := router.ParsePolicyFile([]byte("models: [")); err == nil {
		t.Errorf("%+v from what is no YAML", f)
	}
}

// FuzzPolicyFile reads arbitrary files. What it accepts has a class for every
// request, and every class is one of the profile's.
func FuzzPolicyFile(f *testing.F) {
	f.Add(wholeFile(f), "bulk", 7000)
	for _, text := range []string{
		"", "~", "{}", "models: {m: ~}", "a: &a [*a]", "worker_selection: &w {decode: default, instances: [{name: x, type: t, parameters: *w}]}",
		"policy_classes: [{name: a, quantum: 1}]", "? [a]\n: b", "--- a\n--- b", "<<: {models: {}}", "\x00", "models: !!binary aGk=",
	} {
		f.Add([]byte(text), "a", 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, class string, uncached int) {
		file, err := router.ParsePolicyFile(data)
		if err != nil {
			if file != nil || !strings.HasPrefix(err.Error(), "router policy file: ") {
				t.Fatalf("%v %v", file, err)
			}
			return
		}
		p := file.Profile(class)
		if p == nil {
			return
		}
		q := router.NewQueue[int](p, epoch)
		for _, c := range append(p.Classes, p.Classify(class, uncached)) {
			it := &router.Item[int]{Class: c, Tokens: 1, Arrived: epoch}
			if err := q.Push(it, 1, epoch); err == nil && !q.Remove(it) {
				t.Errorf("class %s has lost a request", c.Name)
			}
			if c.Quantum < 1 || c.Name == "" {
				t.Errorf("%+v", c)
			}
		}
	})
}

func ExampleParsePolicyFile() {
	_, err := router.ParsePolicyFile([]byte(`
default_policy_family: chat
uncached_isl_buckets:
  - {min_tokens: 0, bucket: all}
policy_classes:
  - {name: chat-all, policy_family: chat, cache_bucket: all, quantum: 4096, prefill_busy_threshold: lots}
`))
	fmt.Println(err)
	// Output:
	// router policy file: line 6: policy_classes[0].prefill_busy_threshold: got "lots", want a whole number from 0 to 2^53
}
