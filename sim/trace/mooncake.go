package trace

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// row is a request as Mooncake traces have it, with the fields that others have
// added. Names in brackets are older ones.
type row struct {
	Timestamp    *float64  `json:"timestamp"` // milliseconds
	CreatedTime  *float64  `json:"created_time"`
	InputLength  *int64    `json:"input_length"`
	InputTokens  *int64    `json:"input_tokens"`
	OutputLength *int64    `json:"output_length"`
	OutputTokens *int64    `json:"output_tokens"`
	HashIDs      *[]uint64 `json:"hash_ids"`

	SessionID string   `json:"session_id"`
	Delay     *float64 `json:"delay"` // milliseconds
	DelayMS   *float64 `json:"delay_ms"`

	RequestID      string `json:"request_id"`
	Priority       int32  `json:"priority"`
	StrictPriority uint32 `json:"strict_priority"`
	PolicyClass    string `json:"policy_class"`

	// Ours: what the client of the request sent, and what is known where a row was made
	// of a recording.
	NVExt  jsontext.Value `json:"nvext"`
	Dynago *known         `json:"dynago"`

	// Of agentic traces.
	WaitFor    []string `json:"wait_for"`
	ToolWaitMS *float64 `json:"tool_wait_ms"`
}

// known is what a recording tells of a request that Mooncake traces have no field for.
type known struct {
	// BlockSize is how many tokens an id stands for, and a KV block of the engine had.
	BlockSize *int64 `json:"block_size,omitzero"`
	// AnswerTokens is with how many tokens of its answer the next prompt goes on. They
	// lie behind the prompt in its last block, if that is not full, and then in those
	// that these are the ids of.
	AnswerTokens *int64   `json:"answer_tokens,omitzero"`
	AnswerIDs    []uint64 `json:"answer_hash_ids,omitempty"`
}

// rows makes requests of rows, one after the other.
type rows struct {
	options   *ReadOptions
	blockSize int // 0 before the first row
	n         int
}

// size returns how many tokens an id of a row stands for. All rows agree on it.
func (s *rows) size(l *line[row]) (int, error) {
	told := int64(0)
	if k := l.row.Dynago; k != nil && k.BlockSize != nil {
		if told = *k.BlockSize; told < 1 || told > maxBlockSize {
			return 0, l.fault("dynago.block_size", "got %d, want 1 to %d", told, maxBlockSize)
		}
		s.options.tell(int(told), 0)
	}
	if s.blockSize == 0 {
		s.blockSize = cmp.Or(s.options.BlockSize, int(told), DefaultBlockSize)
	}
	if told != 0 && told != int64(s.blockSize) {
		return 0, l.fault("dynago.block_size", "got %d, and it was %d before", told, s.blockSize)
	}
	return s.blockSize, nil
}

// answer returns the answer of a row whose prompt is so long.
func (s *rows) answer(l *line[row], input, output int) (Text, error) {
	own := answer(s.n, max(output, 1))
	if l.row.Dynago == nil || l.row.Dynago.AnswerTokens == nil {
		return own, nil
	}
	again, err := l.length("dynago.answer_tokens", l.row.Dynago.AnswerTokens)
	switch {
	case err != nil:
		return nil, err
	case again > own.Len():
		return nil, l.fault("dynago.answer_tokens", "got %d, and the answer has %d", again, own.Len())
	}
	ids := slices.Concat(*l.row.HashIDs, l.row.Dynago.AnswerIDs)
	if want := (input + again + s.blockSize - 1) / s.blockSize; len(ids) != want {
		return nil, l.fault("dynago.answer_hash_ids", "got %d ids behind %d of the prompt, and %d tokens are %d blocks of %d",
			len(l.row.Dynago.AnswerIDs), len(*l.row.HashIDs), input+again, want, s.blockSize)
	}
	return append(blocks(ids, s.blockSize, input+again).between(input, input+again), own.between(again, own.Len())...), nil
}

// length returns a number of tokens.
func (l *line[T]) length(field string, n *int64) (int, error) {
	switch {
	case n == nil:
		return 0, l.fault(field, "missing")
	case *n < 0 || *n > maxTokens:
		return 0, l.fault(field, "got %d, want 0 to %d", *n, maxTokens)
	}
	return int(*n), nil
}

// time returns milliseconds as a duration; none are 0.
func (l *line[T]) time(field string, ms *float64) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	d, problem := duration(*ms, time.Millisecond)
	if problem != "" {
		return 0, l.fault(field, "%s", problem)
	}
	return d, nil
}

// next makes a row a request that comes at its timestamp. An engine gives at least
// one token, so that a row without output asks for one.
func (s *rows) next(l *line[row]) (r Request, err error) {
	blockSize, err := s.size(l)
	if err != nil {
		return Request{}, err
	}
	at, err := l.time("timestamp", first(l.row.Timestamp, l.row.CreatedTime))
	if err != nil {
		return Request{}, err
	}
	output, err := l.length("output_length", first(l.row.OutputLength, l.row.OutputTokens))
	if err != nil {
		return Request{}, err
	}
	if l.row.HashIDs == nil {
		return Request{}, l.fault("hash_ids", "missing")
	}
	ids := *l.row.HashIDs
	room := int64(len(ids)) * int64(blockSize)
	input, err := l.length("input_length", first(l.row.InputLength, l.row.InputTokens, &room))
	switch {
	case err != nil:
		return Request{}, err
	case input == 0:
		return Request{}, l.fault("input_length", "the prompt is empty")
	case int64(input) > room:
		return Request{}, l.fault("input_length", "got %d tokens, and %d ids of %d tokens are %d", input, len(ids), blockSize, room)
	}
	said, err := s.answer(l, input, output)
	if err != nil {
		return Request{}, err
	}
	id := l.row.RequestID
	if id == "" {
		id = strconv.Itoa(s.n)
	}
	s.n++
	r = Request{
		ID: id, Session: l.row.SessionID, At: at,
		Prompt: blocks(ids, blockSize, input), Answer: said,
		Priority: float64(l.row.Priority), StrictPriority: l.row.StrictPriority, Class: l.row.PolicyClass,
	}
	return r, l.asks("nvext", l.row.NVExt, &r)
}

