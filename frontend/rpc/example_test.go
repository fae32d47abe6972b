package rpc_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

func Example() {
	front, err := frontend.New(frontend.Config{Backend: &fake{ready: true}})
	if err != nil {
		log.Fatal(err)
	}
	server := rpc.New(rpc.Config{Frontend: front})
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener) //nolint:errcheck // it ends with the server

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(context.Background(), text("1", "Hello world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Outputs[0].Contents.BytesContents[0])
	// Output: Helloworld
}
