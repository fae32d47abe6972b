package parser_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// A testCase is one case of a file in testdata:
//
//	== its name
//	family=hermes tools=ls,cat start=reasoning reason=length
//	schema ls {"properties": …}
//	| the generated text, line by line;
//	| the last line has no newline
//	R "a thinking block"
//	T "a text block"
//	C name {"the":"arguments"}
//	C name @native-id {"the":"arguments"}
//	C! name {"cut":
//	D reason "dropped"
//	= reason of the finish
//
// The family is one of [families], or the names of a tool-call parser and of a
// reasoning parser with a plus between them. Other settings: choice=none,
// think=off, parallel=off, allowed=NAME,…, guided=json, guided=calls or
// guided=NAME, and history=ID,… for the native ids of calls that the conversation
// has had.
type testCase struct {
	name, text string
	family     parser.Family
	opts       parser.Options
	reason     chat.FinishReason
	want       []string
}

func readCases(t testing.TB) []testCase {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	var cases []testCase
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var c *testCase
		var lines []string
		end := func() {
			if c != nil {
				c.text = strings.Join(lines, "\n")
				cases = append(cases, *c)
			}
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			line := sc.Text()
			switch {
			case line == "" || line[0] == '#':
			case strings.HasPrefix(line, "== "):
				end()
				c, lines = &testCase{name: strings.TrimSuffix(filepath.Base(name), ".txt") + "/" + line[3:]}, nil
			case strings.HasPrefix(line, "|"):
				lines = append(lines, strings.TrimPrefix(line[1:], " "))
			case strings.HasPrefix(line, "family="):
				readSettings(t, c, line)
			case strings.HasPrefix(line, "schema "):
				name, schema, _ := strings.Cut(line[len("schema "):], " ")
				i := slices.IndexFunc(c.opts.Tools, func(t chat.Tool) bool { return t.Name == name })
				if i < 0 || !json.Valid([]byte(schema)) {
					t.Fatalf("%s: schema of no tool, or no schema: %s", c.name, line)
				}
				c.opts.Tools[i].Schema = json.RawMessage(schema)
			default:
				c.want = append(c.want, line)
			}
		}
		end()
	}
	return cases
}

// familyOf returns the family of a name in testdata.
func familyOf(t testing.TB, name string) parser.Family {
	t.Helper()
	if f, ok := families[name]; ok {
		return f
	}
	tool, reasoning, _ := strings.Cut(name, "+")
	if reasoning == "" {
		reasoning = "none"
	}
	f, err := parser.Family{}.With(tool, reasoning)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func readSettings(t testing.TB, c *testCase, line string) {
	t.Helper()
	c.opts.ThinkOn, c.reason = true, chat.FinishStop
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "family":
			c.family = familyOf(t, value)
		case "tools":
			c.opts.ToolsOn = true
			for name := range strings.SplitSeq(value, ",") {
				c.opts.Tools = append(c.opts.Tools, chat.Tool{Kind: chat.ToolFunction, Name: name})
			}
		case "choice":
			c.opts.ToolsOn = value != "none"
		case "think":
			c.opts.ThinkOn = value != "off"
		case "start":
			c.opts.Start = map[string]parser.Start{"reasoning": parser.StartReasoning, "response": parser.StartResponse}[value]
		case "reason":
			c.reason = chat.FinishReason(value)
		case "allowed":
			c.opts.Allowed = strings.Split(value, ",")
		case "guided":
			c.opts.Mode = map[string]parser.Mode{"json": parser.ModeJSON, "calls": parser.ModeCalls}[value]
			if c.opts.Mode == parser.ModeNative {
				c.opts.Mode, c.opts.Named, c.opts.Allowed = parser.ModeArgs, value, []string{value}
			}
		case "parallel":
			c.opts.Parallel = new(value != "off")
		case "history":
			for id := range strings.SplitSeq(value, ",") {
				name, _, _ := chat.SplitID(id)
				c.opts.History = append(c.opts.History, &chat.ToolUse{ID: id, NativeID: id, Name: name})
			}
		default:
			t.Fatalf("%s: unknown setting %q", c.name, key)
		}
	}
}

// numbered makes ids that are equal in every run of a case.
func numbered(o parser.Options) parser.Options {
	n := 0
	o.NewID = func() string { n++; return fmt.Sprintf("call_%024d", n) }
	return o
}

