//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex/hicache"
)

func TestReadLayout(t *testing.T) {
	got, err := readLayout("page_size=64,tp=2,pp=3,lcm=4,tag=x,mla,eagle,split_heads")
	want := hicache.Layout{Backend: "mooncake", PageSize: 64, TP: 2, PP: 3, LCM: 4, Tag: "x", MLA: true, Eagle: true, SplitHeads: true}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":              "want page_size=N",
		"page_size=0":   "at least 1",
		"page_size":     "at least 1",
		"page_size=1,x": `"x": want page_size=N`,
		"mla=yes":       "want page_size=N",
		"tag=":          "want page_size=N",
	} {
		if _, err := readLayout(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// What one engine stores in a kvstore, any router that follows it knows: pages
// from before it listened, new ones, and those that have gone.
func TestRouterFollowsKVStore(t *testing.T) {
	t.Parallel()
	store := start(t, "events ", "kvstore", "--listen", "127.0.0.1:0", "--http-listen", "off", "--memory", "64MiB",
		"--events-listen", "127.0.0.1:0", "--events-replay-listen", "127.0.0.1:0")
	found := regexp.MustCompile(`(?s)redis://(\S+).*events +(\S+), again (\S+)`).FindStringSubmatch(store.banner)
	if found == nil {
		t.Fatalf("it printed %q", store.banner)
	}
	redis, err := net.Dial("tcp", found[1])
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	do := func(args ...string) {
		t.Helper()
		text := fmt.Sprintf("*%d\r\n", len(args))
		for _, a := range args {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
		}
		if _, err := io.WriteString(redis, text); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 100)
		if n, err := redis.Read(answer); err != nil || answer[0] == '-' {
			t.Fatalf("%s: %q, %v", args[0], answer[:n], err)
		}
	}
	tokens := make([]uint32, 64) // four pages
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	pages := kv.AppendPageHashes(nil, tokens, 16, false)
	page := func(i int) []string { return []string{pages[i].String() + "_0_k", pages[i].String() + "_0_v"} }
	set := func(i int) {
		for _, key := range page(i) {
			do("SET", key, "values")
		}
	}
	set(0)
	set(1)

	p := serve(t, "--workers", "1", "--shared-cache-type", "hicache", "--shared-cache-events", found[2], "--shared-cache-replay", found[3],
		"--shared-cache-layout", "page_size=16")
	body := strings.ReplaceAll(fmt.Sprintf(`{"model_name":"dynago/demo","token_ids":%v}`, tokens), " ", ",")
	until(t, "the pages from before are known", func() bool {
		return strings.Contains(p.send("/admin/router/select/overlap_scores", body).body, `"ranges":[[0,2]]`)
	})
	set(3)
	do("DEL", page(0)[0])
	until(t, "what has changed since is known", func() bool {
		got := p.send("/admin/router/select/overlap_scores", body).body
		return strings.Contains(got, `"ranges":[[1,2],[3,4]]`) && strings.Contains(got, `"shared_beyond_device_blocks":2`)
	})
}
