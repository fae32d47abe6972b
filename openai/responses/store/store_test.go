package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/openai/responses/store"
)

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Unix(1_800_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func open(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// record makes a record whose object has one message as output.
func record(t testing.TB, tenant, id, previous string, input ...string) *store.Record {
	t.Helper()
	items := make([]store.Item, len(input))
	for i, text := range input {
		items[i] = store.Item{ID: fmt.Sprintf("in_%s_%d", id, i), JSON: fmt.Appendf(nil, `{"role":"user","content":%q}`, text)}
	}
	object := fmt.Sprintf(`{"id":%q,"status":"completed","output":[{"type":"message","id":"msg_%s","text":"said by %s"}],"usage":{"total_tokens":3}}`, id, id, id)
	r, err := store.NewRecord(store.Record{
		ID: id, Tenant: tenant, Previous: previous, Status: "completed", Created: time.Unix(1, 0), Input: items,
	}, []byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func texts(items []store.Item) string {
	var b strings.Builder
	for _, item := range items {
		b.Write(item.JSON)
		b.WriteByte('\n')
	}
	return b.String()
}

// kinds are the two kinds of stores.
func kinds(t *testing.T, f func(t *testing.T, o store.Options)) {
	t.Run("memory", func(t *testing.T) { f(t, store.Options{}) })
	t.Run("directory", func(t *testing.T) { f(t, store.Options{Dir: t.TempDir()}) })
}

func TestObjectComesBackByteForByte(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		r := record(t, "", "resp_1", "", "hello")
		if !s.Put(r, nil) {
			t.Fatal("not kept")
		}
		got, ok := s.Get("", "resp_1")
		if !ok {
			t.Fatal("not found")
		}
		const want = `{"id":"resp_1","status":"completed","output":[{"type":"message","id":"msg_resp_1","text":"said by resp_1"}],"usage":{"total_tokens":3}}`
		if b := string(got.AppendObject(nil)); b != want {
			t.Fatalf("object: %s", b)
		}
		if got.Status != "completed" || !got.Created.Equal(time.Unix(1, 0)) {
			t.Fatalf("record: %+v", got)
		}
	})
}

// TestLongObjects come back as they were, and take little room.
func TestLongObjects(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		tools := strings.Repeat(`{"type":"function","name":"ls","description":"Lists files"},`, 1000)
		object := `{"id":"resp_1","output":[{"id":"msg_1"}],"tools":[` + tools + `{}]}`
		r, err := store.NewRecord(store.Record{ID: "resp_1", Status: "completed"}, []byte(object))
		if err != nil || !s.Put(r, nil) {
			t.Fatal(err)
		}
		got, ok := s.Get("", "resp_1")
		if !ok || string(got.AppendObject([]byte("before"))) != "before"+object {
			t.Fatal("it is another object")
		}
		if stats := s.Stats(); stats.Bytes > 5000 {
			t.Fatalf("%d bytes for an object of %d", stats.Bytes, len(object))
		}
	})
}

func TestConversationIsInputAndOutputInTurn(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		s.Put(record(t, "", "resp_1", "", "one"), nil)
		s.Put(record(t, "", "resp_2", "resp_1", "two", "three"), nil)
		s.Put(record(t, "", "resp_3", "resp_1", "another two"), nil)
		last, before, ok := s.Conversation("", "resp_2")
		if !ok {
			t.Fatal("not found")
		}
		got := texts(append(before, last.Output...))
		const want = `{"role":"user","content":"one"}
{"type":"message","id":"msg_resp_1","text":"said by resp_1"}
{"role":"user","content":"two"}
{"role":"user","content":"three"}
{"type":"message","id":"msg_resp_2","text":"said by resp_2"}
`
		if got != want {
			t.Fatalf("conversation:\n%s", got)
		}
	})
}

