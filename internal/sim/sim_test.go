package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// deadline bounds how long a test waits.
const deadline = time.Minute

// instance is a running simulator, with the few requests that tests need.
type instance struct {
	*sim.Server
	t   *testing.T
	url string
}

func start(t *testing.T, cfg sim.Config) *instance {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.TimeScale == 0 {
		cfg.TimeScale = 0.01
	}
	s, err := sim.New(cfg)
	require.NoError(t, err)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() { s.Close(); web.Close() })
	return &instance{Server: s, t: t, url: web.URL}
}

// listen opens a client's socket and reads its greeting: what is sent before that goes nowhere.
func (i *instance) listen(ctx context.Context, client string) *websocket.Conn {
	i.t.Helper()
	conn, _, err := websocket.Dial(ctx, i.url+"/ws?clientId="+client, nil)
	require.NoError(i.t, err)
	_, _, err = conn.Read(ctx)
	require.NoError(i.t, err)
	return conn
}

func (i *instance) post(path, body string) (int, string) {
	i.t.Helper()
	resp, err := http.Post(i.url+path, "application/json", strings.NewReader(body))
	require.NoError(i.t, err)
	return readAnswer(i.t, resp)
}

func (i *instance) get(path string) (int, string) {
	i.t.Helper()
	resp, err := http.Get(i.url + path)
	require.NoError(i.t, err)
	return readAnswer(i.t, resp)
}

