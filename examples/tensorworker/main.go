// Command tensorworker is a worker of tensors in Go: it makes small pictures of large
// ones. Copy it, and put your own model into Infer.
//
// What is not the model's is done by remote.NewServer: it tells frontends what the
// worker is and that it lives, lets in as many calls as there is room for, carries
// cancellation to them, and sees to it that nobody is cut off when the worker leaves.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/dynago/dynago/engine/remote"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:50061", "`address` on which frontends reach the worker")
	name := flag.String("name", "example/thumbnails", "`name` of the model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *listen, *name); err != nil {
		fmt.Fprintln(os.Stderr, "tensorworker:", err)
		os.Exit(1)
	}
}

// serve answers until ctx ends, and lets running calls finish then.
func serve(ctx context.Context, address, name string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := remote.NewServer(remote.ServerConfig{
		Engine: newThumbnails(name),
		// A picture takes a processor; more of them at once would all be slower. A few
		// may wait, and whoever comes then is sent to another worker.
		Requests: runtime.NumCPU(), Queue: 4 * runtime.NumCPU(),
		Reflection: true, Log: slog.Default(),
	})
	defer server.Close()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	fmt.Printf("listening on port %d\n", l.Addr().(*net.TCPAddr).Port)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Drain(patience, time.Second)
}