// TestWhatIsDeletedStaysUnderWhatGoesOn deletes, and lets expire, what another
// response continues.
func TestWhatIsDeletedStaysUnderWhatGoesOn(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		c := newClock()
		o.Now, o.TTL = c.now, time.Minute
		s := open(t, o)
		s.Put(record(t, "", "resp_1", "", "one"), nil)
		c.pass(40 * time.Second)
		s.Put(record(t, "", "resp_2", "resp_1", "two"), nil)
		s.Put(record(t, "", "resp_3", "resp_2", "three"), nil)
		if !s.Delete("", "resp_2") || s.Delete("", "resp_2") {
			t.Fatal("a response can be deleted once")
		}
		c.pass(30 * time.Second)
		for _, id := range []string{"resp_1", "resp_2"} {
			if _, ok := s.Get("", id); ok {
				t.Fatalf("%s can be asked for", id)
			}
		}
		_, before, ok := s.Conversation("", "resp_3")
		if !ok || len(before) != 5 {
			t.Fatalf("conversation: %v\n%s", ok, texts(before))
		}
		if item, ok := s.Item("", "msg_resp_1"); !ok || !strings.Contains(string(item.JSON), "said by resp_1") {
			t.Fatalf("item: %s", item.JSON)
		}
		c.pass(31 * time.Second)
		if _, _, ok := s.Conversation("", "resp_3"); ok {
			t.Fatal("resp_3 does not expire")
		}
		if stats := s.Stats(); stats.Entries != 0 || stats.Bytes != 0 || stats.Expired != 2 {
			t.Fatalf("%+v", stats)
		}
		if o.Dir != "" {
			if left, _ := os.ReadDir(o.Dir); len(left) != 0 {
				t.Fatalf("files are left: %v", left)
			}
		}
	})
}

func TestOtherTenantsSeeNothing(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		s.Put(record(t, "a", "resp_1", "", "secret"), nil)
		if _, ok := s.Get("b", "resp_1"); ok {
			t.Fatal("b gets a's response")
		}
		if _, _, ok := s.Conversation("", "resp_1"); ok {
			t.Fatal("who has no tenant continues a's response")
		}
		if _, ok := s.Item("b", "msg_resp_1"); ok {
			t.Fatal("b gets a's item")
		}
		if s.Delete("b", "resp_1") {
			t.Fatal("b deletes a's response")
		}
		// What b continues is not a's response, though it has its id.
		if !s.Put(record(t, "b", "resp_2", "resp_1", "mine"), nil) {
			t.Fatal("not kept")
		}
		if _, before, ok := s.Conversation("b", "resp_2"); !ok || strings.Contains(texts(before), "secret") {
			t.Fatalf("b sees %s", texts(before))
		}
		if _, ok := s.Get("a", "resp_1"); !ok {
			t.Fatal("a has lost its response")
		}
	})
}

// TestGoneMeanwhile keeps a response whose predecessor went while it was made.
func TestGoneMeanwhile(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		s.Put(record(t, "", "resp_1", "", "one"), nil)
		first, before, _ := s.Conversation("", "resp_1")
		before = append(before, first.Output...)
		s.Delete("", "resp_1")
		s.Put(record(t, "", "resp_2", "resp_1", "two"), before)
		_, got, ok := s.Conversation("", "resp_2")
		if !ok || len(got) != 3 || !bytes.Equal(got[0].JSON, before[0].JSON) {
			t.Fatalf("conversation: %v\n%s", ok, texts(got))
		}
	})
}

func TestBytesAreBounded(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		o.Bytes = 20_000
		s := open(t, o)
		big := strings.Repeat("x", 3000)
		for i := range 20 {
			s.Put(record(t, "", fmt.Sprintf("resp_%d", i), "", big), nil)
			s.Get("", "resp_0") // which is used again and again
			if stats := s.Stats(); stats.Bytes > o.Bytes {
				t.Fatalf("%+v", stats)
			}
		}
		if _, ok := s.Get("", "resp_0"); !ok {
			t.Fatal("what was used last is gone")
		}
		if _, ok := s.Get("", "resp_3"); ok {
			t.Fatal("what was not used is still there")
		}
		if s.Put(record(t, "", "resp_huge", "", strings.Repeat("x", 20_000)), nil) {
			t.Fatal("a record larger than the store is kept")
		}
		if _, ok := s.Get("", "resp_0"); !ok {
			t.Fatal("a record that was refused has driven out another")
		}
		stats := s.Stats()
		if stats.Evicted == 0 || stats.Refused != 1 {
			t.Fatalf("%+v", stats)
		}
		if o.Dir != "" {
			var sum int64
			files, _ := os.ReadDir(o.Dir)
			for _, f := range files {
				stat, _ := f.Info()
				sum += stat.Size()
			}
			if sum > o.Bytes || int64(len(files)) != stats.Entries {
				t.Fatalf("%d files of %d bytes for %+v", len(files), sum, stats)
			}
		}
	})
}

