package main

import (
	"bytes"
	"testing"

	"github.com/dynago/dynago/internal/demo"
)

// The committed file is what this program writes.
func TestReproducesCommittedFile(t *testing.T) {
	want, err := demo.File("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("tokenizer.json differs from what train makes now: run go generate ./internal/demo")
	}
}

func TestInflection(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{withS("city"), "cities"},
		{withS("box"), "boxes"},
		{withS("day"), "days"},
		{withSuffix("stop", "ing"), "stopping"},
		{withSuffix("make", "ing"), "making"},
		{withSuffix("see", "ing"), "seeing"},
		{withSuffix("die", "ing"), "dying"},
		{withSuffix("carry", "ed"), "carried"},
		{withSuffix("visit", "ed"), "visited"},
		{adverb("easy"), "easily"},
		{adverb("simple"), "simply"},
		{adverb("full"), "fully"},
		{adverb("static"), "statically"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
