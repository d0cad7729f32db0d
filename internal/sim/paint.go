package sim

import (
	"hash/fnv"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"strings"
)

// scene describes a picture that a sampler paints. Texts and seed determine its
// colours and composition.
type scene struct {
	texts         []string // prompts, model names and other influences
	seed          uint64
	width, height int
	base          *image.NRGBA // image to image: what to start from, or nil
	denoise       float64      // how much of base is painted over, 0 to 1
}

// palette is a set of matching colours.
type palette [5][3]float64

// hue turns a hue (0 to 1), saturation and lightness into red, green and blue
// (0 to 1 each).
func hue(h, s, l float64) [3]float64 {
	channel := func(shift float64) float64 {
		k := math.Mod(shift+h*12+12, 12)
		a := s * math.Min(l, 1-l)
		return l - a*math.Max(-1, math.Min(math.Min(k-3, 9-k), 1))
	}
	return [3]float64{channel(0), channel(8), channel(4)}
}

// namedHue returns the hue of a colour word in the text, which pulls the palette towards it.
func namedHue(text string) (float64, bool) {
	for _, w := range []struct {
		word string
		hue  float64
	}{
		{"red", 0},
		{"orange", 0.08},
		{"sunset", 0.05},
		{"desert", 0.1},
		{"gold", 0.13},
		{"yellow", 0.15},
		{"forest", 0.36},
		{"green", 0.33},
		{"teal", 0.48},
		{"sea", 0.53},
		{"ocean", 0.54},
		{"sky", 0.57},
		{"blue", 0.6},
		{"night", 0.68},
		{"purple", 0.77},
		{"violet", 0.77},
		{"pink", 0.9},
		{"rose", 0.95},
	} {
		if strings.Contains(text, w.word) {
			return w.hue, true
		}
	}
	return 0, false
}