func TestDirectorySurvivesRestart(t *testing.T) {
	c := newClock()
	o := store.Options{Dir: t.TempDir(), Now: c.now, TTL: time.Hour}
	s := open(t, o)
	s.Put(record(t, "a", "resp_1", "", "one"), nil)
	s.Put(record(t, "a", "resp_2", "resp_1", "two"), nil)
	s.Put(record(t, "a", "resp_3", "resp_2", "three"), nil)
	s.Delete("a", "resp_2")
	_, want, _ := s.Conversation("a", "resp_3")
	before := s.Stats()

	s = open(t, o)
	_, got, ok := s.Conversation("a", "resp_3")
	if !ok || texts(got) != texts(want) {
		t.Fatalf("conversation:\n%swant:\n%s", texts(got), texts(want))
	}
	if _, ok := s.Get("a", "resp_2"); ok {
		t.Fatal("what was deleted is back")
	}
	if item, ok := s.Item("a", "msg_resp_2"); !ok || len(item.JSON) == 0 {
		t.Fatal("an item is lost")
	}
	if after := s.Stats(); after.Bytes != before.Bytes || after.Entries != before.Entries {
		t.Fatalf("%+v, before %+v", after, before)
	}
	c.pass(time.Hour)
	s = open(t, o)
	if stats := s.Stats(); stats.Entries != 0 || stats.Bytes != 0 {
		t.Fatalf("%+v", stats)
	}
	if left, _ := os.ReadDir(o.Dir); len(left) != 0 {
		t.Fatalf("files are left: %v", left)
	}
}

// TestProcessesShareADirectory uses two stores as two processes would.
func TestProcessesShareADirectory(t *testing.T) {
	o := store.Options{Dir: t.TempDir()}
	a, b := open(t, o), open(t, o)
	a.Put(record(t, "", "resp_1", "", "one"), nil)
	if _, ok := b.Item("", "msg_resp_1"); !ok {
		t.Fatal("b does not find a's item")
	}
	a.Put(record(t, "", "resp_2", "resp_1", "two"), nil)
	if _, before, ok := b.Conversation("", "resp_2"); !ok || len(before) != 3 {
		t.Fatal("b cannot continue a's response")
	}
	b.Put(record(t, "", "resp_3", "resp_2", "three"), nil)
	if !a.Delete("", "resp_1") {
		t.Fatal("a cannot delete its response")
	}
	b.Sweep()
	if _, ok := b.Get("", "resp_1"); ok {
		t.Fatal("b still has what a has deleted")
	}
	if _, before, ok := b.Conversation("", "resp_3"); !ok || len(before) != 5 {
		t.Fatal("b has lost what its response stands on")
	}
	if _, before, ok := a.Conversation("", "resp_3"); !ok || len(before) != 5 {
		t.Fatal("a cannot continue b's response")
	}
	b.Delete("", "resp_2")
	b.Delete("", "resp_3")
	a.Sweep()
	if stats := a.Stats(); stats.Entries != 0 {
		t.Fatalf("a: %+v", stats)
	}
	if left, _ := os.ReadDir(o.Dir); len(left) != 0 {
		t.Fatalf("files are left: %v", left)
	}
}

