package loadgen_test

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/bench/loadgen"
)

// collect reads all events as "name|data".
func collect(r io.Reader) ([]string, error) {
	var got []string
	for event, err := range loadgen.Events(bufio.NewReaderSize(r, 16)) {
		if err != nil {
			return got, err
		}
		got = append(got, event.Name+"|"+string(event.Data))
	}
	return got, nil
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	tests := []struct {
		name, stream string
		want         []string
		err          error
	}{
		{"nothing", "", nil, nil},
		{"two events", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}, nil},
		{"carriage returns", "data: a\r\n\r\n", []string{"|a"}, nil},
		{"no blank after the colon", "data:a\n\n", []string{"|a"}, nil},
		{"only one blank is dropped", "data:  a\n\n", []string{"| a"}, nil},
		{"named", "event: ping\ndata: {}\n\ndata: x\n\n", []string{"ping|{}", "|x"}, nil},
		{"several data lines", "data: a\ndata: b\n\n", []string{"|a\nb"}, nil},
		{"comments and other fields", ": keep-alive\n\nid: 7\nretry: 9\ndata: a\n\n", []string{"|a"}, nil},
		{"name without data", "event: request_id\n: \"1\"\n\ndata: a\n\n", []string{"|a"}, nil},
		{"empty data", "data\n\ndata:\n\n", []string{"|", "|"}, nil},
		{"line longer than the buffer", "data: " + long + "\n\n", []string{"|" + long}, nil},
		{"cut in a line", "data: a\n\ndata: b", []string{"|a"}, io.ErrUnexpectedEOF},
		{"cut before the blank line", "data: a\n", nil, io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.stream), iotest.OneByteReader(strings.NewReader(tt.stream))} {
				got, err := collect(r)
				if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
					t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.err)
				}
			}
		})
	}
}

func TestEventsOfBrokenSource(t *testing.T) {
	broken := errors.New("cable pulled")
	_, err := collect(io.MultiReader(strings.NewReader("data: a\n\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
}

// TestEventsRoundTrip writes random events and reads them back.
func TestEventsRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[a-z{}":, ]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		var stream strings.Builder
		var want []string
		for range rapid.IntRange(0, 10).Draw(t, "events") {
			lines := rapid.SliceOfN(text, 1, 3).Draw(t, "lines")
			for _, line := range lines {
				stream.WriteString("data: " + line + "\n")
			}
			stream.WriteString("\n")
			want = append(want, "|"+strings.Join(lines, "\n"))
		}
		got, err := collect(strings.NewReader(stream.String()))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}

// FuzzEvents holds the reader against one that has the whole stream at once.
func FuzzEvents(f *testing.F) {
	f.Add("data: a\n\nevent: x\ndata: b\n\n")
	f.Add("data: a\r\n\r\n: c\n\ndata")
	f.Fuzz(func(t *testing.T, stream string) {
		got, err := collect(strings.NewReader(stream))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if want := naiveEvents(stream); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func naiveEvents(stream string) []string {
	lines := strings.Split(stream, "\n")
	var events, data []string
	var name string
	for _, line := range lines[:len(lines)-1] {
		line = strings.TrimSuffix(line, "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				events = append(events, name+"|"+strings.Join(data, "\n"))
			}
			name, data = "", nil
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		}
	}
	return events
}
