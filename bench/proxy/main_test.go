package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Each piece reaches the client before the next one is there.
func TestPassesPiecesOn(t *testing.T) {
	next := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "data: %s%s\n\n", r.URL.Path, body)
		w.(http.Flusher).Flush()
		<-next
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(handler(to))
	defer proxy.Close()
	resp, err := http.Post(proxy.URL+"/v1/x", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("data: /v1/x{}\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: /v1/x{}\n\n" {
		t.Fatalf("%q, %v", first, err)
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestWantsATarget(t *testing.T) {
	for _, args := range [][]string{nil, {"-target", "here"}} {
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), "want an address") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