// TestProcessesAtOnce lets processes write and continue at the same time.
func TestProcessesAtOnce(t *testing.T) {
	o := store.Options{Dir: t.TempDir()}
	var wg sync.WaitGroup
	for p := range 4 {
		s := open(t, o)
		wg.Go(func() {
			previous := ""
			for i := range 30 {
				id := fmt.Sprintf("resp_%d_%d", p, i)
				if !s.Put(record(t, "", id, previous, "next"), nil) {
					t.Errorf("%s is not kept", id)
				}
				s.Sweep()
				previous = id
			}
		})
	}
	wg.Wait()
	s := open(t, o)
	for p := range 4 {
		_, before, ok := s.Conversation("", fmt.Sprintf("resp_%d_29", p))
		if !ok || len(before) != 59 {
			t.Fatalf("process %d: %d items", p, len(before))
		}
	}
	if stats := s.Stats(); stats.Entries != 120 || stats.Torn != 0 {
		t.Fatalf("%+v", stats)
	}
}

// TestManyAtOnce uses one store from many goroutines.
func TestManyAtOnce(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		o.Bytes = 60_000
		s := open(t, o)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				previous := ""
				for i := range 40 {
					id := fmt.Sprintf("resp_%d_%d", g, i)
					if s.Put(record(t, "", id, previous, "next"), nil) {
						previous = id
					}
					if r, before, ok := s.Conversation("", previous); ok && (len(r.Output) != 1 || len(before)%2 != 1) {
						t.Errorf("%s: %d items before %d", previous, len(before), len(r.Output))
					}
					s.Item("", fmt.Sprintf("msg_resp_%d_%d", (g+1)%8, i/2))
					switch i % 10 {
					case 3:
						s.Delete("", fmt.Sprintf("resp_%d_%d", g, i/2))
					case 7:
						s.Sweep()
					}
				}
			})
		}
		wg.Wait()
		if stats := s.Stats(); stats.Bytes > o.Bytes || stats.Torn > 0 || stats.Failed > 0 {
			t.Fatalf("%+v", stats)
		}
	})
}

