package nvext_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/nvext"
)

func ExampleExt() {
	var ext nvext.Ext
	err := json.Unmarshal([]byte(`{
		"agent_hints": {"priority": 7, "osl": 300},
		"decode_worker_id": "9007199254740991"
	}`), &ext)
	fmt.Println(err, *ext.AgentHints.Priority, *ext.AgentHints.OSL, *ext.DecodeWorkerID)
	// Output: <nil> 7 300 9007199254740991
}

func TestWorkerID(t *testing.T) {
	for in, want := range map[string]string{
		`12`: "12", `"12"`: "12", ` 0 `: "0",
		`-1`: "", `"x"`: "", `1.5`: "", `""`: "", `{}`: "",
	} {
		var id nvext.WorkerID
		err := json.Unmarshal([]byte(in), &id)
		if (err == nil) != (want != "") {
			t.Errorf("%s: error %v", in, err)
		}
		if want != "" && fmt.Sprint(uint64(id)) != want {
			t.Errorf("%s: got %d", in, id)
		}
	}
}

// A salt beside the extension object counts where that has none.
func TestWithSalt(t *testing.T) {
	long := strings.Repeat("x", nvext.MaxSalt+1)
	for _, tc := range []struct {
		ext          *nvext.Ext
		beside, want string // "": there is no extension, or the salt is refused
	}{
		{nil, "", ""},
		{nil, "blue", "blue"},
		{&nvext.Ext{CacheSalt: "red"}, "", "red"},
		{&nvext.Ext{CacheSalt: "red"}, "blue", "red"},
		{new(nvext.Ext), "blue", "blue"},
		{nil, long[1:], long[1:]},
		{&nvext.Ext{CacheSalt: "red"}, long, ""},
	} {
		got, err := tc.ext.WithSalt(tc.beside)
		if (err != nil) != (tc.beside == long) {
			t.Errorf("%d bytes: %v", len(tc.beside), err)
		}
		if (got == nil) != (tc.want == "") || got != nil && got.CacheSalt != tc.want {
			t.Errorf("%+v with %q: %+v", tc.ext, tc.beside, got)
		}
	}
}
