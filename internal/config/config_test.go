package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dynago/dynago/internal/config"
)

type settings struct {
	Config  config.Path   `name:"config" env:"T_CONFIG" action:"read"`
	Port    int           `name:"port" env:"T_PORT,T_OLD_PORT" aliases:"p-ort" default:"80" range:"0..65535" group:"Net"`
	Admin   *int          `name:"admin" env:"T_ADMIN" range:"1.." group:"Net"`
	Weight  float64       `name:"weight" env:"T_WEIGHT" default:"0.5" range:"0..1"`
	Wait    time.Duration `name:"wait" env:"T_WAIT" default:"5s" unit:"ms"`
	On      bool          `name:"on" env:"T_ON" default:"true" negatable:""`
	Record  bool          `name:"record" env:"T_RECORD" lax:""`
	Mode    string        `name:"mode" env:"T_MODE" default:"left-hand" choice:"left-hand,right" also:"l=left-hand"`
	Name    string        `name:"name" env:"T_NAME"`
	Counter uint64        `name:"counter" env:"T_COUNTER"`
}

type cli struct {
	Do struct{ settings } `cmd:""`
}

func parse(t testing.TB, args ...string) (settings, *config.Parsed, error) {
	t.Helper()
	var c cli
	p, err := config.New(&c, kong.Exit(func(int) { panic("exit") }), kong.Writers(&bytes.Buffer{}, &bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := p.Parse(append([]string{"do"}, args...))
	return c.Do.settings, parsed, err
}

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestValues(t *testing.T) {
	n := 7
	for _, c := range []struct {
		args []string
		want settings
	}{
		{nil, settings{Port: 80, Weight: 0.5, Wait: 5 * time.Second, On: true, Mode: "left-hand"}},
		{
			[]string{"--port=0", "--admin", "7", "--weight", "1", "--wait", "250", "--no-on", "--mode", "RIGHT", "--name", "1.10", "--counter", "18446744073709551615"},
			settings{Port: 0, Admin: &n, Weight: 1, Wait: 250 * time.Millisecond, Mode: "right", Name: "1.10", Counter: 1<<64 - 1},
		},
		{
			[]string{"--p-ort=9", "--wait", "1m", "--on=yes", "--mode", "left_hand"},
			settings{Port: 9, Weight: 0.5, Wait: time.Minute, On: true, Mode: "left-hand"},
		},
		{[]string{"--mode", "L"}, settings{Port: 80, Weight: 0.5, Wait: 5 * time.Second, On: true, Mode: "left-hand"}},
	} {
		got, _, err := parse(t, c.args...)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v %v, want %+v", c.args, got, err, c.want)
		}
	}
}

// Words for true and false, and what is none of them: of a variable that may be any word
// that is false, of all else it is an error.
func TestSwitches(t *testing.T) {
	for _, c := range []struct {
		env, arg, file string
		want           bool
		err            string
	}{
		{env: "1", want: true},
		{env: " 1 ", want: true},
		{arg: "--record= true", want: true},
		{file: `"YES "`, want: true},
		{env: "\tOff\n", file: "true"},
		{env: "0", arg: "--record", want: true},
		{env: "perhaps"},
		{env: "perhaps", file: "true"},
		{env: "perhaps", arg: "--record", want: true},
		{env: "perhaps", arg: "--record=perhaps", err: `--record: "perhaps": want true, false`},
		{arg: "--record=perhaps", err: `--record: "perhaps": want true, false`},
		{file: "perhaps", err: `--record: "perhaps": want true, false`},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			var args []string
			if c.env != "" {
				t.Setenv("T_RECORD", c.env)
			}
			if c.file != "" {
				args = append(args, "--config", write(t, "record: "+c.file+"\n"))
			}
			if c.arg != "" {
				args = append(args, c.arg)
			}
			got, _, err := parse(t, args...)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %s", err, c.err)
				}
				return
			}
			if err != nil || got.Record != c.want {
				t.Errorf("%v %v, want %v", got.Record, err, c.want)
			}
		})
	}
	t.Setenv("T_ON", "perhaps")
	if _, _, err := parse(t); err == nil || !strings.Contains(err.Error(), `--on: "perhaps": want true, false`) {
		t.Errorf("a variable that may not be any word: %v", err)
	}
}