func readAnswer(t *testing.T, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// submit queues a prompt and returns its id.
func (i *instance) submit(graph, rest string) string {
	i.t.Helper()
	status, body := i.post("/prompt", `{"prompt":`+graph+rest+`}`)
	require.Equal(i.t, http.StatusOK, status, body)
	var answer struct {
		PromptID string `json:"prompt_id"`
	}
	require.NoError(i.t, json.Unmarshal([]byte(body), &answer))
	return answer.PromptID
}

// history waits for a prompt to end and returns its entry.
func (i *instance) history(id string) string {
	i.t.Helper()
	var body string
	require.Eventually(i.t, func() bool {
		_, body = i.get("/history/" + id)
		return body != "{}"
	}, deadline, 5*time.Millisecond)
	return body
}

func work(seconds float64, fail string, nonce int) string {
	return fmt.Sprintf(`{"1":{"class_type":"EmptyImage","inputs":{"width":32,"height":32,"batch_size":1,"color":255}},
		"2":{"class_type":"SimulatedWork","inputs":{"image":["1",0],"seconds":%g,"steps":4,"fail":%q,"nonce":%d}},
		"3":{"class_type":"SaveImage","inputs":{"images":["2",0],"filename_prefix":"w"}}}`, seconds, fail, nonce)
}

const textToImage = `{
	"4":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"a.safetensors"}},
	"5":{"class_type":"EmptyLatentImage","inputs":{"width":128,"height":96,"batch_size":1}},
	"6":{"class_type":"CLIPTextEncode","inputs":{"text":"a sunset over the sea","clip":["4",1]}},
	"7":{"class_type":"CLIPTextEncode","inputs":{"text":"blurry","clip":["4",1]}},
	"3":{"class_type":"KSampler","inputs":{"model":["4",0],"seed":18446744073709551615,"steps":3,"cfg":7,"sampler_name":"euler",
		"scheduler":"normal","positive":["6",0],"negative":["7",0],"latent_image":["5",0],"denoise":1}},
	"8":{"class_type":"VAEDecode","inputs":{"samples":["3",0],"vae":["4",2]}},
	"9":{"class_type":"SaveImage","inputs":{"images":["8",0],"filename_prefix":"ComfyUI"}}}`

// A picture depends on its seed, which may be as large as Python's integers, and on nothing else.
func TestPictureIsDeterministic(t *testing.T) {
	render := func(version, seed string) string {
		i := start(t, sim.Config{Version: version, Models: map[string][]string{"checkpoints": {"a.safetensors"}}})
		entry := i.history(i.submit(strings.Replace(textToImage, "18446744073709551615", seed, 1), ""))
		assert.Contains(t, entry, `"seed": `+seed)
		_, png := i.get("/view?filename=ComfyUI_00001_.png")
		assert.Contains(t, png, "tEXtprompt\x00{")
		_, png = i.get("/view?filename=ComfyUI_00001_.png&channel=rgb")
		return png
	}
	first := render("0.3.44", "1")
	assert.Equal(t, first, render("0.33.0", "1"))
	assert.NotEqual(t, first, render("0.24.0", "18446744073709551615"))
}

func TestHangIsDeafUntilRestart(t *testing.T) {
	i := start(t, sim.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	conn := i.listen(ctx, "c")
	defer conn.CloseNow()
	i.submit(work(0, "hang", 1), `,"client_id":"c"`)
	// The fault happens after the second of four steps. An earlier interrupt would be noticed.
	for frame := []byte(nil); !bytes.Contains(frame, []byte(`"type": "progress", "data": {"value": 2`)); {
		var err error
		_, frame, err = conn.Read(ctx)
		require.NoError(t, err)
	}
	i.post("/interrupt", "")
	_, queue := i.get("/prompt")
	assert.Contains(t, queue, `"queue_remaining": 1`)
	i.Restart()
	_, queue = i.get("/prompt")
	assert.Contains(t, queue, `"queue_remaining": 0`)
	i.history(i.submit(work(0.1, "none", 2), ""))
	assert.Equal(t, 1, i.Finished())
}

func TestCrashCutsConnections(t *testing.T) {
	crashed := make(chan struct{})
	i := start(t, sim.Config{OnCrash: func(s *sim.Server) { s.Kill(); close(crashed) }})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	conn := i.listen(ctx, "c")
	defer conn.CloseNow()
	i.submit(work(0.1, "crash", 1), `,"client_id":"c"`)
	<-crashed
	var err error
	for err == nil {
		_, _, err = conn.Read(ctx)
	}
	assert.Equal(t, websocket.StatusCode(-1), websocket.CloseStatus(err), "no close frame")
	assert.False(t, i.Alive())
	resp, err := http.Get(i.url + "/prompt")
	if err == nil {
		resp.Body.Close()
	}
	assert.Error(t, err)
}

func TestZombieAcceptsAndNeverRuns(t *testing.T) {
	i := start(t, sim.Config{})
	i.history(i.submit(work(0, "none", 1), ""))
	i.Silence()
	i.submit(work(0, "none", 2), "")
	_, queue := i.get("/prompt")
	assert.Contains(t, queue, `"queue_remaining": 1`)
	assert.Equal(t, 1, i.Started())
}

func TestPromptThatKillsTheWorker(t *testing.T) {
	tests := []struct{ name, graph, rest string }{
		{"undeclared link to nowhere", `{"1":{"class_type":"EmptyImage","inputs":{"width":8,"height":8,"batch_size":1,"color":0,"x":["99",0]}},
			"2":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t"}}}`, ""},
		{"extra_data null", work(0, "none", 1), `,"extra_data":null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := start(t, sim.Config{})
			i.submit(tt.graph, tt.rest)
			require.Eventually(t, func() bool { return i.Started() == 1 }, deadline, time.Millisecond)
			i.submit(work(0, "none", 2), "")
			_, queue := i.get("/prompt")
			assert.Contains(t, queue, `"queue_remaining": 2`)
		})
	}
}

// noise returns a picture that does not compress.
func noise(t *testing.T, side int) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(img.Pix) // never fails
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

func TestStalledClientStallsAll(t *testing.T) {
	i := start(t, sim.Config{})
	require.NoError(t, os.WriteFile(filepath.Join(i.Dir(), "input", "n.png"), noise(t, 700), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	stalled := i.listen(ctx, "stalled")
	defer stalled.CloseNow()
	healthy := i.listen(ctx, "healthy")
	defer healthy.CloseNow()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, data, err := healthy.Read(ctx)
			if err != nil || strings.Contains(string(data), `"node": null`) {
				return
			}
		}
	}()
	i.submit(`{"1":{"class_type":"LoadImage","inputs":{"image":"n.png"}},
				"2":{"class_type":"RepeatImageBatch","inputs":{"image":["1",0],"amount":8}},
				"3":{"class_type":"SaveImageWebsocket","inputs":{"images":["2",0]}}}`, `,"client_id":"stalled"`)
	i.history(i.submit(work(0, "none", 1), `,"client_id":"healthy"`))
	select {
	case <-ended:
		t.Fatal("the healthy client was not held up")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, stalled.CloseNow())
	<-ended
	require.NoError(t, ctx.Err())
}

func TestFaults(t *testing.T) {
	t.Run("fail every second", func(t *testing.T) {
		i := start(t, sim.Config{Faults: sim.Faults{FailEvery: 2}})
		assert.Contains(t, i.history(i.submit(work(0, "none", 1), "")), `"success"`)
		assert.Contains(t, i.history(i.submit(work(0, "none", 2), "")), `"error"`)
	})
	t.Run("500 though queued", func(t *testing.T) {
		i := start(t, sim.Config{})
		i.SetFault(sim.Faults{PromptError: true})
		status, _ := i.post("/prompt", `{"prompt":`+work(0, "none", 1)+`}`)
		assert.Equal(t, http.StatusInternalServerError, status)
		require.Eventually(t, func() bool { return i.Finished() == 1 }, deadline, time.Millisecond)
	})
}

func TestConfig(t *testing.T) {
	for _, cfg := range []sim.Config{{Version: "new"}, {TimeScale: -1}, {Cache: "huge"}} {
		_, err := sim.New(cfg)
		assert.Error(t, err)
	}
	i := start(t, sim.Config{OmitClasses: []string{"KSampler"}, Models: map[string][]string{"loras": {"x/b.safetensors", "a.safetensors"}}})
	_, info := i.get("/object_info/KSampler")
	assert.Equal(t, "{}", info)
	_, info = i.get("/object_info/LoraLoader")
	assert.Contains(t, info, `[["a.safetensors", "x/b.safetensors"]`)
	_, info = i.get("/object_info/SimulatedWork")
	assert.Contains(t, info, `"category": "comfyhub"`)
}
