package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/nvext"
)

func TestTenants(t *testing.T) {
	keys := "keys"
	s := httpSettings{APIKeysFile: &keys, Tenants: []string{
		"name=acme,max_priority=-3,max_strict_priority=0,max_ttl=90m,pin_share=0.25", "max-priority=2147483647, name=blue", "name=free",
	}}
	got, err := s.tenants()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*nvext.Caps{
		"acme": {MaxPriority: new(int32(-3)), MaxStrictPriority: new(uint32(0)), MaxTTL: new(90 * time.Minute), PinShare: new(0.25)},
		"blue": {MaxPriority: new(int32(math.MaxInt32))},
		"free": {},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for text, want := range map[string]string{
		"acme":                                    `"acme": want KEY=VALUE`,
		"max_priority=1":                          "want name=NAME",
		"name=":                                   `name: "": want one word`,
		"name=a b":                                `name: "a b": want one word`,
		"name=a,max_priority=2147483648":          `max_priority: "2147483648": want a whole number from -2147483648 to 2147483647`,
		"name=a,max_strict_priority=-1":           `max_strict_priority: "-1": want a whole number from 0 to 4294967295`,
		"name=a,max_ttl=1y":                       `max_ttl: "1y": want a duration`,
		"name=a,max_ttl=-1s":                      `max_ttl: "-1s": want a duration`,
		"name=a,pin_share=1.5":                    `pin_share: "1.5": want a share from 0 to 1`,
		"name=a,pin_share=NaN":                    `pin_share: "NaN": want a share from 0 to 1`,
		"name=a,colour=blue":                      `there is no cap "colour"`,
		"name=acme,max_priority=1;name=acme":      "acme stands there twice",
		"name=acme,max_priority=1.0;name=another": `max_priority: "1.0": want a whole number`,
	} {
		s := httpSettings{APIKeysFile: &keys, Tenants: strings.Split(text, ";")}
		if _, err := s.tenants(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := (&httpSettings{Tenants: []string{"name=a"}}).tenants(); err == nil || !strings.Contains(err.Error(), "--api-keys-file") {
		t.Errorf("without keys: %v", err)
	}
}
