package disk

import (
	"math/bits"
	"sync"
	"unsafe"
)

// buffers keeps buffers of whole pages that begin at a page, by length: eight
// lengths to each doubling, so that at most an eighth is not needed.
var buffers [64 * 8]sync.Pool

// buffer returns n zero or used bytes, aligned to pages, and how to give them
// back.
func buffer(n int) (b []byte, release func()) {
	pages := max(1, int(pagesOf(int64(n))))
	class := 0
	if shift := bits.Len(uint(pages)) - 4; shift > 0 {
		pages = (pages + 1<<shift - 1) >> shift << shift
		shift = bits.Len(uint(pages)) - 4
		class = shift*8 + pages>>shift
	} else {
		class = pages
	}
	pool := &buffers[class]
	whole, _ := pool.Get().(*[]byte)
	if whole == nil {
		fresh := aligned(pages * page)
		whole = &fresh
	}
	return (*whole)[:n], func() { pool.Put(whole) }
}

// aligned returns n new bytes that begin at a page.
func aligned(n int) []byte {
	b := make([]byte, n+page)
	skip := (page - int(uintptr(unsafe.Pointer(&b[0]))%page)) % page
	return b[skip : skip+n : skip+n]
}

// isAligned reports whether b begins at a page.
func isAligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%page == 0
}
