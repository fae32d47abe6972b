package store

import (
	"bytes"
	"time"

	"github.com/dynago/dynago/internal/wire"
)

// Item is one item of a conversation, as it goes over the wire. Nobody writes to
// its bytes.
type Item struct {
	ID   string
	JSON []byte
}

// Record is a stored response. It is immutable.
type Record struct {
	ID     string
	Tenant string // who may ask for it; empty where there are no tenants
	// Previous is the response that this one continues, or empty.
	Previous string
	// Status is the response's own: completed, incomplete, failed, cancelled,
	// queued or in_progress.
	Status  string
	Created time.Time
	Expires time.Time
	// Input is what the request has added to the conversation, and Output what
	// came of it.
	Input, Output []Item
	// Lost says that the response was being made by a process that has ended.
	Lost bool
	// Events is the stream as it was sent, if it was kept: see [Frames].
	Events []byte

	// The response object stands around its output. What follows is packed where
	// that is worth it: it repeats the tools of the request, with every response.
	head, tail []byte
}

// packFrom is how long the tail of an object has to be to be packed.
const packFrom = 1 << 10

// packed says whether a tail is: JSON does not go on like that.
func packed(tail []byte) bool { return len(tail) > 0 && tail[0] == '(' }

// NewRecord makes a record of a response object, which must be JSON with an
// array named output. It keeps copies of what it is given.
func NewRecord(r Record, object []byte) (*Record, error) {
	begin, end, err := outputOf(object)
	if err != nil {
		return nil, err
	}
	if r.Output, err = itemsOf(object[begin:end]); err != nil {
		return nil, err
	}
	r.head, r.tail = bytes.Clone(object[:begin]), bytes.Clone(object[end:])
	if len(r.tail) >= packFrom {
		r.tail = bytes.Clone(packer().EncodeAll(r.tail, nil))
	}
	r.Input, r.Output = Clone(r.Input), Clone(r.Output)
	return &r, nil
}

// Clone copies items into one piece of memory, so that they keep nothing else
// alive.
func Clone(items []Item) []Item {
	size := 0
	for i := range items {
		size += len(items[i].JSON)
	}
	buf := make([]byte, 0, size)
	out := make([]Item, len(items))
	for i, item := range items {
		begin := len(buf)
		buf = append(buf, item.JSON...)
		out[i] = Item{ID: item.ID, JSON: buf[begin:len(buf):len(buf)]}
	}
	return out
}

// AppendObject appends the response object.
func (r *Record) AppendObject(dst []byte) []byte {
	dst = append(append(dst, r.head...), '[')
	for i := range r.Output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, r.Output[i].JSON...)
	}
	dst = append(dst, ']')
	if !packed(r.tail) {
		return append(dst, r.tail...)
	}
	whole, err := unpacker().DecodeAll(r.tail, dst)
	if err != nil {
		// It was packed here, or has passed a checksum.
		return append(dst, '}')
	}
	return whole
}

// Finished says whether the response is as it will stay.
func (r *Record) Finished() bool { return r.Status != "queued" && r.Status != "in_progress" }

// Continuable says whether another response can go on from this one.
func (r *Record) Continuable() bool {
	switch r.Status {
	case "completed", "incomplete", "cancelled":
		return true
	}
	return false
}

// remains is what stays of a record of which only the items are needed.
func (r *Record) remains() *Record {
	return &Record{ID: r.ID, Tenant: r.Tenant, Input: r.Input, Output: r.Output}
}

// size returns the bytes of a record, and how many of them are not items.
func (r *Record) size() (total, extra int64) {
	extra = int64(len(r.head) + len(r.tail) + len(r.Events))
	total = extra
	for _, items := range [...][]Item{r.Input, r.Output} {
		for i := range items {
			total += int64(len(items[i].JSON))
		}
	}
	return total, extra
}

// ids lists the ids of input and output.
func (r *Record) ids() []string {
	ids := make([]string, 0, len(r.Input)+len(r.Output))
	for _, items := range [...][]Item{r.Input, r.Output} {
		for i := range items {
			ids = append(ids, items[i].ID)
		}
	}
	return ids
}

// at returns the item of a place among the ids.
func (r *Record) at(i int) Item {
	if i < len(r.Input) {
		return r.Input[i]
	}
	return r.Output[i-len(r.Input)]
}

// outputOf finds the array named output in a response object.
func outputOf(object []byte) (begin, end int, err error) {
	r := wire.NewReader(object, "")
	found := false
	err = r.Object("a response object", func(key []byte) error {
		if string(key) != "output" || found {
			return r.Skip()
		}
		value, err := r.Raw()
		if err != nil {
			return err
		}
		// What the reader returns lies in the document.
		begin = cap(object) - cap(value)
		end = begin + len(value)
		found = true
		return nil
	})
	if err == nil && !found {
		err = wire.Missing("output", "a response object has an output")
	}
	return begin, end, err
}

// itemsOf reads an array of items.
func itemsOf(array []byte) ([]Item, error) {
	var items []Item
	r := wire.NewReader(array, "output")
	err := r.Array("an array of items", func(int) error {
		var item Item
		raw, err := r.ObjectRaw("an item", func(key []byte) (err error) {
			if string(key) == "id" && r.Kind() == '"' {
				item.ID, err = r.Text("a string")
				return err
			}
			return r.Skip()
		})
		item.JSON = raw
		items = append(items, item)
		return err
	})
	return items, err
}
