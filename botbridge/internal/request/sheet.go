package request

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"io"
	"slices"
	"strconv"

	xdraw "golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

const (
	// maxSheet is how many pictures one sheet shows.
	maxSheet = 4
	// cellSide is the longest side of a picture on a sheet, in pixels.
	cellSide = 640
	// cellGap is the gap between two.
	cellGap = 4
	// maxCell bounds a picture that is decoded for a sheet, in pixels: about 24 MB.
	maxCell = 6 << 20
	// sheetSize is the rough size of a sheet in bytes, for how long sending it may take.
	sheetSize = 1 << 20
)

// errNoSheet means that pictures cannot be put on a sheet.
var errNoSheet = errors.New("the pictures make no sheet")

// gridded reports whether the outputs are shown as one numbered picture.
func (fs *outputFiles) gridded() bool {
	n := len(fs.rec.Outputs)
	c := fs.command(fs.rec.Command)
	if c == nil || !c.Grid() || fs.rec.NoGrid || n < 2 || n > maxSheet || fs.platform.Limits().Linked {
		return false
	}
	for _, out := range fs.rec.Outputs {
		if out.State != Unsent || out.Media != platform.Photo {
			return false
		}
	}
	return true
}

// shownAtOnce reports whether one message shows everything, buttons included.
func (r *Record) shownAtOnce() bool {
	if len(r.Outputs) != 1 && !r.Grid {
		return false
	}
	for _, out := range r.Outputs {
		if out.State != Arrived {
			return false
		}
	}
	return true
}

// sheet returns the sheet with all outputs. It is drawn for each attempt to send it, and
// only one at a time in the whole bridge, so that no more than one picture is in memory.
func (fs *outputFiles) sheet() platform.Attachment {
	covered := fs.rec.Cover || slices.ContainsFunc(fs.rec.Outputs, func(out Output) bool { return out.Verdict == Covered })
	return platform.Attachment{Name: "pictures.jpg", Media: platform.Photo, Size: sheetSize, Spoiler: covered, Open: func(ctx context.Context) (io.ReadCloser, error) {
		select {
		case fs.sheets <- struct{}{}:
			defer func() { <-fs.sheets }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s := sheet{n: len(fs.rec.Outputs)}
		for i, out := range fs.rec.Outputs {
			body, _, err := fs.hub.View(ctx, fs.rec.Tenant(), out.Ref)
			if err != nil {
				return nil, err
			}
			data, err := io.ReadAll(io.LimitReader(body, fs.platform.Limits().Photo+1))
			body.Close()
			if err != nil {
				return nil, fmt.Errorf("reading an output: %w", err)
			}
			if err := s.add(i, data); err != nil {
				return nil, err
			}
		}
		return s.read()
	}}
}

// sheet shows up to four pictures in rows of two, with their numbers.
type sheet struct {
	n      int
	cell   image.Point
	canvas *image.RGBA
}

// add draws picture i, from 0. The first one decides the shape of all.
func (s *sheet) add(i int, data []byte) error {
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || config.Width <= 0 || config.Height <= 0 || config.Width > maxCell/config.Height {
		return errNoSheet
	}
	picture, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return errNoSheet
	}
	size := picture.Bounds().Size()
	if s.canvas == nil {
		s.cell = fit(size, image.Pt(cellSide, cellSide))
		rows := (s.n + 1) / 2
		s.canvas = image.NewRGBA(image.Rect(0, 0, 2*s.cell.X+cellGap, rows*s.cell.Y+(rows-1)*cellGap))
		draw.Draw(s.canvas, s.canvas.Bounds(), image.White, image.Point{}, draw.Src)
	}
	corner := image.Pt(i%2*(s.cell.X+cellGap), i/2*(s.cell.Y+cellGap))
	shown := fit(size, s.cell)
	at := corner.Add(s.cell.Sub(shown).Div(2))
	xdraw.ApproxBiLinear.Scale(s.canvas, image.Rectangle{Min: at, Max: at.Add(shown)}, picture, picture.Bounds(), xdraw.Over, nil)
	s.number(i+1, corner)
	return nil
}

// fit returns the largest size with the same aspect ratio that fits.
func fit(size, room image.Point) image.Point {
	scale := min(float64(room.X)/float64(size.X), float64(room.Y)/float64(size.Y))
	return image.Pt(max(1, int(float64(size.X)*scale)), max(1, int(float64(size.Y)*scale)))
}

// number draws a number into the corner of a picture, white on black.
func (s *sheet) number(n int, corner image.Point) {
	face := basicfont.Face7x13
	small := image.NewRGBA(image.Rect(0, 0, face.Advance+4, face.Height+2))
	draw.Draw(small, small.Bounds(), image.NewUniform(color.RGBA{A: 200}), image.Point{}, draw.Src)
	d := font.Drawer{Dst: small, Src: image.White, Face: face, Dot: fixed.P(2, face.Ascent+1)}
	d.DrawString(strconv.Itoa(n))
	// A tenth of the sheet's height, whatever the size of the pictures.
	scale := max(1, min(s.cell.X, s.cell.Y)/10/small.Bounds().Dy())
	at := image.Rectangle{Min: corner, Max: corner.Add(small.Bounds().Size().Mul(scale))}
	xdraw.NearestNeighbor.Scale(s.canvas, at.Intersect(s.canvas.Bounds()), small, small.Bounds(), xdraw.Over, nil)
}

// read encodes the sheet as JPEG.
func (s *sheet) read() (io.ReadCloser, error) {
	const quality = 90
	var b bytes.Buffer
	if s.canvas == nil || jpeg.Encode(&b, s.canvas, &jpeg.Options{Quality: quality}) != nil {
		return nil, errNoSheet
	}
	return io.NopCloser(&b), nil
}