// blocks returns the first n tokens of the streams of ids, a block of each.
func blocks(ids []uint64, size, n int) Text {
	text := make(Text, 0, (n+size-1)/size)
	for _, id := range ids {
		if n <= 0 {
			break
		}
		text = append(text, Piece{Stream: id, Len: uint32(min(size, n))})
		n -= size
	}
	return text
}

// names finds ids that come twice.
type names map[string]int

func (seen names) check(l *line[row], id string) error {
	if other, ok := seen[id]; ok {
		return l.fault("request_id", "%q is the request of line %d too", id, other)
	}
	seen[id] = l.number
	return nil
}

// readMooncake yields the rows as requests. Of a session each waits for the one
// before it.
func readMooncake(o ReadOptions, sources []io.Reader) iter.Seq2[Request, error] {
	return readRows(o, sources[0], func(*Request, *Request) {})
}

// readDelta is readMooncake for rows that hold only what is new: before it come
// the prompt of the session's last request and its answer.
func readDelta(o ReadOptions, sources []io.Reader) iter.Seq2[Request, error] {
	return readRows(o, sources[0], func(last, r *Request) { r.Prompt = continued(last, r.Prompt) })
}

// continued returns the prompt of last, its answer, and text.
func continued(last *Request, text Text) Text {
	// Only a session itself appends to its prompts, each once, and so they share
	// their room; those that are handed out are clipped.
	return append(append(last.Prompt, last.Answer...), text...)
}

// readRows yields rows, and lets join change those that continue a session.
func readRows(o ReadOptions, source io.Reader, join func(last, r *Request)) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		sessions := map[string]*Request{}
		seen, made := names{}, rows{options: &o}
		for l, err := range lines[row](source) {
			if err != nil {
				yield(Request{}, err)
				return
			}
			r, err := made.next(l)
			if err == nil {
				err = seen.check(l, r.ID)
			}
			if err == nil && r.Session != "" {
				err = follow(l, &r, sessions[r.Session])
			}
			if err != nil {
				yield(Request{}, err)
				return
			}
			if last := sessions[r.Session]; last != nil {
				join(last, &r)
				if r.Prompt.Len() > maxTokens {
					yield(Request{}, l.fault("input_length", "the session has grown over %d tokens", maxTokens))
					return
				}
			}
			if r.Session != "" {
				kept := r
				sessions[r.Session] = &kept
				r.Prompt = slices.Clip(r.Prompt)
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// follow lets a request wait for the one before it in its session, if any. What
// passes between an answer and the next request is the delay that the row names,
// or else the time between the two rows.
func follow(l *line[row], r, last *Request) error {
	named := first(l.row.Delay, l.row.DelayMS)
	delay, err := l.time("delay", named)
	switch {
	case err != nil:
		return err
	case last == nil && delay > 0:
		return l.fault("delay", "got %v on the first turn of session %q, which follows nothing", *named, r.Session)
	case last == nil:
		return nil
	case named == nil && first(l.row.Timestamp, l.row.CreatedTime) != nil:
		delay = r.At - last.At
	}
	if delay < 0 {
		return l.fault("timestamp", "%v ms before the turn that it follows", float64(-delay)/float64(time.Millisecond))
	}
	if first(l.row.Timestamp, l.row.CreatedTime) == nil {
		r.At = last.At + delay
	}
	r.After, r.Delay = []string{last.ID}, delay
	return nil
}

// readAgentic yields the rows as requests that wait for what they name.
func readAgentic(o ReadOptions, sources []io.Reader) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		var requests []Request
		seen, made := names{}, rows{options: &o}
		for l, err := range lines[row](sources[0]) {
			var r Request
			if err == nil {
				r, err = made.next(l)
			}
			if err == nil && l.row.RequestID == "" {
				err = l.fault("request_id", "missing")
			}
			if err == nil {
				err = seen.check(l, r.ID)
			}
			if err == nil {
				err = wait(l, &r)
			}
			if err != nil {
				yield(Request{}, err)
				return
			}
			requests = append(requests, r)
		}
		if err := Check(requests); err != nil {
			yield(Request{}, fmt.Errorf("%s: %w", name(sources[0]), err))
			return
		}
		for _, r := range requests {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// wait lets a request wait for those that its row names.
func wait(l *line[row], r *Request) error {
	delay, err := l.time("delay", first(l.row.Delay, l.row.DelayMS))
	if err != nil {
		return err
	}
	tool, err := l.time("tool_wait_ms", l.row.ToolWaitMS)
	if err != nil {
		return err
	}
	if len(l.row.WaitFor) > 0 {
		r.After, r.Delay, r.Tool = l.row.WaitFor, delay+tool, tool > 0
	}
	return nil
}
