package system

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
)

// Cloud is a serverless endpoint on a machine of its own: RunPod's, or a service of the hub's
// contract.
type Cloud struct {
	*overflowtest.Endpoint
	w   *World
	web *http.Server
}

const (
	cloudName, cloudAddress = "cloud", "cloud:443"
	cloudKey                = "the-key-of-the-cloud"
	// cloudPrice is what a second costs, and cloudBudget what a day may cost: so much that a run
	// ends it now and then.
	cloudPrice, cloudBudget = 1, 120
	cloudTimeout            = 10 * time.Second
)

func newCloud(w *World) *Cloud {
	c := &Cloud{w: w, Endpoint: &overflowtest.Endpoint{Key: cloudKey, Waits: 2 * time.Second, Takes: 4 * time.Second, Draw: paint}}
	c.Start()
	return c
}

// paint makes the picture that [Graph] asks for.
func paint(w overflowtest.Workflow, _ string) []byte {
	rgb := uint32(colorOf(w)) // #nosec G115 -- 24 bits
	m := image.NewRGBA(image.Rect(0, 0, 16, 16))
	draw.Draw(m, m.Bounds(), image.NewUniform(color.RGBA{R: uint8(rgb >> 16), G: uint8(rgb >> 8), B: uint8(rgb), A: 255}), image.Point{}, draw.Src) // #nosec G115 -- bytes
	var out bytes.Buffer
	_ = png.Encode(&out, m) // a buffer takes everything
	return out.Bytes()
}

func colorOf(w overflowtest.Workflow) int {
	n, _ := w["1"].Inputs["color"].(float64)
	return int(n)
}

// Start implements process: the runs are still there.
func (c *Cloud) Start() {
	l, err := c.w.Net.Listen(cloudAddress)
	require.NoError(c.w.t, err)
	c.web = &http.Server{ReadHeaderTimeout: time.Minute, Handler: c.Endpoint}
	c.w.work.Go(func() { _ = c.web.Serve(l) })
}

// Kill implements process: nobody reaches the API. What runs goes on, and costs.
func (c *Cloud) Kill() {
	c.w.Net.Kill(cloudName)
	_ = c.web.Close()
}

// Stop implements process.
func (c *Cloud) Stop() { c.Kill() }

// settings are those of a hub.
func (c *Cloud) settings(hub string) []config.Overflow {
	if c == nil {
		return nil
	}
	o := config.Overflow{
		Name: "cloud", Key: cloudKey, After: time.Second, Price: cloudPrice, Budget: cloudBudget, Max: 2, Timeout: cloudTimeout,
		Only: []string{"EmptyImage", "SimulatedWork", "SaveImage"}, Egress: egress.Options{Transport: &plain{c.w.HTTP(hub), cloudAddress}},
	}
	if c.w.size.Cloud == "runpod" {
		o.RunPod, o.API = "abc123", "https://"+cloudName
	} else {
		o.URL = "https://" + cloudName + "/api"
	}
	return []config.Overflow{o}
}

// plain calls without TLS.
type plain struct {
	client *http.Client
	// address is where everything goes.
	address string
}

// RoundTrip implements [http.RoundTripper].
func (p *plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", p.address
	r.Close = true
	return p.client.Transport.RoundTrip(r)
}

// going is how many runs have not ended.
func (c *Cloud) going() (n int) {
	if c == nil {
		return 0
	}
	for _, b := range c.Bills() {
		if !b.Over {
			n++
		}
	}
	return n
}

// check checks that no prompt was paid for twice, that the budget was kept, and that nothing runs on
// when all prompts have ended. A Redis that has lost what it had acknowledged may know no better.
func (c *Cloud) check(ledger *Ledger) {
	if c == nil {
		return
	}
	var paid time.Duration
	runs := map[int]int{}
	for _, b := range c.Bills() {
		paid += b.For
		runs[colorOf(b.Workflow)]++
		if !b.Over {
			ledger.breach(cloudName, "all prompts have ended, and color %06x runs on", colorOf(b.Workflow))
		}
	}
	c.w.Trace.Note(nil, "the cloud had %d runs for %v", len(runs), paid)
	if c.w.weather.hasForgotten() {
		return
	}
	for color, n := range runs {
		if n > 1 {
			ledger.breach(ledger.of(color), "it was run %d times at the endpoint", n)
		}
	}
	days := 1
	if c.w.size.RedisAhead < 0 {
		days = 2 // a world begins at midnight
	}
	most := time.Duration(days*cloudBudget/cloudPrice)*time.Second + 2*cloudTimeout // one run more
	if paid > most {
		ledger.breach(cloudName, "its runs took %v, and the budget is for %v", paid, most)
	}
}

// ran reports whether the endpoint has a run of a prompt.
func (c *Cloud) ran(p *Prompt) bool {
	if c == nil || p == nil {
		return false
	}
	for _, b := range c.Bills() {
		if colorOf(b.Workflow) == p.Color {
			return true
		}
	}
	return false
}