func TestTornFilesAreIgnoredAndCounted(t *testing.T) {
	o := store.Options{Dir: t.TempDir()}
	s := open(t, o)
	for i := range 4 {
		s.Put(record(t, "", fmt.Sprintf("resp_%d", i), "", "words"), nil)
	}
	path := func(i int) string { return filepath.Join(o.Dir, fmt.Sprintf("resp_%d.response", i)) }
	change := func(i int, f func(b []byte) []byte) {
		b, err := os.ReadFile(path(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(i), f(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(0, func(b []byte) []byte { return b[:len(b)/2] })
	change(1, func(b []byte) []byte { b[30] ^= 1; return b }) // in the head
	change(2, func(b []byte) []byte { b[len(b)-20] ^= 1; return b })
	os.WriteFile(filepath.Join(o.Dir, "notes.txt"), []byte("not ours"), 0o600)
	os.WriteFile(filepath.Join(o.Dir, "new-123"), []byte("half"), 0o600)

	s = open(t, o)
	if stats := s.Stats(); stats.Torn != 2 || stats.Entries != 2 {
		t.Fatalf("%+v", stats)
	}
	s.Sweep()
	if stats := s.Stats(); stats.Torn != 2 {
		t.Fatalf("torn files are counted twice: %+v", stats)
	}
	for i := range 4 {
		_, ok := s.Get("", fmt.Sprintf("resp_%d", i))
		if ok != (i == 3) {
			t.Fatalf("resp_%d: %v", i, ok)
		}
	}
	if stats := s.Stats(); stats.Entries != 1 {
		t.Fatalf("a record with a wrong checksum is kept: %+v", stats)
	}
	// What is torn is removed when it has been so for long.
	old := time.Now().Add(-time.Hour)
	for _, file := range []string{path(0), filepath.Join(o.Dir, "new-123"), filepath.Join(o.Dir, "notes.txt")} {
		os.Chtimes(file, old, old)
	}
	s.Sweep()
	files, _ := os.ReadDir(o.Dir)
	var left []string
	for _, f := range files {
		left = append(left, f.Name())
	}
	if !slices.Equal(left, []string{"notes.txt", "resp_1.response", "resp_3.response"}) {
		t.Fatalf("left: %v", left)
	}
}

// TestLostFilesCostOnlyWhatNeedsThem takes a file and then the whole directory
// away.
func TestLostFilesCostOnlyWhatNeedsThem(t *testing.T) {
	o := store.Options{Dir: filepath.Join(t.TempDir(), "responses")}
	s := open(t, o)
	s.Put(record(t, "", "resp_1", "", "one"), nil)
	s.Put(record(t, "", "resp_2", "resp_1", "two"), nil)
	s.Put(record(t, "", "resp_x", "", "else"), nil)
	s = open(t, o)
	os.Remove(filepath.Join(o.Dir, "resp_1.response"))
	if _, _, ok := s.Conversation("", "resp_2"); ok {
		t.Fatal("a conversation without its beginning is continued")
	}
	if _, ok := s.Get("", "resp_2"); !ok {
		t.Fatal("a response is lost with its predecessor")
	}
	if s = open(t, o); s.Stats().Entries != 2 {
		t.Fatalf("%+v", s.Stats())
	}
	if _, _, ok := s.Conversation("", "resp_2"); ok {
		t.Fatal("after a restart a conversation without its beginning is continued")
	}
	os.RemoveAll(o.Dir)
	if s.Put(record(t, "", "resp_3", "", "three"), nil) {
		t.Fatal("kept, though it cannot be written")
	}
	if _, ok := s.Get("", "resp_x"); ok {
		t.Fatal("found, though it is lost")
	}
	if stats := s.Stats(); stats.Failed != 1 {
		t.Fatalf("%+v", stats)
	}
}

// TestWhatIsSentAgainIsKeptOnce sends the whole conversation each time, as it was
// answered.
func TestWhatIsSentAgainIsKeptOnce(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		word := strings.Repeat("w", 10_000)
		var said []store.Item
		for i := range 20 {
			said = append(said, store.Item{ID: fmt.Sprint("in_", i), JSON: fmt.Appendf(nil, `{"role":"user","content":"%s %d"}`, word, i)})
			r := record(t, "", fmt.Sprint("resp_", i), "")
			r.Input = slices.Clone(said)
			if !s.Put(r, nil) {
				t.Fatal("not kept")
			}
			last, before, ok := s.Conversation("", r.ID)
			if !ok || texts(before) != texts(said) {
				t.Fatalf("conversation %d is another:\n%s", i, texts(before))
			}
			said = append(said, last.Output...)
		}
		if stats := s.Stats(); stats.Bytes > 300_000 {
			t.Fatalf("%+v", stats)
		}
		if o.Dir != "" {
			s = open(t, o)
			said = append(said, store.Item{ID: "more", JSON: []byte(`{"role":"user","content":"more"}`)})
			r := record(t, "", "resp_more", "")
			r.Input = said
			s.Put(r, nil)
			if stats := s.Stats(); stats.Bytes > 300_000 {
				t.Fatalf("after a restart: %+v", stats)
			}
		}
		// Another tenant who says the same shares nothing.
		before := s.Stats().Bytes
		r := record(t, "other", "resp_other", "")
		r.Input = said
		s.Put(r, nil)
		if s.Stats().Bytes < before+200_000 {
			t.Fatal("tenants share what they said")
		}
	})
}

// TestTheSameEndIsNotTheSameConversation says what another conversation ended
// with.
func TestTheSameEndIsNotTheSameConversation(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		s.Put(record(t, "", "resp_1", "", "one"), nil)
		first, _, _ := s.Conversation("", "resp_1")
		r := record(t, "", "resp_2", "", "another one", "two")
		r.Input = slices.Insert(r.Input, 1, first.Output...)
		s.Put(r, nil)
		if _, before, ok := s.Conversation("", "resp_2"); !ok || texts(before) != texts(r.Input) {
			t.Fatalf("conversation: %v\n%s", ok, texts(before))
		}
	})
}

