package prompt

// WithoutPlaces returns the model without its memory of where places are.
func (m *Model) WithoutPlaces() *Model {
	c := *m
	c.places = nil
	return &c
}

// KnownPlaces returns how many places are remembered.
func (m *Model) KnownPlaces() int { return len(m.places.young) + len(m.places.old) }

// WithOwnPlaces returns the model with a memory of its own.
func (m *Model) WithOwnPlaces() *Model {
	c := *m
	c.places = new(settledPlaces)
	return &c
}
