// Command proxy is the least that can stand between clients and a server in Go:
// the reverse proxy of the standard library, which passes on each piece of an
// answer when it comes. The benchmarks hold dynago before an engine against it.
//
//	go run ./bench/proxy -target http://127.0.0.1:8100
//
// It prints its address on one line and serves until it is killed.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address")
	target := flags.String("target", "", "address of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	to, err := url.Parse(*target)
	if err != nil || to.Host == "" {
		return fmt.Errorf("-target %q: want an address such as http://127.0.0.1:8100", *target)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s\n", listener.Addr())
	return http.Serve(listener, handler(to))
}

// handler keeps as many connections as a load has clients: the two that the
// default keeps would make it dial for most requests.
func handler(to *url.URL) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1024
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
	}
}
