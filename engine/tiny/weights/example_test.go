package weights_test

import (
	"bytes"
	"fmt"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
)

func Example() {
	shape := llama.Config{
		Vocab: 300, Width: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadSize: 16, Hidden: 128, Context: 512,
		RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}
	var file bytes.Buffer
	tensors := llama.Quantized(llama.RandomTensors(shape, 1))
	if err := weights.WriteGGUF(&file, shape, tensors, gguf.Metadata{"general.name": "random"}); err != nil {
		fmt.Println(err)
		return
	}
	m, err := weights.ReadGGUF(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Config().Layers, "layers,", m.Config().Parameters(), "weights,", file.Len()/1024, "KiB")
	// Output: 2 layers, 93248 weights, 99 KiB
}
