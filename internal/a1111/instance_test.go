package a1111

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// endless are the steps of a request that ends only when it is told to.
const endless = 1_000_000

func TestAnswers(t *testing.T) {
	b := newBench(t, simsd.Config{Models: []string{"a.safetensors", "folder/b.safetensors"}})
	picture := pixels(t, 4)
	b.submit("p", ClassTxt2Img, `{"prompt": "a cat", "steps": 2, "width": 16, "height": 8, "n_iter": 2, "seed": 5, "override_settings": {"CLIP_stop_at_last_layers": 2}}`, "b")
	answer := b.answer("p", ClassTxt2Img)
	require.Equal(t, []string{"images", "parameters", "info"}, answer.Keys())
	require.Len(t, answer.Array("images"), 2)
	first, _ := answer.Array("images")[0].(pyjson.String)
	require.Contains(t, decoded(t, string(first)), "tEXtparameters\x00a cat\nSteps: 2", "the picture as it came")
	require.Contains(t, answer.String("info"), `"all_seeds": [5, 6]`)
	done := b.sd.Done()[0]
	require.True(t, strings.HasPrefix(done.Checkpoint, "folder/b.safetensors ["))
	require.Equal(t, int64(2), number(t, done.Payload.Object("override_settings"), "CLIP_stop_at_last_layers"), "what the client set stays")

	b.submit("q", ClassImg2Img, `{"prompt": "", "steps": 1, "width": 8, "height": 8, "init_images": ["`+picture+`"], "include_init_images": true}`, "")
	answer = b.answer("q", ClassImg2Img)
	done = b.sd.Done()[1]
	require.Equal(t, pyjson.String(picture), done.Payload.Array("init_images")[0])
	require.True(t, strings.HasPrefix(done.Checkpoint, "a.safetensors ["), "what was set for one request ends with it")
	require.Equal(t, pyjson.Array{pyjson.Null{}}, answer.Object("parameters").Array("init_images"))

	b.submit("r", ClassExtraSingle, `{"image": "`+picture+`"}`, "")
	answer = b.answer("r", ClassExtraSingle)
	require.NotEmpty(t, answer.String("image"))
	require.Equal(t, "<p>done</p>", answer.String("html_info"))
	b.submit("s", ClassExtraBatch, `{"imageList": [{"data": "`+picture+`", "name": "a"}, {"data": "data:image/png;base64,`+picture+`", "name": "b"}]}`, "")
	require.Len(t, b.answer("s", ClassExtraBatch).Array("images"), 2)
	b.submit("t", ClassPNGInfo, `{"image": "`+string(first)+`"}`, "")
	require.Contains(t, b.answer("t", ClassPNGInfo).String("info"), "a cat\nSteps: 2")
	b.submit("u", ClassInterrogate, `{"image": "`+picture+`", "model": "clip"}`, "")
	require.Equal(t, `{"caption": "a painting of a square"}`, string(pyjson.Marshal(b.answer("u", ClassInterrogate))))
}

func number(t testing.TB, o *pyjson.Object, key string) int64 {
	t.Helper()
	v, _ := o.Get(key)
	n, ok := v.(pyjson.Number)
	require.True(t, ok)
	i, ok := n.Int64()
	require.True(t, ok)
	return i
}

func TestFailures(t *testing.T) {
	b := newBench(t, simsd.Config{})
	for n, c := range []struct{ payload, checkpoint, want string }{
		{`{"steps": "many"}`, "", `"exception_message": "body.steps: value is not a valid integer", "exception_type": "ValueError"`},
		{`{"sampler_name": "none"}`, "", `"exception_message": "Sampler not found", "exception_type": "HTTPException"`},
		{`{}`, "gone.safetensors", `"exception_message": "the server has no checkpoint \"gone.safetensors\""`},
	} {
		id := fmt.Sprint(n)
		b.submit(id, ClassTxt2Img, c.payload, c.checkpoint)
		e, _ := b.entry(id)
		require.Equal(t, "error", e.Status)
		require.Contains(t, string(e.EndData), c.want)
	}
	b.sd.Break("OutOfMemoryError")
	b.submit("oom", ClassTxt2Img, `{}`, "")
	e, _ := b.entry("oom")
	require.Contains(t, string(e.EndData), `"exception_type": "torch.OutOfMemoryError"`)
}

