package s3

// ReadLease reads a lock.
var ReadLease = readLease

// Meta is what a `.meta` object says, and how that is written.
type Meta struct {
	Size    int64
	Tag     []byte
	Written map[string]string
}

// ReadMeta reads the metadata of a `.meta` object.
func ReadMeta(user map[string]string) (Meta, bool) {
	m, err := readMeta(object{user: user})
	return Meta{m.size, m.tag, m.write()}, err == nil
}

// NameOf and KeyOf translate between keys and the names of objects.
func NameOf(key string) string         { return (&Store{}).name(key) }
func KeyOf(name string) (string, bool) { return (&Store{}).keyOf(name) }
