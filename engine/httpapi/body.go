package httpapi

import "strconv"

// AppendIDs appends token ids as a JSON array. A prompt may have hundreds of
// thousands of them.
func AppendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}