// until reads messages until one of a type, and reports whether a preview was among them.
func (b *bench) until(kind string) (preview bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for {
		frame := must.Get(b.socket.Next(ctx))(b.t)
		m, _ := comfyui.ParseMessage(frame.Data)
		preview = preview || frame.Binary
		if kind == "" && frame.Binary || kind != "" && !frame.Binary && m.Type == kind {
			return preview
		}
	}
}

// What holds for a request alone is shown to nobody while the server works on it.
func TestSettingsBetweenRequests(t *testing.T) {
	b := newBench(t, simsd.Config{StepTime: time.Millisecond})
	settings := func() string { return string(must.Get(b.Get(t.Context(), apiPrefix+settingsPath, nil))(t)) }
	b.submit("p", ClassTxt2Img, fmt.Sprintf(`{"steps": %d, "width": 8, "height": 8, "override_settings": {"sd_vae": "mine", "samples_format": "webp"}}`, endless), "")
	b.until("")
	require.Contains(t, settings(), `"sd_vae": "Automatic"`)
	require.NotContains(t, settings(), "mine")
	require.NoError(t, b.Interrupt(t.Context(), "p"))
	b.entry("p")
	resp := must.Get(http.Post("http://"+b.addr+"/sdapi/v1/options", "application/json", strings.NewReader(`{"sd_vae": "the operator's"}`)))(t)
	require.NoError(t, resp.Body.Close())
	require.Eventually(t, func() bool { return strings.Contains(settings(), "the operator's") }, time.Minute, time.Millisecond)
}

func TestProgressAndInterruption(t *testing.T) {
	b := newBench(t, simsd.Config{StepTime: time.Millisecond})
	b.submit("p", ClassTxt2Img, fmt.Sprintf(`{"steps": %d, "width": 8, "height": 8}`, endless), "")
	b.until("")
	require.NoError(t, b.Interrupt(t.Context(), "p"))
	e, _ := b.entry("p")
	require.Equal(t, comfyui.TypeExecutionInterrupted, e.End)
	require.Eventually(t, func() bool { return !b.sd.Busy() }, time.Minute, time.Millisecond)
}

