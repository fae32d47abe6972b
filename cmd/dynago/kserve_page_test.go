package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The page for who comes from Triton has each setting, under both of its names. What it
// tells to run is run by e2e/kserve, with the programs that it names.
func TestPageOfKServeIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../docs/kserve.md")
	if err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[kserveSettings]().Fields() {
		flag, env := f.Tag.Get("name"), f.Tag.Get("env")
		if !strings.Contains(string(page), flag) || !strings.Contains(string(page), "`"+env) {
			t.Errorf("the page does not name %s and %s", flag, env)
		}
	}
}
