package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAnswersTheRecordedBytes(t *testing.T) {
	for _, tt := range []struct{ answer, contentType string }{
		{`{"choices":[]}`, "application/json"},
		{"data: {}\n\n: c\n\ndata: [DONE]\n\n", "text/event-stream"},
	} {
		server := httptest.NewServer(handler([]byte(tt.answer), 0))
		resp, err := http.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		server.Close()
		if err != nil || string(got) != tt.answer || resp.Header.Get("Content-Type") != tt.contentType {
			t.Errorf("got %q (%s), %v; want %q (%s)", got, resp.Header.Get("Content-Type"), err, tt.answer, tt.contentType)
		}
	}
}

func TestPacesEvents(t *testing.T) {
	const interval = 10 * time.Millisecond
	server := httptest.NewServer(handler([]byte("data: 1\n\ndata: 2\n\ndata: 3\n\n"), interval))
	defer server.Close()
	start := time.Now()
	resp, err := http.Post(server.URL, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if took := time.Since(start); took < 3*interval {
		t.Errorf("three events took %v, want at least %v", took, 3*interval)
	}
}