// tester is a test, or a check of one.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// render writes events the way the files in testdata do. It joins the deltas of
// a block, and checks that the events are in order.
func render(t tester, events []chat.Event, reason chat.FinishReason) []string {
	t.Helper()
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		_ = yield(chat.Event{Kind: chat.Start}, nil)
		for _, e := range events {
			_ = yield(e, nil)
		}
		_ = yield(chat.Event{Kind: chat.Finished}, nil)
	})
	if err != nil {
		t.Fatalf("%v in %+v", err, events)
	}
	truncated := map[int]bool{}
	dropped := map[int][]string{} // by the number of blocks begun before
	var last *string
	begun := 0
	for _, e := range events {
		switch e.Kind {
		case chat.BlockStop:
			truncated[e.Index] = e.Truncated
			last = nil
		case chat.BlockStart:
			begun, last = e.Index+1, nil
		case chat.Dropped:
			if e.Reason == parser.DroppedParallel && last != nil {
				*last += e.Text
				continue
			}
			dropped[begun] = append(dropped[begun], e.Reason+"\x00"+e.Text)
			last = &dropped[begun][len(dropped[begun])-1]
		}
	}
	var lines []string
	drops := func(i int) {
		for _, d := range dropped[i] {
			why, text, _ := strings.Cut(d, "\x00")
			lines = append(lines, fmt.Sprintf("D %s %q", why, text))
		}
	}
	for i, b := range answers[0].Blocks {
		drops(i)
		switch {
		case b.Kind == chat.Text:
			lines = append(lines, fmt.Sprintf("T %q", b.Text))
		case b.Kind == chat.Thought:
			lines = append(lines, fmt.Sprintf("R %q", b.Text))
		default:
			mark := "C"
			if truncated[i] {
				mark = "C!"
			}
			name := b.Use.Name
			if b.Use.NativeID != "" {
				name += " @" + b.Use.NativeID
			}
			lines = append(lines, fmt.Sprintf("%s %s %s", mark, name, b.Use.Args))
		}
		if b.Text == "" && b.Use == nil {
			t.Errorf("block %d is empty", i)
		}
	}
	drops(len(answers[0].Blocks))
	return append(lines, "= "+string(reason))
}

// parse pushes a text in the given pieces.
func parse(t tester, c *testCase, pieces ...string) []string {
	t.Helper()
	p := parser.New(c.family, numbered(c.opts))
	var events []chat.Event
	for _, s := range pieces {
		events = p.Push(events, chat.Piece{Text: s})
	}
	events, reason := p.Finish(events, c.reason)
	checkOrder(t, strings.Join(pieces, ""), events)
	out := 0
	for _, e := range events {
		out += len(e.Text)
	}
	if in := len(strings.Join(pieces, "")); in != out+p.Markup() || p.Held() != 0 {
		t.Errorf("%d bytes in, %d out or dropped, %d markup, %d held", in, out, p.Markup(), p.Held())
	}
	return render(t, events, reason)
}

// checkOrder fails the test if what was said does not stand in the text in the
// same order. Arguments may be written anew, and are left out.
func checkOrder(t tester, text string, events []chat.Event) {
	t.Helper()
	for _, e := range events {
		if e.Kind == chat.ArgsDelta || e.Text == "" {
			continue
		}
		for i := range len(e.Text) {
			at := strings.IndexByte(text, e.Text[i])
			if at < 0 {
				t.Errorf("%q is not in its place", e.Text)
				return
			}
			text = text[at+1:]
		}
	}
}

func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parse(t, &c, c.text)); diff != "" {
				t.Fatalf("%q in one piece (-want +got):\n%s", c.text, diff)
			}
			for i := range len(c.text) {
				if diff := cmp.Diff(c.want, parse(t, &c, c.text[:i], c.text[i:])); diff != "" {
					t.Fatalf("%q + %q (-want +got):\n%s", c.text[:i], c.text[i:], diff)
				}
			}
			if diff := cmp.Diff(c.want, parse(t, &c, strings.Split(c.text, "")...)); diff != "" {
				t.Fatalf("%q, rune by rune (-want +got):\n%s", c.text, diff)
			}
		})
	}
}

// What a generation says does not depend on why it ended.
func TestBlocksDoNotDependOnTheReason(t *testing.T) {
	for _, c := range readCases(t) {
		for _, reason := range []chat.FinishReason{chat.FinishStop, chat.FinishLength, chat.FinishToolUse, ""} {
			c.reason = reason
			got := parse(t, &c, c.text)
			if diff := cmp.Diff(c.want[:len(c.want)-1], got[:len(got)-1]); diff != "" {
				t.Errorf("%s, reason %q: (-want +got):\n%s", c.name, reason, diff)
			}
		}
	}
}
