package loadgen

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"sync"
)

// histories are what the conversations of a load have said so far. All
// requests of a conversation begin with the same messages, byte for byte, as
// the turns of an agent do, and then ask something of their own.
type histories []history

// history is one conversation's past, made when it is first needed.
type history struct {
	once sync.Once
	json []byte // its messages, without the brackets of the list
}

// A conversation's past has a system prompt of a sixth of its length, and after
// it messages of between these many bytes, of the user and the assistant in
// turn.
const (
	shortestMessage = 2 << 10
	longestMessage  = 9 << 10
)

// of returns conversation i's messages, the same for the same seed.
func (h histories) of(i, seed uint64, size int) []byte {
	c := &h[i]
	c.once.Do(func() { c.json = past(rand.New(rand.NewPCG(^seed, i)), size) })
	return c.json
}

func past(random *rand.Rand, size int) []byte {
	messages := []chatMessage{{"system", passage(random, size/6)}}
	left := size - len(messages[0].Content)
	for k := 0; left > 0; k++ {
		n := shortestMessage + random.IntN(longestMessage-shortestMessage)
		if left-n < shortestMessage {
			n = left
		}
		role := "user"
		if k%2 == 1 {
			role = "assistant"
		}
		messages = append(messages, chatMessage{role, passage(random, n)})
		left -= n
	}
	if messages[len(messages)-1].Role == "user" {
		messages = append(messages, chatMessage{"assistant", "Go on."})
	}
	text, err := json.Marshal(messages)
	if err != nil {
		panic(err) // strings always marshal
	}
	return bytes.Trim(text, "[]")
}

// kinds are what passages are made of, the common ones several times.
var kinds = []func([]byte, *rand.Rand) []byte{
	paragraph, paragraph, paragraph, paragraph, paragraph, paragraph, paragraph, paragraph, paragraph,
	function, function, listing, fields, logLines,
}

// passage makes text as it stands in an agent's prompt: prose, code, the output
// of tools. It has exactly size bytes, all ASCII. So that equal lengths have
// about equal numbers of tokens the kinds take turns, in an order of their own.
func passage(random *rand.Rand, size int) string {
	text := make([]byte, 0, size+2048)
	for len(text) < size {
		for _, k := range random.Perm(len(kinds)) {
			text = append(kinds[k](text, random), '\n')
		}
	}
	return string(text[:size])
}

var (
	nouns = []string{
		"request", "worker", "buffer", "session", "index", "river", "letter", "garden", "station", "engine", "window", "message", "queue",
		"budget", "report", "invoice", "customer", "contract", "journal", "schedule", "cache", "token", "cluster", "parser", "connection",
		"database", "summary", "calendar", "library", "hospital", "mountain", "weather", "language", "kitchen", "children", "government",
		"question", "experiment", "temperature", "molecule", "orchestra", "newspaper", "harbour", "bicycle", "telescope", "neighbour",
	}
	doings = []string{
		"reads", "writes", "keeps", "moves", "returns", "checks", "finds", "carries", "updates", "follows", "measures", "describes", "rejects",
		"closes", "remembers", "translates", "compares", "collects", "releases", "explains", "repairs", "publishes", "considers", "inherits",
	}
	qualities = []string{
		"small", "open", "first", "quiet", "recent", "careful", "empty", "shared", "long", "remote", "stale", "unusual", "necessary", "brief",
		"several", "ordinary", "available", "international", "expensive", "broken", "patient", "independent", "blue", "second", "familiar",
	}
	joints = []string{
		"because", "although", "while", "and then", "so that", "whenever", "before", "unless", "which is why", "as soon as", "but", "after",
	}
	files   = []string{"go", "py", "ts", "md", "yaml", "json", "rs", "sql"}
	folders = []string{"src", "internal", "pkg", "tests", "docs", "cmd", "web", "scripts", "vendor", "config"}
)

func one(random *rand.Rand, words []string) string { return words[random.IntN(len(words))] }

