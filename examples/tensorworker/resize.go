package main

import (
	"bytes"
	"image"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"

	"github.com/dynago/dynago/engine"
)

// mostPixels bounds what a picture may unfold to: a small file can say that it is as
// large as a city.
const mostPixels = 64 << 20

// decode reads a PNG, JPEG or GIF.
func decode(file []byte) (image.Image, error) {
	config, format, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "input 'image': %v: want a PNG, JPEG or GIF", err)
	}
	if config.Height == 0 || config.Width == 0 || config.Width > mostPixels/config.Height {
		return nil, engine.Errorf(engine.InvalidArgument, "input 'image': %d by %d pixels: want 1 to %d", config.Width, config.Height, mostPixels)
	}
	picture, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "input 'image': %s: %v", format, err)
	}
	return picture, nil
}

// resize returns a picture as rows of red, green and blue. Each pixel is the mean of
// those that it stands for, at least the nearest one.
func resize(picture image.Image, width, height int) []byte {
	from, out := picture.Bounds(), make([]byte, 0, width*height*3)
	for y := range height {
		top, bottom := span(y, height, from.Dy())
		for x := range width {
			left, right := span(x, width, from.Dx())
			var red, green, blue, n uint64
			for j := from.Min.Y + top; j < from.Min.Y+bottom; j++ {
				for i := from.Min.X + left; i < from.Min.X+right; i++ {
					r, g, b, _ := picture.At(i, j).RGBA()
					red, green, blue, n = red+uint64(r), green+uint64(g), blue+uint64(b), n+1
				}
			}
			out = append(out, byte(red/n>>8), byte(green/n>>8), byte(blue/n>>8))
		}
	}
	return out
}

// span returns which of so many pixels the i-th of n stands for.
func span(i, n, pixels int) (first, end int) {
	first = i * pixels / n
	return first, max(first+1, (i+1)*pixels/n)
}
