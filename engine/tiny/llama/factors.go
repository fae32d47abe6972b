package llama

// RopeFactors returns what the frequencies of positions are divided by, one number
// for each pair of a head: ones where they are not stretched.
func (c Config) RopeFactors() []float32 {
	factors := make([]float32, c.HeadSize/2)
	for i := range factors {
		f := c.frequency(i)
		factors[i] = float32(f / c.RopeScaling.stretch(f, i))
	}
	return factors
}
