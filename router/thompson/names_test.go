package thompson

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// A worker that is called as nobody should be does not spoil what is known of
// others: the name is mended, or, where it is too long, the worker left out.
func TestStateOfOddNames(t *testing.T) {
	f := fleet.New(fleet.Config{})
	defer f.Close()
	p, _ := policy(t)
	for i, name := range []string{"good", "odd\xff", strings.Repeat("long", 1000)} {
		r, err := f.Report(fleet.Entry{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		c := workers(1, func(_ int, c *router.Candidate) { c.Worker = r.Worker() })
		serve(t, p, c, 10+i, 0, 1)
	}
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	again, _ := policy(t)
	if err := again.Load(&b); err != nil {
		t.Fatal(err)
	}
	s := again.Stats()
	if len(s.Arms) != 2 || s.Arms[0].Worker != "good" || s.Arms[1].Worker != "odd\ufffd" {
		t.Errorf("after a restart the workers are %+v", s.Arms)
	}
}
