package selection_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// A dispatcher registers a worker, asks where a prompt should go, and tells how it
// went.
func Example() {
	workers := fleet.New(fleet.Config{})
	defer workers.Close()
	r, err := router.New(router.Config{}, workers)
	if err != nil {
		log.Fatal(err)
	}
	service, err := selection.New(selection.Config{Fleet: workers, Router: r})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(service.Handler())
	defer server.Close()

	call := func(method, path, body string) {
		req, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.StatusCode, string(text[:min(len(text), 60)]))
	}
	call("POST", "/workers", `{"worker_id": 7, "endpoint": "http://10.0.0.7:8000", "block_size": 16}`)
	call("POST", "/select_and_reserve", `{"selection_id": "r1", "token_ids": [1, 2, 3]}`)
	// … the dispatcher sends the request to http://10.0.0.7:8000 …
	call("POST", "/reservations/r1/prefill_complete", ``)
	call("DELETE", "/reservations/r1", ``)
	// Output:
	// 201 {"worker_id":7,"model_name":"default","routing_group":"defau
	// 200 {"selection_id":"r1","isl_tokens":3,"model_name":"default","
	// 200 {"status":"ok"}
	// 200 {"status":"ok"}
}