func TestBadValues(t *testing.T) {
	for arg, want := range map[string]string{
		"--port=-1":                  "--port: -1: want 0..65535",
		"--port=1e3":                 "--port: 1e3: want 0..65535",
		"--port=":                    "--port: : want 0..65535",
		"--admin=0":                  "--admin: 0: want 1..",
		"--weight=Inf":               "--weight: Inf: want 0..1",
		"--weight=-0.1":              "--weight: -0.1: want 0..1",
		"--wait=-1":                  `--wait: "-1": want a duration such as 30s or 1m30s, or a number of milliseconds`,
		"--on=maybe":                 `--on: "maybe": want true, false, yes, no, on, off, 1 or 0`,
		"--mode=up":                  `--mode: "up": want left-hand or right`,
		"--counter=-1":               "--counter: -1: want a whole number",
		"--counter=1.5":              "--counter: 1.5: want a whole number",
		"--port=9223372036854775808": "--port: 9223372036854775808: want 0..65535",
	} {
		if _, _, err := parse(t, arg); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

// Every pair of sources, and where the value is said to come from.
func TestPrecedence(t *testing.T) {
	path := write(t, "port: 1\n")
	for _, c := range []struct {
		flag, env, old, file bool
		want                 int
		source               string
	}{
		{want: 80, source: "default"},
		{file: true, want: 1, source: path + " line 1"},
		{old: true, file: true, want: 2, source: "T_OLD_PORT"},
		{env: true, old: true, file: true, want: 3, source: "T_PORT"},
		{flag: true, env: true, old: true, file: true, want: 4, source: "flag"},
		{flag: true, file: true, want: 4, source: "flag"},
		{flag: true, old: true, want: 4, source: "flag"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			var args []string
			if c.file {
				t.Setenv("T_CONFIG", path)
			}
			if c.old {
				t.Setenv("T_OLD_PORT", "2")
			}
			if c.env {
				t.Setenv("T_PORT", "3")
			}
			if c.flag {
				args = append(args, "--port", "4")
			}
			got, parsed, err := parse(t, args...)
			if err != nil || got.Port != c.want {
				t.Fatalf("%d %v, want %d", got.Port, err, c.want)
			}
			if s := parsed.Settings()[0]; s.Name != "port" || s.Source != c.source || s.Group != "Net" {
				t.Errorf("%+v, want source %s", s, c.source)
			}
		})
	}
}

// A wrong file is told by the line, and the first one at that.
func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"prt: 1":                         `line 1: there is no setting "prt"; did you mean port?`,
		"port: 1\nzz: 2\nyy: 3":          `line 2: there is no setting "zz"`,
		"port: 1\np:\n  ort: 5\nport: 2": `line 4: port stands in line 1 already`,
		"port: [1]":                      `line 1: port: want one value`,
		"- x":                            `line 1: want "name: value" lines`,
		"name: a\nport: 70000":           `--port: 70000: want 0..65535 (FILE line 2)`,
		"wait: soon":                     `--wait: "soon": want a duration such as 30s or 1m30s, or a number of milliseconds (FILE line 1)`,
		"a: &x {b: 1, c: *x}":            `line 1: a-c: want one value`,
	} {
		path := write(t, text)
		_, _, err := parse(t, "--config", path)
		if want := strings.ReplaceAll(want, "FILE", path); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, _, err := parse(t, "--config", missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("no file: %v", err)
	}
}

func TestDumpRoundTrip(t *testing.T) {
	args := []string{"--port", "81", "--wait", "90s", "--no-on", "--name", "yes: \"quoted\" # 'text'", "--weight", "0.25"}
	want, parsed, err := parse(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := parsed.Dump(&text); err != nil {
		t.Fatal(err)
	}
	path := write(t, text.String())
	got, _, err := parse(t, "--config", path)
	want.Config, got.Config = "", ""
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v, want %+v, from\n%s", got, err, want, text.String())
	}
}

