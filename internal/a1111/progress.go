package a1111

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	"image/jpeg"
	_ "image/png" // what previews are, unless the server was told otherwise

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// progress is what a server does at the moment.
type progress struct {
	// busy means that it does something, began tells one job from the next.
	busy  bool
	began string
	// value of most steps are done.
	value, most float64
	// preview is a picture in base64, empty for none.
	preview string
	// interrupted means that the server is about to end what it does.
	interrupted bool
	// answer is the answer as it came.
	answer *pyjson.Object
}

// progress asks what the server does, with a preview if that is wanted.
func (c *client) progress(ctx context.Context, preview bool) (progress, error) {
	path := "progress?skip_current_image=true"
	if preview {
		path = "progress"
	}
	v, err := c.get(ctx, path, maxProgress)
	if err != nil {
		return progress{}, err
	}
	return readProgress(v), nil
}

func readProgress(v pyjson.Value) progress {
	o, _ := v.(*pyjson.Object)
	state := o.Object("state")
	number := func(key string) float64 {
		v, _ := state.Get(key)
		n, ok := v.(pyjson.Number)
		if f := n.Float64(); ok && f > 0 && f < 1e9 {
			return f
		}
		return 0
	}
	jobs, _ := state.Get("job_count")
	p := progress{busy: number("job_count") > 0 || jobs == pyjson.Int(-1), began: state.String("job_timestamp"), preview: o.String("current_image")}
	interrupted, _ := state.Get("interrupted")
	p.interrupted, p.answer = interrupted == pyjson.Bool(true), o
	steps := max(number("sampling_steps"), 1)
	p.most = max(number("job_count"), 1) * steps
	p.value = min(number("job_no")*steps+number("sampling_step"), p.most)
	return p
}

const (
	// maxPreviewSide bounds a preview, in pixels.
	maxPreviewSide = 4096
	previewQuality = 80
)

// jpegOf returns a preview in JPEG, nil for none.
func jpegOf(preview string) []byte {
	content, f, ok := pictureIn(preview)
	if !ok {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(content)
	if err != nil {
		return nil
	}
	if f.mime == "image/jpeg" {
		return data
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || c.Width > maxPreviewSide || c.Height > maxPreviewSide {
		return nil
	}
	picture, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	var out bytes.Buffer
	if jpeg.Encode(&out, picture, &jpeg.Options{Quality: previewQuality}) != nil {
		return nil
	}
	return out.Bytes()
}
