package a1111

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func parsed(t testing.TB, text string) *pyjson.Object {
	t.Helper()
	v := must.Get(pyjson.Parse([]byte(text)))(t)
	o, ok := v.(*pyjson.Object)
	require.True(t, ok)
	return o
}

// pixels is a picture in base64.
func pixels(t testing.TB, side int) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, side, side))))
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestGraph(t *testing.T) {
	t.Parallel()
	one, two := pixels(t, 1), pixels(t, 2)
	payload := parsed(t, `{"prompt": "a <lora:detail:0.5> cat <lora:detail:1> <lora:ink>", "init_images": ["`+one+`", "data:image/png;base64,`+two+`"], "mask": "`+one+`",
		"override_settings": {"sd_model_checkpoint": "sd.safetensors [abc]"}, "alwayson_scripts": {"ControlNet": {"args": [{"image": "`+two+`"}]}}}`)
	before := string(pyjson.Marshal(payload))
	checkpoint, loras := Needs(payload)
	require.Equal(t, "sd.safetensors [abc]", checkpoint)
	require.Equal(t, []string{"detail", "ink"}, loras)
	g := must.Get(Graph(ClassImg2Img, payload, checkpoint, loras))(t)
	require.Equal(t, before, string(pyjson.Marshal(payload)), "the payload stays as it is")
	require.Equal(t, 6, g.Len(), "the node, a checkpoint, two LoRAs and two pictures")
	require.NotContains(t, g.Object(JobNode).Object("inputs").String(InputPayload), one[:40])
	require.Equal(t, loras, chained(g, JobNode, InputLoras, inputLora))
	pictures := chained(g, JobNode, InputImages, inputImage)
	require.Equal(t, []string{"data:image/png;base64," + one, "data:image/png;base64," + two}, pictures)

	back := must.Get(put(parsed(t, g.Object(JobNode).Object("inputs").String(InputPayload)), func(place int) (string, error) {
		return strings.TrimPrefix(pictures[place], "data:image/png;base64,"), nil
	}))(t)
	require.Equal(t, strings.ReplaceAll(before, "data:image/png;base64,", ""), string(pyjson.Marshal(back)))

	for class := range paths {
		require.Equal(t, class, ClassOf(Path(class)))
	}
	_, err := Graph(ClassLora, payload, "", nil)
	require.ErrorIs(t, err, ErrRequest)
	_, err = Graph(ClassTxt2Img, payload, "", make([]string, maxLoras+1))
	require.ErrorIs(t, err, ErrRequest)
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	output := parsed(t, `{"images": [{"filename": "a.png"}, {"filename": "b.png"}], "sdapi": ["{\"parameters\": {\"steps\": 20}, \"info\": \"{}\"}"]}`)
	open := func(file *pyjson.Object) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(file.String("filename"))), nil
	}
	require.Equal(t, `{"images": ["YS5wbmc=", "Yi5wbmc="], "parameters": {"steps": 20}, "info": "{}"}`, string(pyjson.Marshal(written(t, ClassTxt2Img, output, open))))
	require.Equal(t, `{"image": "YS5wbmc=", "parameters": {"steps": 20}, "info": "{}"}`, string(pyjson.Marshal(written(t, ClassExtraSingle, output, open))))
	require.Equal(t, `{"parameters": {"steps": 20}, "info": "{}"}`, string(pyjson.Marshal(written(t, ClassInterrogate, output, open))))
	none := parsed(t, `{"sdapi": ["{}"]}`)
	require.Equal(t, `{"images": []}`, string(pyjson.Marshal(written(t, ClassExtraBatch, none, open))))
	require.Equal(t, `{"image": null}`, string(pyjson.Marshal(written(t, ClassExtraSingle, none, open))))
	for _, odd := range []string{`{"images": []}`, `{"sdapi": [5]}`, `{"sdapi": ["["]}`, `{"sdapi": ["{}"], "images": [5]}`} {
		_, err := ReadAnswer(ClassTxt2Img, parsed(t, odd))
		require.ErrorIs(t, err, ErrAnswer)
	}
}
