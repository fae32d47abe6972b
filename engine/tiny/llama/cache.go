package llama

import (
	"fmt"
	"unsafe"
)

// Cache holds the keys and values of blocks of positions, for all layers of a
// model, and the scratch memory of a pass.
//
// One Forward at a time may run on a cache. Meanwhile the bytes of blocks that
// are not among those of its spans may be read and written.
type Cache struct {
	model     *Model
	data      []float32
	blocks    int
	blockSize int // positions
	stride    int // floats of a block
	tile      tile
}

// NewCache returns a cache of so many blocks of blockSize positions each. All of
// its memory is allocated here: Forward needs none. It panics if either number
// is below 1.
func (m *Model) NewCache(blocks, blockSize int) *Cache {
	if blocks < 1 || blockSize < 1 {
		panic(fmt.Sprintf("llama: a cache of %d blocks of %d positions", blocks, blockSize))
	}
	c := &Cache{
		model: m, blocks: blocks, blockSize: blockSize,
		stride: m.BlockBytes(blockSize) / 4,
	}
	c.data = make([]float32, blocks*c.stride)
	c.tile = newTile(m, min(m.cfg.Context, blocks*blockSize), blockSize)
	return c
}

// BlockBytes returns how many bytes a block of blockSize positions takes.
func (m *Model) BlockBytes(blockSize int) int {
	return 4 * m.cfg.Layers * 2 * m.cfg.KVHeads * m.cfg.HeadSize * blockSize
}

// Blocks returns how many blocks the cache has, and BlockSize how many positions
// each of them.
func (c *Cache) Blocks() int    { return c.blocks }
func (c *Cache) BlockSize() int { return c.blockSize }

// Block returns the bytes of one block, of all layers, as they lie in memory:
// what is copied to another tier or another process whose Layout is the same.
// They are the cache's own. It panics if there is no such block.
//
// In a block lie for each layer the keys of each head, transposed (a row for each
// number of a head, a column for each position), and then the values of each
// head (a row for each position).
func (c *Cache) Block(slot int) []byte {
	b := c.data[slot*c.stride:][:c.stride]
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(b))), 4*len(b))
}

// layoutVersion stands for the form of a block and for the order in which numbers
// are added. It counts up with every change of one of them.
const layoutVersion = 1

// Layout is a fingerprint of what the bytes of a block mean: architecture and
// version, layers, KV heads and their size, element type, block size, and the
// hash of the model. Blocks of caches that have the same one may be exchanged, also
// between machines of different kernels.
func (c *Cache) Layout() string {
	m := &c.model.cfg
	return fmt.Sprintf("llama.%d/%dx%dx%d/%s/%d/%s", layoutVersion, m.Layers, m.KVHeads, m.HeadSize, native(), c.blockSize, c.model.hash)
}

// keys returns the cache from the keys of a KV head in block 0 on: HeadSize rows
// of blockSize, and those of the next block a stride further.
func (c *Cache) keys(layer, head int) []float32 {
	return c.data[(layer*2*c.model.cfg.KVHeads+head)*c.model.cfg.HeadSize*c.blockSize:]
}

// values does the same for the values: blockSize rows of HeadSize.
func (c *Cache) values(layer, head int) []float32 {
	return c.data[((layer*2+1)*c.model.cfg.KVHeads+head)*c.model.cfg.HeadSize*c.blockSize:]
}

// store writes the key and the value of one position of a layer.
func (c *Cache) store(block int32, offset, layer int, key, value []float32) {
	size, at := c.model.cfg.HeadSize, int(block)*c.stride
	for h := range c.model.cfg.KVHeads {
		keys := c.keys(layer, h)[at+offset:]
		for i, x := range key[h*size:][:size] {
			keys[i*c.blockSize] = x
		}
		copy(c.values(layer, h)[at+offset*size:][:size], value[h*size:])
	}
}
