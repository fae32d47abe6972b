package safetensors_test

import (
	"bytes"
	"fmt"

	"github.com/dynago/dynago/engine/tiny/safetensors"
)

func Example() {
	var file bytes.Buffer
	err := safetensors.Write(&file, map[string]string{"format": "pt"}, []safetensors.Source{
		{Name: "model.norm.weight", Type: safetensors.BF16, Shape: []int{2}, Data: []byte{128, 63, 0, 64}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := safetensors.Read(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range f.Tensors {
		fmt.Println(t.Name, t.Type, t.Shape, t.Bytes(), "bytes")
	}
	// Output: model.norm.weight BF16 [2] 4 bytes
}
