package kvcache

// slab hands out numbered records without an allocation for each.
type slab[T any] struct {
	records []T
	free    []int32
}

// take returns the number of a zero record.
func (s *slab[T]) take() int32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	var zero T
	s.records = append(s.records, zero)
	return int32(len(s.records) - 1)
}

// at returns a record; the pointer is valid until the next take.
func (s *slab[T]) at(id int32) *T { return &s.records[id] }

func (s *slab[T]) give(id int32) {
	var zero T
	s.records[id] = zero
	s.free = append(s.free, id)
}
