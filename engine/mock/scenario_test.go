package mock_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// TestScenarios plays the files of testdata/scenarios. A file is a list of
// commands, each followed by "----" and the lines it must print:
//
//	args {JSON}                          a new core with these engine arguments
//	submit NAME from=F prompt=N max=M    tokens F, F+1, …; output from 5000 on
//	cancel NAME
//	step                                 one pass, begun when the last one ended
//
// A pass prints its work and what came of it; lines without content are left
// out.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { playFile(t, file) })
	}
}

func playFile(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &scenario{names: make(map[mock.ID]string), ids: make(map[string]mock.ID)}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		command := lines.Text()
		if command == "" || strings.HasPrefix(command, "#") {
			continue
		}
		at := n
		var want []string
		for reading := false; lines.Scan() && lines.Text() != ""; n++ {
			if reading {
				want = append(want, lines.Text())
			}
			reading = reading || lines.Text() == "----"
		}
		n++
		got, err := s.run(command)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", file, at, command, err)
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", file, at, command, g, w)
		}
	}
}

type scenario struct {
	core  *mock.Core
	now   time.Duration
	names map[mock.ID]string
	ids   map[string]mock.ID
}

func (s *scenario) run(command string) (out []string, err error) {
	verb, rest, _ := strings.Cut(command, " ")
	switch verb {
	case "args":
		a, err := mock.ParseArgs([]byte(rest))
		if err != nil {
			return nil, err
		}
		s.core, s.now = mock.NewCore(a), 0
		return nil, nil
	case "submit":
		var name string
		var from, prompt, most int
		if _, err := fmt.Sscanf(rest, "%s from=%d prompt=%d max=%d", &name, &from, &prompt, &most); err != nil {
			return nil, err
		}
		id, err := s.core.Submit(s.now, mock.Request{Prompt: ids(uint32(from), prompt), MaxTokens: most, Generator: &counter{5000}})
		if err != nil {
			return []string{err.Error()}, nil
		}
		s.names[id], s.ids[name] = name, id
		return nil, nil
	case "cancel":
		s.core.Cancel(s.ids[rest])
		return nil, nil
	case "step":
		return s.step(), nil
	}
	return nil, fmt.Errorf("unknown command")
}

func (s *scenario) step() (out []string) {
	res := s.core.Step(s.now)
	if res.Idle {
		return []string{"idle"}
	}
	took := res.End - s.now
	s.now = res.End
	line := func(label string, values []string) {
		if len(values) > 0 {
			out = append(out, label+": "+strings.Join(values, " "))
		}
	}
	out = append(out, fmt.Sprintf("took %s: prefill %d, decode %d", took.Round(time.Microsecond), res.Work.Tokens, res.Work.Decodes))
	line("preempted", s.list(res.Preempted))
	var outputs, events []string
	for _, o := range res.Outputs {
		text := fmt.Sprintf("%s%v", s.names[o.ID], o.Tokens)
		if o.Generated == 1 {
			text += fmt.Sprintf("(cached %d)", o.Cached)
		}
		if o.Finish != "" {
			text += "." + string(o.Finish)
		}
		outputs = append(outputs, text)
	}
	line("outputs", outputs)
	for _, e := range res.Events {
		below := ""
		if e.Kind == kv.Stored && e.HasParent {
			below = "+"
		}
		events = append(events, fmt.Sprintf("%s%s%d", e.Kind, below, len(e.Blocks)))
	}
	line("events", events)
	running, waiting := s.core.Queues()
	line("running", s.list(running))
	line("waiting", s.list(waiting))
	l := s.core.Load()
	return append(out, fmt.Sprintf("blocks: %d/%d", l.UsedBlocks, l.TotalBlocks))
}

func (s *scenario) list(ids []mock.ID) (names []string) {
	for _, id := range ids {
		names = append(names, s.names[id])
	}
	return names
}
