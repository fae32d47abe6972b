package talk

import (
	"encoding/json"
	"testing"
)

// Words that are made up may be such as Go, but not JSON, reads as numbers.
func TestValueIsJSON(t *testing.T) {
	for text, want := range map[string]string{
		"12": "12", "-3": "-3", "4.5": "4.5",
		"nan": `"nan"`, "Inf": `"Inf"`, "infinity": `"infinity"`, "0x1p4": `"0x1p4"`, "007": `"007"`, "true": `"true"`, "": `""`,
	} {
		if got := value(text); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q is written %s, want %s", text, got, want)
		}
	}
}
