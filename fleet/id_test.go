package fleet_test

import (
	"testing"

	"github.com/dynago/dynago/fleet"
)

func TestID(t *testing.T) {
	if got := fleet.ID("worker-0"); got != 1186445869714687 {
		t.Errorf("ID(worker-0) = %d", got)
	}
	if fleet.ID("grpc://host:1?tls=skip") != fleet.ID("grpc://host:1") {
		t.Error("the query part changes the id")
	}
	seen := map[uint64]bool{}
	for _, name := range []string{"", "a", "aa", "mock-0", "mock-1", "1234567", "12345678", "123456789"} {
		id := fleet.ID(name)
		if id >= 1<<53 || seen[id] {
			t.Errorf("ID(%q) = %d", name, id)
		}
		seen[id] = true
	}
}