// Somebody uses the server directly: hubs see that it is busy, and what they interrupt is
// their own.
func TestForeign(t *testing.T) {
	b := newBench(t, simsd.Config{StepTime: time.Millisecond})
	foreign := make(chan error, 1)
	post := func(path, body string) error {
		resp, err := http.Post("http://"+b.addr+"/sdapi/v1/"+path, "application/json", strings.NewReader(body))
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	go func() {
		foreign <- post("txt2img", fmt.Sprintf(`{"steps": %d, "width": 8, "height": 8}`, endless))
	}()
	busy := func(want int) func() bool {
		return func() bool {
			q, err := b.Queue(t.Context())
			return err == nil && q.Foreign() == want
		}
	}
	require.Eventually(t, busy(1), time.Minute, time.Millisecond)
	asking := must.Get(newClient("http://"+b.addr, nil))(t)
	t.Cleanup(asking.close)
	require.Eventually(t, func() bool { // A1111 tells in seconds when a request began
		p, err := asking.progress(t.Context(), false)
		return err == nil && p.began != "" && p.began != time.Now().Format("20060102150405")
	}, time.Minute, 10*time.Millisecond)
	b.submit("p", ClassTxt2Img, fmt.Sprintf(`{"steps": %d, "width": 8, "height": 8}`, endless), "")
	b.until(comfyui.TypeExecuting)
	require.NoError(t, b.Interrupt(t.Context(), "p"))
	require.True(t, b.sd.Busy())
	require.NoError(t, post("interrupt", ""))
	require.NoError(t, <-foreign)
	e, _ := b.entry("p")
	require.Equal(t, comfyui.TypeExecutionInterrupted, e.End)
	require.Eventually(t, busy(0), time.Minute, time.Millisecond)
}

// A server that dies has told nobody how its prompt has ended, and comes again as another
// one.
func TestDeath(t *testing.T) {
	b := newBench(t, simsd.Config{StepTime: time.Millisecond})
	b.submit("p", ClassTxt2Img, fmt.Sprintf(`{"steps": %d, "width": 8, "height": 8}`, endless), "")
	b.until("")
	b.kill()
	require.Eventually(t, func() bool {
		_, err := b.Queue(t.Context())
		return err != nil && strings.Contains(err.Error(), comfyui.ErrGone.Error())
	}, time.Minute, time.Millisecond)
	b.socket.Close()
	b.start()
	b.connect()
	_, found, err := b.History(t.Context(), "p")
	require.NoError(t, err)
	require.False(t, found)
	b.submit("q", ClassTxt2Img, `{"steps": 1, "width": 8, "height": 8}`, "")
	b.answer("q", ClassTxt2Img)
}

func TestAbilities(t *testing.T) {
	b := newBench(t, simsd.Config{Models: []string{"sub/a.safetensors"}, Loras: []string{"ink"}, VRAM: 8 << 30})
	body, _, err := b.ObjectInfo(t.Context(), func(context.Context) error { return nil })
	require.NoError(t, err)
	spec := parsed(t, string(body)).Object(ClassCheckpoint).Object("input").Object("required").Array(InputCheckpoint)
	names := fmt.Sprint(spec[0])
	for _, form := range []string{"sub/a.safetensors [", "sub/a.safetensors ", "a.safetensors", "sub/a ", "[a "} {
		require.Contains(t, names, form)
	}
	require.Contains(t, string(body), `"lora": [["ink"], {}]`)
	require.Eventually(t, func() bool {
		stats, err := b.SystemStats(t.Context())
		return err == nil && len(stats.Devices) == 1 && stats.Devices[0].VRAMTotal == 8<<30
	}, time.Minute, time.Millisecond)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:7860", "ftp://a", "http://", "http://a:b@c:x"} {
		_, err := Open(address, Options{})
		require.Error(t, err, address)
		require.NotContains(t, err.Error(), "b@c")
	}
}

// What a job says of its server's answer is repeated only if it is as short as answers are.
func TestRefusalIsBounded(t *testing.T) {
	t.Parallel()
	for _, length := range []int{10, maxError - 100, maxError, 10 << 20} {
		data := dict(refusalKey, dict("status", pyjson.Int(422), "answer", dict("detail", pyjson.String(strings.Repeat("a", length)))))
		_, _, ok := Refusal(data)
		require.Equal(t, length < maxError-50, ok, length)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"detail": [{"loc": ["body", 0], "msg": "no"}]}`, `{"error": "OutOfMemoryError", "detail": "", "errors": "CUDA"}`,
		`{"progress": 0.5, "state": {"job_count": 2, "job_no": 1, "sampling_step": 3, "sampling_steps": 20, "job_timestamp": "1"}, "current_image": "aaaa"}`,
		`{"title": "a/b.ckpt [0123]", "model_name": "b", "hash": null}`, `{"prompt": "<lora:a:1>", "init_images": [{"comfyhub_input": 0}], "override_settings": {"sd_model_checkpoint": "x"}}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		require.LessOrEqual(t, len(readError(422, body).message), maxReason)
		v, err := pyjson.Parse(body)
		if err != nil {
			return
		}
		p := readProgress(v)
		require.True(t, p.value >= 0 && p.value <= p.most)
		jpegOf(p.preview)
		o, ok := v.(*pyjson.Object)
		if !ok {
			return
		}
		require.Equal(t, o.String("title"), forms(o)[0])
		checkpoint, loras := Needs(o)
		g, err := Graph(ClassTxt2Img, o, checkpoint, loras)
		if err != nil {
			require.ErrorIs(t, err, ErrRequest)
			return
		}
		require.Equal(t, loras, chained(g, JobNode, InputLoras, inputLora))
	})
}

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
