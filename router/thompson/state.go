package thompson

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A state is one line that says what follows, and an object in JSON. Decisions
// that wait for their outcome, and sessions, are not kept: nobody would tell of
// the former, and the caches that the latter are for are seldom there any more.
const (
	stateFormat = "dynago thompson %d crc32c %08x bytes %d\n"
	// stateVersion changes whenever what was learned before would now mean
	// something else, be it for another list of features.
	stateVersion = 1
	// mostState bounds what is read; that of the most arms is half of it.
	mostState = 64 << 20
	mostName  = 1024 // bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type state struct {
	Length average    `json:"session_length"`
	Fleet  baselines  `json:"fleet"`
	Arms   []armState `json:"arms"` // oldest first
}

type armState struct {
	Worker    string    `json:"worker"`
	Rank      uint32    `json:"rank"`
	Precision []float64 `json:"precision"` // lower triangle by rows
	Moment    []float64 `json:"moment"`
	Alpha     float64   `json:"alpha"`
	Beta      float64   `json:"beta"`
	Own       baselines `json:"own"`
}

// Save writes what was learned.
func (t *Policy) Save(w io.Writer) error {
	s := t.snapshot()
	body, err := json.Marshal(s, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("thompson: save: %w", err)
	}
	head := fmt.Sprintf(stateFormat, stateVersion, crc32.Checksum(body, castagnoli), len(body))
	if _, err := w.Write(append([]byte(head), body...)); err != nil {
		return fmt.Errorf("thompson: save: %w", err)
	}
	return nil
}

func (t *Policy) snapshot() *state {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &state{Length: t.length, Fleet: t.fleet, Arms: make([]armState, 0, t.arms.len())}
	for key, a := range t.arms.all() {
		if len(key.worker) > mostName {
			continue
		}
		k := armState{
			Worker: key.worker, Rank: key.rank, Alpha: a.success.a, Beta: a.success.b, Own: a.own,
			Moment: append([]float64(nil), a.model.moment[:]...),
		}
		for i := range features {
			k.Precision = append(k.Precision, a.model.precision[i][:i+1]...)
		}
		s.Arms = append(s.Arms, k)
	}
	return s
}

// Learned says whether there is something to save.
func (t *Policy) Learned() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.arms.len() > 0
}

// Load takes in what [Policy.Save] has written, instead of what was learned so
// far, before the first Pick. After an error nothing has changed.
func (t *Policy) Load(r io.Reader) error {
	s, err := readState(r)
	if err != nil {
		return fmt.Errorf("thompson: load: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.length, t.fleet, t.arms = s.Length, s.Fleet, aged[armKey, *arm]{}
	for i := range s.Arms {
		k := &s.Arms[i]
		a := &arm{success: beta{k.Alpha, k.Beta}, own: k.Own, learned: t.rounds}
		copy(a.model.moment[:], k.Moment)
		next := k.Precision
		for i := range features {
			for j := range i + 1 {
				a.model.precision[i][j], a.model.precision[j][i] = next[0], next[0]
				next = next[1:]
			}
		}
		t.arms.put(armKey{k.Worker, k.Rank}, a)
	}
	return nil
}

// readState reads a state and checks that it can have been learned.
func readState(r io.Reader) (*state, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostState+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostState {
		return nil, fmt.Errorf("more than %d bytes", mostState)
	}
	head, body, found := strings.Cut(string(text), "\n")
	var version, sum, size uint64
	if n, _ := fmt.Sscanf(head, strings.TrimSuffix(stateFormat, "\n"), &version, &sum, &size); !found || n != 3 {
		return nil, errors.New("not a state of this policy")
	}
	switch {
	case version != stateVersion:
		return nil, fmt.Errorf("version %d, want %d", version, stateVersion)
	case size != uint64(len(body)):
		return nil, fmt.Errorf("%d bytes after the first line, which tells of %d", len(body), size)
	case sum != uint64(crc32.Checksum([]byte(body), castagnoli)):
		return nil, errors.New("wrong checksum")
	}
	s := new(state)
	if err := json.Unmarshal([]byte(body), s, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	return s, s.check()
}

func (s *state) check() error {
	if len(s.Arms) > mostArms {
		return fmt.Errorf("%d workers, want at most %d", len(s.Arms), mostArms)
	}
	if !s.Length.sound() || !s.Fleet.sound() {
		return errors.New("averages that cannot be")
	}
	for i := range s.Arms {
		if a := &s.Arms[i]; !a.sound() {
			return fmt.Errorf("worker %d, %.40q: numbers that cannot be", i, a.Worker)
		}
	}
	return nil
}

func (a *armState) sound() bool {
	if len(a.Worker) > mostName || !a.Own.sound() || !within(a.Alpha, 1, mostSum) || !within(a.Beta, 1, mostSum) {
		return false
	}
	if len(a.Precision) != features*(features+1)/2 || len(a.Moment) != features {
		return false
	}
	for i, next := 0, a.Precision; i < features; i++ {
		for j := range i + 1 {
			// A sum of squares is above 0, and products are no greater than it.
			if i == j && next[0] <= 0 || !within(next[0], -mostSum, mostSum) {
				return false
			}
			next = next[1:]
		}
		if !within(a.Moment[i], -mostSum, mostSum) {
			return false
		}
	}
	return true
}

// mostSum bounds what lessons can add up to, also where nothing is forgotten.
const mostSum = 1e12

func within(x, low, high float64) bool { return x >= low && x <= high }

func (a *average) sound() bool { return within(a.Value, 0, math.MaxFloat64) }

func (b *baselines) sound() bool { return b.PerToken.sound() && b.Whole.sound() }

func (b *baseline) sound() bool {
	ok := b.All.sound()
	for i := range b.Kinds {
		for j := range b.Kinds[i] {
			ok = ok && b.Kinds[i][j].sound()
		}
	}
	return ok
}
