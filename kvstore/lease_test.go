package kvstore_test

import (
	"fmt"
	"testing"

	"github.com/dynago/dynago/kvstore"
)

// Where everything has just been read, what is stored stays nevertheless, and the
// newest half of what was read does.
func TestLeasesLeaveRoom(t *testing.T) {
	clock := &clock{}
	clock.pass(1 << 40)
	_, address := startOver(t, roomy(t, 16<<20), kvstore.Options{Now: clock.Now})
	c := dial(t, address)
	value := body(1, 1<<20-4096)
	for i := range 15 {
		c.do("SET", fmt.Sprint("read ", i), value)
	}
	for i := range 15 {
		if got := c.do("GET", fmt.Sprint("read ", i)); got != value {
			t.Fatalf("value %d is gone before anything had to", i)
		}
	}
	for i := range 6 {
		c.do("SET", fmt.Sprint("new ", i), value)
	}
	for i := range 6 {
		if got := c.do("EXISTS", fmt.Sprint("new ", i)); got != ":1" {
			t.Errorf("new value %d: %s", i, got)
		}
	}
	for i := 9; i < 15; i++ {
		if got := c.do("EXISTS", fmt.Sprint("read ", i)); got != ":1" {
			t.Errorf("value %d, which was read: %s", i, got)
		}
	}
}

// Of what is gone no lease is left, and nothing that counts as one.
func TestLeasesOfWhatIsGone(t *testing.T) {
	clock := &clock{}
	clock.pass(1 << 40)
	s, address := start(t, 8<<20, kvstore.Options{Now: clock.Now})
	c := dial(t, address)
	for i := range 300 {
		key := fmt.Sprint("k", i%3)
		c.want([][2]string{{"SET " + key + " v", "+OK"}, {"EXISTS " + key, ":1"}, {"DEL " + key, ":1"}}...)
	}
	c.want([][2]string{{"SET k v", "+OK"}, {"EXISTS k", ":1"}}...)
	if n := s.Stats().Namespaces[0].Leased; n != 1 {
		t.Errorf("%d values are leased, and there is 1", n)
	}
	clock.pass(2 * kvstore.DefaultLease)
	if n := s.Stats().Namespaces[0].Leased; n != 0 {
		t.Errorf("%d values are leased for ever", n)
	}
}
