package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"net"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote"
)

// halves is a picture that is red on its left and blue on its right.
func halves(t *testing.T, width, height int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := color.RGBA{R: 200, A: 255}
			if x >= width/2 {
				c = color.RGBA{B: 100, A: 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func call(file []byte, sides ...int32) *engine.TensorRequest {
	var sizes []byte
	for _, s := range sides {
		sizes = binary.LittleEndian.AppendUint32(sizes, uint32(s))
	}
	return &engine.TensorRequest{ID: "7", Model: "m", Inputs: []engine.Tensor{
		{Name: "image", Datatype: "BYTES", Shape: []int64{1}, Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(file))), file...)},
		{Name: "sizes", Datatype: "INT32", Shape: []int64{int64(len(sides) / 2), 2}, Data: sizes},
	}}
}

// dial serves the model, and returns it as frontends have it.
func dial(t *testing.T) *remote.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := remote.NewServer(remote.ServerConfig{Engine: newThumbnails("m")})
	go server.Serve(l) //nolint:errcheck // it ends with Close
	t.Cleanup(server.Close)
	client, err := remote.New(remote.Config{URL: "grpc://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for s := range client.Card(t.Context()) {
		if s.State == engine.Ready {
			return client
		}
	}
	t.Fatal("the worker is not ready")
	return nil
}

func TestSizes(t *testing.T) {
	var got []*engine.TensorResponse
	for r, err := range dial(t).Infer(t.Context(), call(halves(t, 100, 50), 4, 2, 2, 1, 300, 7)) {
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Outputs[0].Check(); err != nil {
			t.Error(err)
		}
		got = append(got, r)
	}
	if len(got) != 3 || got[2].Parameters["index"] != int64(2) || got[2].Outputs[0].Shape[1] != 300 {
		t.Fatalf("%d responses: %+v", len(got), got)
	}
	red, blue := []byte{200, 0, 0}, []byte{0, 0, 100}
	row := bytes.Join([][]byte{red, red, blue, blue}, nil)
	if want := append(row, row...); !bytes.Equal(got[0].Outputs[0].Data, want) {
		t.Errorf("4 by 2: %v, want %v", got[0].Outputs[0].Data, want)
	}
	if want := append(red, blue...); !bytes.Equal(got[1].Outputs[0].Data, want) {
		t.Errorf("2 by 1: %v, want %v", got[1].Outputs[0].Data, want)
	}
}

// What clients send is theirs to mend.
func TestRefusals(t *testing.T) {
	client, file := dial(t), halves(t, 4, 4)
	two := call(file, 1, 1)
	two.Inputs[0].Data = append(two.Inputs[0].Data, 0, 0, 0, 0)
	other := call(file, 1, 1)
	other.Inputs[1].Datatype = "INT64"
	for want, r := range map[string]*engine.TensorRequest{
		"want a PNG, JPEG or GIF": call([]byte("text"), 1, 1),
		"0 by 5: want 1 to 4096":  call(file, 3, 3, 0, 5),
		"-1 by 5":                 call(file, -1, 5),
		"5000 by 5":               call(file, 5000, 5),
		"want one picture":        two,
		"'sizes' of INT64":        other,
		"want inputs 'image'":     {Model: "m"},
	} {
		n := 0
		for _, err := range client.Infer(t.Context(), r) {
			if n++; engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if n != 1 {
			t.Errorf("%q: %d items", want, n)
		}
	}
}

// Nothing is made for a client that has gone.
func TestLeaving(t *testing.T) {
	sides := make([]int32, 2000)
	for i := range sides {
		sides[i] = 1000
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	n := 0
	for _, err := range newThumbnails("m").Infer(ctx, call(halves(t, 8, 8), sides...)) {
		if n++; n == 1 {
			cancel(engine.ErrClientGone)
		} else if engine.KindOf(err) != engine.Cancelled {
			t.Fatal(err)
		}
	}
	if n != 2 {
		t.Errorf("%d items", n)
	}
}
