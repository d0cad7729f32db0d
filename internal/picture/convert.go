package picture

import (
	"image"
	"image/color"
)

// rows reads a picture row by row with straight alpha: what a transparent pixel
// hides must survive when the alpha is dropped or replaced. No copy of all pixels
// is made.
type rows struct {
	image.Image
	palette []color.NRGBA
}

func rowsOf(img image.Image) *rows {
	r := &rows{Image: img}
	if p, ok := img.(*image.Paletted); ok {
		r.palette = make([]color.NRGBA, 256)
		for n, c := range p.Palette {
			r.palette[n] = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
	}
	return r
}

// Opaque reports whether all pixels are opaque.
func (r *rows) Opaque() bool {
	o, ok := r.Image.(interface{ Opaque() bool })
	return ok && o.Opaque()
}

// Row returns row y, counted from 0, with 4 bytes per pixel. It may be to, which
// has room for it, or a part of the picture: it must not be changed.
func (r *rows) Row(y int, to []uint8) []uint8 {
	b := r.Bounds()
	width := b.Dx()
	y += b.Min.Y
	to = to[:4*width]
	switch img := r.Image.(type) {
	case *image.NRGBA:
		return img.Pix[img.PixOffset(b.Min.X, y):][:4*width]
	case *image.YCbCr:
		yccRow(img, b.Min.X, y, to)
	case *image.NYCbCrA:
		yccRow(&img.YCbCr, b.Min.X, y, to)
		for n, a := range img.A[img.AOffset(b.Min.X, y):][:width] {
			to[4*n+3] = a
		}
	case *image.Gray:
		for n, v := range img.Pix[img.PixOffset(b.Min.X, y):][:width] {
			to[4*n], to[4*n+1], to[4*n+2], to[4*n+3] = v, v, v, 255
		}
	case *image.Gray16:
		for n := range width {
			v := img.Pix[img.PixOffset(b.Min.X+n, y)]
			to[4*n], to[4*n+1], to[4*n+2], to[4*n+3] = v, v, v, 255
		}
	case *image.Paletted:
		for n, v := range img.Pix[img.PixOffset(b.Min.X, y):][:width] {
			c := r.palette[v]
			to[4*n], to[4*n+1], to[4*n+2], to[4*n+3] = c.R, c.G, c.B, c.A
		}
	case *image.CMYK:
		pix := img.Pix[img.PixOffset(b.Min.X, y):]
		for n := range width {
			p := pix[4*n:][:4]
			to[4*n], to[4*n+1], to[4*n+2] = color.CMYKToRGB(p[0], p[1], p[2], p[3])
			to[4*n+3] = 255
		}
	case *image.NRGBA64:
		pix := img.Pix[img.PixOffset(b.Min.X, y):]
		for n := range to {
			to[n] = pix[2*n] // the high byte, as in Pillow
		}
	case *image.RGBA:
		pix := img.Pix[img.PixOffset(b.Min.X, y):]
		for n := range width {
			p := pix[4*n:][:4]
			straighten(to[4*n:], p[0], p[1], p[2], p[3])
		}
	case *image.RGBA64:
		pix := img.Pix[img.PixOffset(b.Min.X, y):]
		for n := range width {
			p := pix[8*n:][:8]
			straighten(to[4*n:], p[0], p[2], p[4], p[6])
		}
	default:
		for n := range width {
			set(to[4*n:], r.At(b.Min.X+n, y))
		}
	}
	return to
}

// straighten writes a pixel whose colours were multiplied by its alpha.
func straighten(to []uint8, r, g, b, a uint8) {
	to[0], to[1], to[2], to[3] = r, g, b, a
	if a != 0 && a != 255 {
		for n := range 3 {
			to[n] = uint8(min((uint32(to[n])*255+uint32(a)/2)/uint32(a), 255))
		}
	}
}

func set(to []uint8, c color.Color) {
	s := color.NRGBAModel.Convert(c).(color.NRGBA)
	to[0], to[1], to[2], to[3] = s.R, s.G, s.B, s.A
}

func yccRow(img *image.YCbCr, x, y int, to []uint8) {
	for n := range len(to) / 4 {
		at := img.COffset(x+n, y)
		to[4*n], to[4*n+1], to[4*n+2] = color.YCbCrToRGB(img.Y[img.YOffset(x+n, y)], img.Cb[at], img.Cr[at])
		to[4*n+3] = 255
	}
}

// toNRGBA returns a picture that can be changed; it is the same picture if it
// already has that form.
func toNRGBA(img image.Image) *image.NRGBA {
	switch img := img.(type) {
	case *image.NRGBA:
		return img
	case *image.RGBA:
		if img.Opaque() { // then both forms have the same bytes
			return &image.NRGBA{Pix: img.Pix, Stride: img.Stride, Rect: img.Rect}
		}
	}
	from := rowsOf(img)
	b := img.Bounds()
	out := image.NewNRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	for y := range b.Dy() {
		from.Row(y, out.Pix[y*out.Stride:])
	}
	return out
}

// hasAlpha reports whether a picture has its own alpha channel, as opposed to a
// palette with transparent colours.
func hasAlpha(img image.Image) bool {
	switch img.(type) {
	case *image.NRGBA, *image.NRGBA64, *image.NYCbCrA, *image.RGBA, *image.RGBA64:
		return true
	}
	return false
}

// dropAlpha makes every pixel opaque and keeps its colour. It changes img.
func dropAlpha(img *image.NRGBA) {
	for i := 3; i < len(img.Pix); i += 4 {
		img.Pix[i] = 0xff
	}
}

// flat hides the alpha of rows.
type flat struct {
	*rows
	own []uint8
}

func (flat) Opaque() bool { return true }

// Row implements webp.Rows.
func (f flat) Row(y int, to []uint8) []uint8 {
	row := append(f.own[:0], f.rows.Row(y, to)...)
	for n := 3; n < len(row); n += 4 {
		row[n] = 0xff
	}
	return row
}

// AlphaOf returns the alpha channel of a picture, row by row.
func AlphaOf(img image.Image) []uint8 {
	from, size := rowsOf(img), img.Bounds().Size()
	alpha, row := make([]uint8, 0, size.X*size.Y), make([]uint8, 4*size.X)
	for y := range size.Y {
		pixels := from.Row(y, row)
		for n := 3; n < len(pixels); n += 4 {
			alpha = append(alpha, pixels[n])
		}
	}
	return alpha
}