func (s scene) random() *rand.Rand {
	h := fnv.New64a()
	for _, t := range s.texts {
		_, _ = h.Write([]byte(t)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(h.Sum64(), s.seed))
}

func (s scene) palette(rng *rand.Rand) palette {
	base, ok := namedHue(strings.ToLower(strings.Join(s.texts, " ")))
	if !ok {
		base = rng.Float64()
	}
	spread := 0.06 + 0.12*rng.Float64()
	var p palette
	for i := range p {
		h := base + (float64(i)-2)*spread
		if i == 4 {
			h = base + 0.5 // one complementary accent
		}
		p[i] = hue(math.Mod(h+1, 1), 0.55+0.35*rng.Float64(), 0.18+0.16*float64(i)+0.05*rng.Float64())
	}
	return p
}

// orb is a soft round shape.
type orb struct {
	x, y, radius, soft float64
	colour             [3]float64
}

// wave is a ridge across the picture, like hills behind one another.
type wave struct {
	level, amplitude, frequency, phase float64
	colour                             [3]float64
}

// composition holds everything a picture consists of, in units of its size.
type composition struct {
	sky    [2][3]float64
	orbs   []orb
	waves  []wave
	grain  uint64
	tilt   float64
	swirls float64
}

func compose(s scene) composition {
	rng := s.random()
	p := s.palette(rng)
	c := composition{sky: [2][3]float64{p[0], p[3]}, grain: rng.Uint64(), tilt: rng.Float64() - 0.5, swirls: 2 + 4*rng.Float64()}
	for range 3 + rng.IntN(4) {
		c.orbs = append(c.orbs, orb{
			x: rng.Float64(), y: 0.1 + 0.5*rng.Float64(), radius: 0.04 + 0.16*rng.Float64(),
			soft: 0.01 + 0.12*rng.Float64(), colour: p[2+rng.IntN(3)],
		})
	}
	count := 3 + rng.IntN(3)
	for i := range count {
		depth := float64(i+1) / float64(count)
		c.waves = append(c.waves, wave{
			level: 0.45 + 0.45*depth, amplitude: 0.03 + 0.07*rng.Float64(), frequency: 1 + 4*rng.Float64(),
			phase: rng.Float64() * 2 * math.Pi, colour: mix(p[1], p[0], depth),
		})
	}
	return c
}

func mix(a, b [3]float64, t float64) [3]float64 {
	for i := range a {
		a[i] += (b[i] - a[i]) * t
	}
	return a
}

func smooth(edge0, edge1, x float64) float64 {
	t := math.Max(0, math.Min(1, (x-edge0)/(edge1-edge0)))
	return t * t * (3 - 2*t)
}

// at returns the colour at a point. Both coordinates are 0 to 1.
func (c *composition) at(x, y float64) [3]float64 {
	swirl := 0.05 * math.Sin(c.swirls*x*math.Pi+3*y)
	col := mix(c.sky[0], c.sky[1], math.Max(0, math.Min(1, y+swirl+c.tilt*(x-0.5)*0.4)))
	for _, o := range c.orbs {
		d := math.Hypot(x-o.x, y-o.y)
		col = mix(col, o.colour, 0.85*(1-smooth(o.radius, o.radius+o.soft, d)))
		col = mix(col, o.colour, 0.25*math.Exp(-d*d/(o.radius*o.radius*6)))
	}
	for _, w := range c.waves {
		ridge := w.level + w.amplitude*(math.Sin(w.frequency*x*2*math.Pi+w.phase)+0.4*math.Sin(w.frequency*5*x+w.phase*2))
		if y > ridge-0.004 {
			shade := mix(w.colour, [3]float64{}, 0.35*math.Min(1, (y-ridge)*2))
			col = mix(col, shade, smooth(ridge-0.004, ridge+0.004, y))
		}
	}
	return col
}

// paint renders a scene. sharpness ranges from 0 for pure noise to 1 for the
// finished picture. Previews are in between.
func paint(s scene, sharpness float64) *image.NRGBA {
	w, h := max(1, s.width), max(1, s.height)
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	c := compose(s)
	noise := rand.New(rand.NewPCG(c.grain, uint64(sharpness*1000)))
	mosaic := 1.0
	if sharpness < 1 {
		mosaic = 1 + (1-sharpness)*float64(min(w, h))/10
	}
	row, above := make([][3]float64, w), -1.0
	for y := range h {
		if by := math.Floor(float64(y)/mosaic) * mosaic; by != above { // a new row of tiles
			left := -1.0
			for x := range w {
				if bx := math.Floor(float64(x)/mosaic) * mosaic; bx != left {
					row[x], left = c.at((bx+0.5)/float64(w), (by+0.5)/float64(h)), bx
				} else {
					row[x] = row[x-1]
				}
			}
			above = by
		}
		for x := range w {
			col := row[x]
			if s.base != nil {
				col = mix(s.pixel(x, y), col, 0.6*s.denoise)
			}
			rough := 0.015 + 0.9*(1-sharpness)
			for i := range col {
				col[i] += rough * (noise.Float64() - 0.5)
			}
			img.SetNRGBA(x, y, toColour(col))
		}
	}
	return img
}

// pixel returns the colour of the base picture at a point of the scene.
func (s scene) pixel(x, y int) [3]float64 {
	b := s.base.Bounds()
	p := s.base.NRGBAAt(b.Min.X+x*b.Dx()/max(1, s.width), b.Min.Y+y*b.Dy()/max(1, s.height))
	return [3]float64{float64(p.R) / 255, float64(p.G) / 255, float64(p.B) / 255}
}

func toColour(c [3]float64) color.NRGBA {
	level := func(f float64) uint8 { return uint8(math.Max(0, math.Min(255, f*255+0.5))) }
	return color.NRGBA{level(c[0]), level(c[1]), level(c[2]), 255}
}

func flat(w, h int, c color.NRGBA) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, max(1, w), max(1, h)))
	for i := 0; i < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3] = c.R, c.G, c.B, c.A
	}
	return img
}
