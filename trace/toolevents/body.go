package toolevents

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace"
)

// ErrTooMany is the error of a body with more events than [MaxEvents].
var ErrTooMany = fmt.Errorf("want at most %d events in one body", MaxEvents)

// Batch is what came of a body.
type Batch struct {
	Accepted []*trace.Record
	Dropped  int
	// Why says what is wrong with the first event that was dropped; nil: none was.
	Why error
}

// DecodeBody reads a body of events: one object, an array of objects, or objects on
// lines of their own. An event that is wrong is dropped, and those beside it count. The
// error is of a body that is none of the three, from which nothing is taken.
func DecodeBody(body []byte) (Batch, error) {
	var b Batch
	body = bytes.TrimSpace(body)
	whole := jsontext.Value(body)
	switch {
	case len(body) == 0:
		return b, errors.New("the body is empty; want an event, an array of events, or events on lines")
	case body[0] == '[':
		err := b.array(body)
		return b, err
	case whole.IsValid(loose...):
		b.add(body)
		return b, nil
	}
	err := b.lines(body)
	return b, err
}

// loose takes text that is no UTF-8 and names that stand twice, so that what is wrong
// with one event is found when that one is read.
var loose = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

func (b *Batch) add(text []byte) {
	r, err := Decode(text)
	if err != nil {
		b.drop(err)
		return
	}
	b.Accepted = append(b.Accepted, r)
}

func (b *Batch) drop(why error) {
	b.Dropped++
	if b.Why == nil {
		b.Why = why
	}
}

// full says whether there is no room for another event.
func (b *Batch) full() bool { return len(b.Accepted)+b.Dropped == MaxEvents }

func (b *Batch) array(body []byte) error {
	if !jsontext.Value(body).IsValid(loose...) {
		return errors.New("the body begins an array, but is not valid JSON")
	}
	d := jsontext.NewDecoder(bytes.NewReader(body), loose...)
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if b.full() {
			return ErrTooMany
		}
		text, err := d.ReadValue()
		if err != nil {
			return err
		}
		b.add(text)
	}
	return nil
}

func (b *Batch) lines(body []byte) error {
	any := false
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if b.full() {
			return ErrTooMany
		}
		if !jsontext.Value(line).IsValid(loose...) {
			b.drop(errors.New("a line is not valid JSON"))
			continue
		}
		any = true
		b.add(line)
	}
	if !any {
		return errors.New("the body is not valid JSON; want an event, an array of events, or events on lines")
	}
	return nil
}
