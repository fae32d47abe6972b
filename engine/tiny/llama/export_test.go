package llama

// Plain returns the same model with the kernels of every platform.
func Plain(m *Model) *Model {
	c := *m
	c.kernels = &plain
	return &c
}

// QuantizeQ8 appends numbers as blocks of Q8_0.
func QuantizeQ8(dst []byte, src []float32) []byte { return quantizeQ8(dst, src) }
