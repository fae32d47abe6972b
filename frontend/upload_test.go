package frontend

import "testing"

func TestUploadPrefix(t *testing.T) {
	p, err := ParseUploadPrefix("https://Store.example:8443/traces/")
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]bool{
		"https://store.example:8443/traces":                      true,
		"HTTPS://STORE.example:8443/traces/a/b?sig=1#x":          true,
		"https://store.example:8443/traces-of-others/a":          false,
		"https://store.example:8443/":                            false,
		"https://store.example:8443/traces/../secret":            false,
		"https://store.example:8443/traces/%2e%2e/x":             false,
		"https://store.example:8443/traces//x":                   false,
		"https://store.example/traces/a":                         false,
		"http://store.example:8443/traces/a":                     false,
		"https://store.example:8443@evil.example/traces/a":       false,
		"https://user@store.example:8443/traces/a":               false,
		"https://evil.example/https://store.example:8443/traces": false,
		"":                                       false,
		"traces":                                 false,
		"https://store.example:8443/traces/\x00": false,
	} {
		if got := p.allows(place); got != want {
			t.Errorf("%q: %t", place, got)
		}
	}
	for _, text := range []string{"", "store.example", "https://", "https://u:p@h/", "https://h/a/../b", "https://h/?x=1", "https://h/#x", "mailto:a"} {
		if _, err := ParseUploadPrefix(text); err == nil {
			t.Errorf("%q is a prefix", text)
		}
	}
	all, err := ParseUploadPrefix("s3://bucket")
	if err != nil || !all.allows("s3://bucket/any/key") || all.allows("s3://bucket2/any") {
		t.Errorf("a whole bucket: %+v %v", all, err)
	}
}
