package inferencepb_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

var files = []protoreflect.FileDescriptor{inferencepb.File_inference_grpc_service_proto, inferencepb.File_inference_model_config_proto}

// golden returns the lines of testdata/wire.txt: those of methods and enums as they
// are, those of messages in three parts.
func golden(t *testing.T) (rest []string, messages [][3]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/wire.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch parts := strings.Split(line, " | "); {
		case line == "" || line[0] == '#':
		case len(parts) == 3:
			messages = append(messages, [3]string(parts))
		default:
			rest = append(rest, line)
		}
	}
	return rest, messages
}

func message(t *testing.T, name string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("inference." + name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return kind.New().Interface()
}

// What each message is on the wire was worked out by hand, and both ways lead there.
func TestWire(t *testing.T) {
	_, messages := golden(t)
	for _, m := range messages {
		want, err := hex.DecodeString(m[2])
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		said := message(t, m[0])
		if err := prototext.Unmarshal([]byte(m[1]), said); err != nil {
			t.Errorf("%s: %v", m[0], err)
			continue
		}
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(said)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %s\nis  %x, %v\nnot %x", m[0], m[1], got, err, want)
		}
		read := message(t, m[0])
		if err := proto.Unmarshal(want, read); err != nil || !proto.Equal(read, said) {
			t.Errorf("%s: %x is read as %v, %v; want %v", m[0], want, read, err, said)
		}
	}
}

// No message, field, method or number is without its line, and none has a line
// that the service does not have.
func TestWireIsWhole(t *testing.T) {
	rest, messages := golden(t)
	var lines []string
	stream := map[bool]string{true: "stream "}
	methods := files[0].Services().Get(0).Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		lines = append(lines, fmt.Sprintf("rpc %s (%s%s) (%s%s)", m.Name(),
			stream[m.IsStreamingClient()], m.Input().Name(), stream[m.IsStreamingServer()], m.Output().Name()))
	}
	numbers := map[string]map[protowire.Number]bool{}
	for _, m := range messages {
		if numbers[m[0]] == nil {
			numbers[m[0]] = map[protowire.Number]bool{}
		}
		b, _ := hex.DecodeString(m[2])
		for len(b) > 0 {
			number, _, n := protowire.ConsumeField(b)
			if n < 0 {
				t.Fatalf("%s: %s is no message", m[0], m[2])
			}
			numbers[m[0]][number] = true
			b = b[n:]
		}
	}
	seen := 0
	enum := func(list protoreflect.EnumDescriptors) {
		for i := range list.Len() {
			e := list.Get(i)
			line := "enum " + strings.TrimPrefix(string(e.FullName()), "inference.")
			for j := range e.Values().Len() {
				line += fmt.Sprintf(" %s=%d", e.Values().Get(j).Name(), e.Values().Get(j).Number())
			}
			lines = append(lines, line)
		}
	}
	var walk func(protoreflect.MessageDescriptors)
	walk = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			m := list.Get(i)
			if m.IsMapEntry() {
				continue
			}
			name := strings.TrimPrefix(string(m.FullName()), "inference.")
			fields, ok := numbers[name]
			if !ok {
				t.Errorf("%s has no line", name)
			}
			seen++
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				if !fields[f.Number()] {
					t.Errorf("%s: no line has field %d, %s", name, f.Number(), f.Name())
				}
			}
			enum(m.Enums())
			walk(m.Messages())
		}
	}
	for _, f := range files {
		enum(f.Enums())
		walk(f.Messages())
	}
	if seen != len(numbers) {
		t.Errorf("%d messages have lines, and there are %d", len(numbers), seen)
	}
	slices.Sort(lines)
	slices.Sort(rest)
	if !slices.Equal(lines, rest) {
		t.Errorf("methods and enums are\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(rest, "\n"))
	}
}

// Numbers of a list may come one by one as well.
func TestUnpackedNumbers(t *testing.T) {
	var b []byte
	for _, n := range []uint64{1, 300} {
		b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), n)
	}
	var c inferencepb.InferTensorContents
	if err := proto.Unmarshal(b, &c); err != nil || !slices.Equal(c.GetInt64Contents(), []int64{1, 300}) {
		t.Errorf("%x is read as %v, %v", b, &c, err)
	}
}
