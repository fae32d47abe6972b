package zmtp_test

import (
	"context"
	"fmt"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// A subscriber sees when it can rely on a connection, and what comes over it.
func Example() {
	ctx := context.Background()
	pub := zmtp.NewPub(zmtp.Options{})
	defer pub.Close()
	endpoint, err := pub.Bind(ctx, "tcp://127.0.0.1:*")
	if err != nil {
		fmt.Println(err)
		return
	}
	sub := zmtp.NewSub(zmtp.Options{})
	defer sub.Close()
	if err := sub.Subscribe("kv"); err != nil {
		fmt.Println(err)
		return
	}
	if err := sub.Connect(endpoint); err != nil {
		fmt.Println(err)
		return
	}
	for m, err := range sub.Messages(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch m.Event {
		case zmtp.Connected:
			fmt.Printf("connection %d to a %s\n", m.Peer.Epoch(), m.Peer.SocketType())
		case zmtp.Subscribed:
			fmt.Println("from now on nothing is missed")
			_ = pub.Send([]byte("kv"), []byte("a batch"))
		case zmtp.Data:
			fmt.Printf("%s: %s\n", m.Parts[0], m.Parts[1])
			return
		}
	}
	// Output:
	// connection 1 to a PUB
	// from now on nothing is missed
	// kv: a batch
}
