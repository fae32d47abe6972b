package llama

// Plain returns the same model with the kernels of every platform.
func Plain(m *Model) *Model {
	c := *m
	c.kernels = &plain
	return &c
}
