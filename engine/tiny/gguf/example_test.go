package gguf_test

import (
	"bytes"
	"fmt"

	"github.com/dynago/dynago/engine/tiny/gguf"
)

func Example() {
	var file bytes.Buffer
	err := gguf.Write(&file, gguf.Metadata{"general.name": "small"}, []gguf.Source{
		{Name: "output_norm.weight", Type: gguf.F32, Shape: []int{2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := gguf.Read(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Metadata.Text("general.name"))
	for _, t := range f.Tensors {
		fmt.Println(t.Name, t.Type, t.Shape, t.Bytes(), "bytes")
	}
	// Output:
	// small
	// output_norm.weight F32 [2] 8 bytes
}
