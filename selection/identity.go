package selection

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// workerID is the id of a worker as dispatchers write it: a number below 2^53, or
// the same in a string.
type workerID uint64

// mostID is the bound of ids: what clients with double precision can carry.
const mostID = 1 << 53

var errID = errors.New("want a worker id, a number from 0 to 2^53-1, or the same as a string")

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (id *workerID) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	text := string(v)
	if v.Kind() == '"' {
		if err := json.Unmarshal(v, &text); err != nil {
			return err
		}
	}
	*id, err = parseID(text)
	return err
}

func parseID(text string) (workerID, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= mostID {
		return 0, fmt.Errorf("%w; got %s", errID, clip(text))
	}
	return workerID(n), nil
}

// Where a worker is named in a query, 0 is none in particular, but dispatchers
// number their workers from 0 as well as from 1. In the fleet that one has a
// number which no other can have.
const zeroth = mostID

// inner returns the id of a worker in the fleet.
func (id workerID) inner() uint64 {
	if id == 0 {
		return zeroth
	}
	return uint64(id)
}

// outer returns the id that dispatchers know a worker of the fleet by.
func outer(id uint64) workerID {
	if id == zeroth {
		return 0
	}
	return workerID(id)
}

// partition is a set of workers among which one request may choose.
type partition struct{ model, group string }

// Names that hold where a dispatcher gives none.
const (
	defaultModel = "default"
	defaultGroup = "default"
)

// name is what the partition's model is called in the fleet, whose workers know
// no groups.
func (p partition) name() string {
	if p.group == defaultGroup {
		return p.model
	}
	return p.model + ":" + p.group
}

// clip keeps what a client invented from filling an answer or a log.
func clip(s string) string {
	if len(s) > 200 {
		return strconv.Quote(s[:200]) + "…"
	}
	return strconv.Quote(s)
}

// serves says whether a card is that of one of the partition's workers.
func (p partition) serves(card *engine.Card) bool {
	return card != nil && (card.Model == p.name() || slices.Contains(card.Aliases, p.name()))
}

func (p partition) compare(o partition) int {
	return cmp.Or(cmp.Compare(p.model, o.model), cmp.Compare(p.group, o.group))
}
