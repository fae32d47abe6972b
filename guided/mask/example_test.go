package mask_test

import (
	"fmt"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

func Example() {
	tokens := []string{"{", "}", `"`, "ok", ":", "true", "false", "maybe", `{"ok`, ""}
	v := mask.Tokens{Ends: []uint32{9}}
	for _, t := range tokens {
		v.Bytes = append(v.Bytes, []byte(t))
	}
	vocabulary, err := mask.NewVocabulary(v)
	if err != nil {
		panic(err)
	}
	grammar, err := mask.NewCompiler(vocabulary).Compile(&chat.OutputFormat{
		Kind:   chat.FormatJSONSchema,
		Schema: []byte(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`),
	})
	if err != nil {
		panic(err)
	}
	state := grammar.Start()
	bits := make([]uint64, vocabulary.Words())
	for _, id := range []uint32{8, 2, 4, 5, 1, 9} { // what a model would choose
		if err := state.Mask(bits); err != nil {
			panic(err)
		}
		var may []string
		for i, t := range tokens {
			if bits[i/64]>>(i%64)&1 == 1 {
				may = append(may, t)
			}
		}
		fmt.Printf("%q, and then %s\n", may, tokens[id])
		if err := state.Advance(id); err != nil {
			panic(err)
		}
	}
	// Output:
	// ["{" "{\"ok"], and then {"ok
	// ["\""], and then "
	// [":"], and then :
	// ["true" "false"], and then true
	// ["}"], and then }
	// [""], and then
}