// TestWhatIsFinishedStandsWhereItBegan finishes a response that others have seen
// begin, when what it continues can no longer be asked for.
func TestWhatIsFinishedStandsWhereItBegan(t *testing.T) {
	o := store.Options{Dir: t.TempDir()}
	maker := open(t, o)
	maker.Put(record(t, "", "resp_1", "", "one"), nil)
	begun := record(t, "", "resp_2", "resp_1", "two")
	begun.Status = "queued"
	maker.Put(begun, nil)
	maker.Delete("", "resp_1")
	other := open(t, o)
	maker.Put(record(t, "", "resp_2", "resp_1", "two"), nil)
	for _, s := range []*store.Store{other, maker, open(t, o)} {
		if _, before, ok := s.Conversation("", "resp_2"); !ok || len(before) != 3 {
			t.Fatalf("conversation: %v\n%s", ok, texts(before))
		}
	}
}

// TestUnfinishedIsSeenByOthers follows a response that another process makes.
func TestUnfinishedIsSeenByOthers(t *testing.T) {
	c := newClock()
	o := store.Options{Dir: t.TempDir(), Now: c.now}
	maker, other := open(t, o), open(t, o)
	making := record(t, "", "resp_1", "", "one")
	making.Status, making.Output = "queued", nil
	maker.Put(making, nil)
	see := func(lost bool) {
		t.Helper()
		if r, ok := other.Get("", "resp_1"); !ok || r.Status != "queued" || r.Lost != lost {
			t.Fatalf("%v %+v", ok, r)
		}
	}
	see(false)
	for range 10 { // as long as its maker is there
		c.pass(time.Minute)
		maker.Sweep()
		see(false)
	}
	c.pass(4 * time.Minute)
	see(true)
	if r, _ := maker.Get("", "resp_1"); r.Lost {
		t.Fatal("the maker has lost it")
	}
	maker.Put(record(t, "", "resp_1", "", "one"), nil)
	if r, ok := other.Get("", "resp_1"); !ok || r.Status != "completed" || len(r.Output) != 1 {
		t.Fatalf("%v %+v", ok, r)
	}
	if _, ok := other.Item("", "msg_resp_1"); !ok {
		t.Fatal("its items are not found")
	}
	if a, b := maker.Stats(), other.Stats(); a.Entries != 1 || b.Entries != 1 || a.Bytes != b.Bytes {
		t.Fatalf("%+v %+v", a, b)
	}
}

// TestNothingStandsOnWhatIsUnfinished sends again what a response is being made
// of: its end must find room.
func TestNothingStandsOnWhatIsUnfinished(t *testing.T) {
	kinds(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		making := record(t, "", "resp_1", "", "one")
		making.Status, making.Output = "queued", nil
		s.Put(making, nil)
		s.Put(record(t, "", "resp_2", "", "one"), nil)
		s.Put(record(t, "", "resp_3", "", "one", "two"), nil)
		if !s.Put(record(t, "", "resp_1", "", "one"), nil) {
			t.Fatal("the finished response was refused")
		}
		for _, id := range []string{"resp_1", "resp_2", "resp_3"} {
			if r, ok := s.Get("", id); !ok || r.Status != "completed" {
				t.Errorf("%s: %v %+v", id, ok, r)
			}
		}
	})
}

// TestItemsOfOthersAreFound asks for an item first, of a response whose beginning
// was seen.
func TestItemsOfOthersAreFound(t *testing.T) {
	o := store.Options{Dir: t.TempDir()}
	maker, other := open(t, o), open(t, o)
	const id = "resp_0123456789abcdef0123456789abcdef"
	put := func(status, output string) {
		t.Helper()
		r, err := store.NewRecord(store.Record{ID: id, Status: status}, fmt.Appendf(nil, `{"output":[%s]}`, output))
		if err != nil || !maker.Put(r, nil) {
			t.Fatal(err)
		}
	}
	put("queued", "")
	if _, ok := other.Get("", id); !ok {
		t.Fatal("not found")
	}
	put("completed", `{"id":"msg_0123456789abcdef0123456789abcdef00"}`)
	if _, ok := other.Item("", "msg_0123456789abcdef0123456789abcdef00"); !ok {
		t.Fatal("not found when it is finished")
	}
}

