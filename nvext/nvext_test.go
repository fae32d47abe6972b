package nvext_test

import (
	"encoding/json"
	"fmt"
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
