package nvext

import (
	"fmt"
	"strconv"
	"strings"
)

// WorkerID is a worker's id on the wire. Clients whose numbers are doubles may
// write it as a decimal string.
type WorkerID uint64

// UnmarshalJSON accepts 7012 and "7012".
func (w *WorkerID) UnmarshalJSON(b []byte) error {
	s := strings.TrimSpace(string(b))
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("worker id must be a decimal number or string, got %s", b)
	}
	*w = WorkerID(n)
	return nil
}

// MarshalJSON writes the id as a number.
func (w WorkerID) MarshalJSON() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(w), 10), nil
}