// TestIDsOfClientsNameNoFiles asks for what lies outside of the directory.
func TestIDsOfClientsNameNoFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Options{Dir: filepath.Join(dir, "inner")})
	outer := open(t, store.Options{Dir: dir})
	outer.Put(record(t, "", "resp_1", "", "one"), nil)
	for _, id := range []string{"../resp_1", "", ".", "resp_1/../../resp_1", "resp_1\x00", strings.Repeat("r", 300)} {
		if _, ok := s.Get("", id); ok {
			t.Errorf("%q is found", id)
		}
	}
}

// TestKindsAgree does the same to a store in memory, one in a directory, and one
// in a directory that is opened anew all the time.
func TestKindsAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		dirs := []string{"", t.TempDir(), t.TempDir()}
		stores := make([]*store.Store, len(dirs))
		reopen := func(i int) { stores[i] = open(t, store.Options{Dir: dirs[i], Now: c.now, TTL: time.Minute}) }
		for i := range dirs {
			reopen(i)
		}
		ids := rapid.SampledFrom([]string{"resp_0", "resp_1", "resp_2", "resp_3", "resp_4", "resp_5"})
		said := map[string]string{} // by response, as it must come back
		agree := func(what string, f func(s *store.Store) string) {
			first := f(stores[0])
			for i, s := range stores[1:] {
				if got := f(s); got != first {
					rt.Fatalf("%s: store %d says %q, the one in memory %q", what, i+1, got, first)
				}
			}
			reopen(2)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				id, previous := ids.Draw(rt, "id"), ids.Draw(rt, "previous")
				if id == previous {
					return
				}
				r := record(t, "", id, previous, "words of "+id)
				_, known, ok := stores[0].Conversation("", previous)
				if !ok {
					r.Previous = "" // nobody can continue it
				} else {
					known = append(known, store.Item{JSON: []byte(`{"type":"message","id":"msg_` + previous + `","text":"said by ` + previous + `"}`)})
				}
				whole := rapid.Bool().Draw(rt, "whole")
				if whole { // all is sent again
					r.Previous, r.Input = "", append(slices.Clone(known), r.Input...)
				}
				agree("put", func(s *store.Store) string {
					ok = s.Put(r, known)
					return fmt.Sprint(ok)
				})
				if !ok {
					return
				}
				if whole {
					known = nil
				}
				said[id] = texts(append(slices.Clone(known), r.Input...))
			},
			"get": func(rt *rapid.T) {
				id := ids.Draw(rt, "id")
				agree("get", func(s *store.Store) string {
					r, ok := s.Get("", id)
					if !ok {
						return "nothing"
					}
					return string(r.AppendObject(nil)) + texts(r.Input)
				})
			},
			"conversation": func(rt *rapid.T) {
				id := ids.Draw(rt, "id")
				agree("conversation", func(s *store.Store) string {
					_, before, ok := s.Conversation("", id)
					if ok && texts(before) != said[id] {
						rt.Fatalf("%s:\n%swant:\n%s", id, texts(before), said[id])
					}
					return fmt.Sprint(ok, texts(before))
				})
			},
			"item": func(rt *rapid.T) {
				id := "msg_" + ids.Draw(rt, "id")
				agree("item", func(s *store.Store) string {
					item, ok := s.Item("", id)
					return fmt.Sprint(ok, string(item.JSON))
				})
			},
			"delete": func(rt *rapid.T) {
				id := ids.Draw(rt, "id")
				agree("delete", func(s *store.Store) string { return fmt.Sprint(s.Delete("", id)) })
			},
			"time": func(rt *rapid.T) { c.pass(time.Duration(rapid.IntRange(0, 30).Draw(rt, "seconds")) * time.Second) },
			"": func(rt *rapid.T) {
				agree("entries", func(s *store.Store) string { return fmt.Sprint(s.Stats().Entries) })
			},
		})
	})
}
