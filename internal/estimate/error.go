package estimate

// Errors sums up how far estimates were off. The zero value has none.
type Errors struct {
	// Count is how many estimates were held against what came, Over how many of them
	// said more than that, and Above how many requests came to more than High.
	Count, Over, Above int64
	// Told and Came are what the medians said and what came, added up, and Off is by how
	// much they differed, whichever way.
	Told, Came, Off float64
}

// Add holds an estimate against what came.
func (s *Errors) Add(e Estimate, came uint32) {
	told, got := float64(e.Median), float64(came)
	s.Count++
	s.Told += told
	s.Came += got
	s.Off += max(told-got, got-told)
	if e.Median > came {
		s.Over++
	}
	if came > e.High {
		s.Above++
	}
}
