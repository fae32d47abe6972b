package logs

import (
	"bufio"
	"fmt"
	"log/slog"
	"strings"
)

// Levels beyond those of slog: below debug, and above everything.
const (
	Trace = slog.LevelDebug - 4
	Off   = slog.LevelError + 100
)

// Filter says from which level on lines of each part of the program are written. The
// zero value writes those of all from info on.
type Filter struct {
	base    *slog.Level // nil: nobody has said
	targets map[string]slog.Level
}

// Add reads a list of the form level,target=level,… whose parts win over those that
// were added before.
func (f *Filter) Add(list string) error {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		target, name, ok := strings.Cut(part, "=")
		if !ok {
			target, name = "", part
		}
		if err := f.set(strings.TrimSpace(target), name); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
	}
	return nil
}

func (f *Filter) set(target, name string) error {
	level, known := levels[strings.ToLower(strings.TrimSpace(name))]
	switch {
	case !known:
		return fmt.Errorf("want trace, debug, info, warn, error or off, or target=level")
	case target == "":
		f.base = &level
	default:
		if f.targets == nil {
			f.targets = map[string]slog.Level{}
		}
		f.targets[target] = level
	}
	return nil
}

var levels = map[string]slog.Level{
	"trace": Trace, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "off": Off,
}

// Level returns the level of one part. Where only parts were named, others are silent.
func (f *Filter) Level(target string) slog.Level {
	level, named := f.targets[target]
	switch {
	case named:
		return level
	case f.base != nil:
		return *f.base
	case len(f.targets) > 0:
		return Off
	}
	return slog.LevelInfo
}

// AddFile reads a file of TOML that has log_level, and target = level in a table
// log_filters. Nothing else of TOML is known here, and nothing else may be there.
func (f *Filter) AddFile(text string) error {
	table := ""
	scanner := bufio.NewScanner(strings.NewReader(text))
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			name, rest, ok := strings.Cut(line[1:], "]")
			if !ok || !comment(rest) {
				return fmt.Errorf("line %d: %q: want a table such as [log_filters]", n, line)
			}
			table = strings.TrimSpace(name)
			continue
		}
		key, value, err := pair(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case table == "" && key == "log_level":
			key = ""
		case table != "log_filters":
			return fmt.Errorf("line %d: %s: want log_level, and targets in [log_filters]", n, key)
		}
		if err := f.set(key, value); err != nil {
			return fmt.Errorf("line %d: %q: %w", n, value, err)
		}
	}
	return scanner.Err()
}

// pair reads key = "value".
func pair(line string) (key, value string, err error) {
	wrong := fmt.Errorf("%q: want a line such as frontend = \"debug\"", line)
	if line[0] == '"' || line[0] == '\'' {
		quoted, rest, ok := strings.Cut(line[1:], line[:1])
		if !ok {
			return "", "", wrong
		}
		key, line = quoted, rest
		before, rest, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(before) != "" {
			return "", "", wrong
		}
		line = rest
	} else {
		before, rest, ok := strings.Cut(line, "=")
		if !ok {
			return "", "", wrong
		}
		key, line = strings.TrimSpace(before), rest
	}
	line = strings.TrimSpace(line)
	if key == "" || line == "" || line[0] != '"' && line[0] != '\'' {
		return "", "", wrong
	}
	value, rest, ok := strings.Cut(line[1:], line[:1])
	if !ok || !comment(rest) {
		return "", "", wrong
	}
	return key, value, nil
}

// comment says whether nothing but a comment is there.
func comment(rest string) bool {
	rest = strings.TrimSpace(rest)
	return rest == "" || rest[0] == '#'
}