// What may be given several times is written so that it can be read again.
func TestDumpOfLists(t *testing.T) {
	type lists struct {
		Config config.Path `name:"config" action:"read"`
		Names  []string    `name:"names"`
		None   []string    `name:"none"`
	}
	read := func(args ...string) (*lists, *config.Parsed) {
		var c struct {
			Do lists `cmd:""`
		}
		p, err := config.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := p.Parse(append([]string{"do"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		return &c.Do, parsed
	}
	want, parsed := read("--names", "a=b", "--names", "c-*=d e")
	var text strings.Builder
	if err := parsed.Dump(&text); err != nil {
		t.Fatal(err)
	}
	if got, _ := read("--config", write(t, text.String())); !slices.Equal(got.Names, want.Names) || len(got.None) != 0 || len(want.Names) != 2 {
		t.Errorf("read %q and %q, want %q, from\n%s", got.Names, got.None, want.Names, text.String())
	}
}

// A list in a file gives what as many flags would, and a mapping in it is one text.
func TestLists(t *testing.T) {
	type lists struct {
		Config config.Path `name:"config" action:"read"`
		Engine []string    `name:"engine" sep:";" secret:"key="`
	}
	read := func(args ...string) (*lists, *config.Parsed, error) {
		var c struct {
			Do lists `cmd:""`
		}
		p, err := config.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := p.Parse(append([]string{"do"}, args...))
		return &c.Do, parsed, err
	}
	path := write(t, `engine:
  - a=b,c=d
  - {kind: a, dp: {size: 2, start: 3}, none: ~, text: "x, \"y\";", json: '{"a": 1, "b": 2}', quoted: '"z'}
`)
	want := []string{"a=b,c=d", `kind=a,dp.size=2,dp.start=3,text="x, \"y\";",json={"a": 1, "b": 2},quoted="\"z"`}
	got, parsed, err := read("--config", path)
	if err != nil || !slices.Equal(got.Engine, want) {
		t.Fatalf("%q %v, want %q", got.Engine, err, want)
	}
	if s := parsed.Settings()[0]; s.Source != path+" line 1" || s.Secret {
		t.Errorf("%+v", s)
	}
	var text strings.Builder
	if err := parsed.Dump(&text); err != nil {
		t.Fatal(err)
	}
	if got, _, err := read("--config", write(t, text.String())); err != nil || !slices.Equal(got.Engine, want) {
		t.Errorf("%q %v, from\n%s", got.Engine, err, text.String())
	}
	if _, parsed, err := read("--engine", "a=b,key=hush"); err != nil || parsed.Settings()[0].Value != "(secret)" {
		t.Errorf("%+v %v", parsed.Settings()[0], err)
	}
	for text, want := range map[string]string{
		"engine:\n  - [a]":        "line 2: engine: want a value, or a mapping, as item of the list",
		"engine:\n  - {a: [[b]]}": "line 2: engine: a: want a list of values",
		"config: [a]":             "line 1: config: want one value",
	} {
		if _, _, err := read("--config", write(t, text)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A mapping may stand for a list whose items have names.
func TestNamedLists(t *testing.T) {
	type lists struct {
		Config  config.Path `name:"config" action:"read"`
		Tenants []string    `name:"tenants" sep:";" named:"name"`
	}
	read := func(text string) ([]string, error) {
		var c struct {
			Do lists `cmd:""`
		}
		p, err := config.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Parse([]string{"do", "--config", write(t, text)})
		return c.Do.Tenants, err
	}
	want := []string{"name=a_b-c,max_priority=5,ttl=1h", "name=free", `name="x,y",n=1`}
	for _, text := range []string{
		"tenants:\n  a_b-c: {max_priority: 5, ttl: 1h}\n  free:\n  'x,y': {n: 1}\n",
		"tenants: ['name=a_b-c,max_priority=5,ttl=1h', {name: free}, 'name=\"x,y\",n=1']",
	} {
		if got, err := read(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	for text, want := range map[string]string{
		"tenants:\n  a: 5":               "line 2: tenants: a: want \"name: value\" lines",
		"tenants:\n  a: {b: [[c]]}":      "line 2: tenants: b: want a list of values",
		"tenants: {a: }\ntenants: {b: }": "line 2: tenants stands in line 1 already",
	} {
		if got, err := read(text); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %q %v, want %s", text, got, err, want)
		}
	}
}

// FuzzFile reads arbitrary files: the parser answers or complains, and a value
// that it accepts is within its bounds.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"port: 1", "port: [1]", "{port: 1, on: off}", "p:\n  ort: 5", "- x", "a: &x {b: *x}", "port: 1\nport: 2",
		"? {a: b}\n: c", "port: !!binary aGk=", "mode: left_hand\nname: ~", "\x00", "wait: 1e3",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, _, err := parse(t, "--config", write(t, text))
		if err == nil && (s.Port < 0 || s.Port > 65535 || s.Weight < 0 || s.Weight > 1 || s.Wait < 0 || s.Mode != "left-hand" && s.Mode != "right") {
			t.Errorf("%q was read as %+v", text, s)
		}
	})
}

func Example() {
	var c struct {
		Serve struct {
			Port int    `name:"port" env:"EXAMPLE_PORT" default:"8000" range:"0..65535"`
			Mode string `name:"mode" env:"EXAMPLE_MODE" default:"kv" choice:"kv,round-robin"`
		} `cmd:""`
	}
	parser, err := config.New(&c)
	if err != nil {
		fmt.Println(err)
		return
	}
	parsed, err := parser.Parse([]string{"serve", "--mode", "round_robin"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range parsed.Settings() {
		fmt.Println(s.Name, s.Value, s.Source)
	}
	_, err = parser.Parse([]string{"serve", "--port", "99999"})
	fmt.Println(err)
	// Output:
	// port 8000 default
	// mode round-robin flag
	// --port: 99999: want 0..65535
}
