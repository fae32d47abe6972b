package frontend_test

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/dynago/dynago/frontend"
)

// A server needs a backend and a listener.
func Example() {
	server, err := frontend.New(frontend.Config{Backend: newFake(), OwnedBy: "me"})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go server.Serve(listener)
	defer server.Close()

	resp, err := http.Get("http://" + listener.Addr().String() + "/live")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	// Output: 200 {"status":"live","message":"Service is live"} <nil>
}