// paragraph is a few sentences.
func paragraph(dst []byte, random *rand.Rand) []byte {
	for range 2 + random.IntN(5) {
		start := len(dst)
		for clause := range 1 + random.IntN(3) {
			if clause > 0 {
				dst = append(append(append(dst, ", "...), one(random, joints)...), ' ')
			}
			dst = append(append(append(dst, "the "...), one(random, qualities)...), ' ')
			dst = append(append(append(dst, one(random, nouns)...), ' '), one(random, doings)...)
			dst = append(append(dst, " a "...), one(random, nouns)...)
			if random.IntN(4) == 0 {
				dst = append(strconv.AppendInt(append(dst, " of "...), random.Int64N(3000), 10), " parts"...)
			}
		}
		dst[start] -= 'a' - 'A'
		dst = append(dst, ". "...)
	}
	return append(dst[:len(dst)-1], '\n')
}

// name is an identifier such as cachedTokenIndex.
func name(dst []byte, random *rand.Rand) []byte {
	dst = append(dst, one(random, qualities)...)
	for range 1 + random.IntN(2) {
		at := len(dst)
		dst = append(dst, one(random, nouns)...)
		dst[at] -= 'a' - 'A'
	}
	return dst
}

// function is a piece of code.
func function(dst []byte, random *rand.Rand) []byte {
	dst = append(name(append(dst, "func "...), random), "(ctx context.Context, "...)
	dst = append(append(dst, one(random, nouns)...), " *"...)
	dst = append(name(dst, random), ") (int, error) {\n"...)
	for range 2 + random.IntN(6) {
		dst = append(name(append(dst, '\t'), random), " := "...)
		dst = append(append(name(dst, random), '.'), "Get("...)
		dst = append(strconv.AppendInt(dst, random.Int64N(1<<random.IntN(20)), 10), ")\n"...)
		if random.IntN(2) == 0 {
			dst = append(append(append(dst, "\tif err != nil {\n\t\treturn 0, fmt.Errorf(\""...), one(random, doings)...), ' ')
			dst = append(append(dst, one(random, nouns)...), ": %w\", err)\n\t}\n"...)
		}
	}
	return append(dst, "\treturn len(out), nil\n}\n"...)
}

// logLines are what a service prints.
func logLines(dst []byte, random *rand.Rand) []byte {
	for range 2 + random.IntN(3) {
		dst = strconv.AppendInt(append(dst, "2025-03-"...), 10+random.Int64N(20), 10)
		dst = strconv.AppendInt(append(dst, 'T'), 10+random.Int64N(14), 10)
		dst = strconv.AppendInt(append(dst, ':'), 10+random.Int64N(50), 10)
		dst = append(append(dst, "Z INFO "...), one(random, nouns)...)
		dst = strconv.AppendUint(append(append(append(dst, ' '), one(random, doings)...), " id="...), random.Uint64(), 16)
		dst = strconv.AppendInt(append(dst, " ms="...), random.Int64N(900), 10)
		dst = append(append(append(dst, " path=/"...), one(random, folders)...), '/')
		dst = append(append(dst, one(random, nouns)...), '\n')
	}
	return dst
}

// listing is what a tool tells of files.
func listing(dst []byte, random *rand.Rand) []byte {
	for range 3 + random.IntN(5) {
		dst = append(append(append(dst, one(random, folders)...), '/'), one(random, nouns)...)
		dst = append(append(append(append(dst, '_'), one(random, nouns)...), '.'), one(random, files)...)
		dst = strconv.AppendInt(append(dst, ':'), 1+random.Int64N(900), 10)
		dst = append(name(append(dst, ": "...), random), '\n')
	}
	return dst
}

// fields is a JSON object.
func fields(dst []byte, random *rand.Rand) []byte {
	dst = append(dst, "{\n"...)
	for range 3 + random.IntN(6) {
		dst = append(append(append(dst, `  "`...), one(random, nouns)...), '_')
		dst = append(append(append(dst, one(random, nouns)...), `": "`...), one(random, qualities)...)
		dst = append(append(append(append(dst, ' '), one(random, nouns)...), '"'), ",\n"...)
	}
	return append(dst, "  \"done\": true\n}\n"...)
}
