package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func TestRedisAwayAndBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	socket := b.dial("ann")
	running := b.submit(work(60, 7, "none"), "ann")
	require.Equal(t, "execution_start", socket.next().Type)
	waiting := b.submit(picture(1), "bob")

	server.Stop()
	resp, err := http.Post(b.web.URL+"/prompt", "application/json", strings.NewReader(`{"prompt": `+picture(2)+`}`))
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	_, answer := read(t, resp)
	refused := decoded[struct {
		Error struct{ Type, Message string }
	}](t, answer)
	require.Equal(t, "queue_unavailable", refused.Error.Type)
	require.Equal(t, http.StatusServiceUnavailable, statusOf(b.get("/queue")), "a listing that cannot be complete is no listing")
	// Meanwhile the run ends at its instance.
	eventually(t, func() bool { return b.instances[0].Finished() >= 1 }, time.Minute, 10*time.Millisecond)

	server.Start()
	types := socket.until(running)
	require.Equal(t, "execution_success", types[len(types)-2])
	require.Equal(t, "success", b.finished(running).Status.Text)
	require.Equal(t, "success", b.finished(waiting).Status.Text)
	require.Equal(t, 2, started(b), "neither ran twice")
}

// However Redis fails, POST /prompt is answered 503 and when to come back.
func TestPromptWhileRedisFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T) (url string, begin, end func()){
		"it ends connections": func(t *testing.T) (string, func(), func()) {
			var broken atomic.Bool
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr(), broken.Load)
			return proxy.URL(), func() { broken.Store(true) }, func() { broken.Store(false) }
		},
		"all connections are in use": func(t *testing.T) (string, func(), func()) {
			server := redistest.Start(t)
			return "redis://" + server.Addr() + "?read_timeout=1m&pool_size=2&pool_timeout=1s", server.Pause, server.Resume
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, begin, end := fail(t)
			b := newBench(t, 1, func(b *bench) { b.id.Redis = url })
			begin()
			const posts = 4 // more than there are connections
			answers := make(chan *http.Response, posts)
			var wait sync.WaitGroup
			for range posts {
				wait.Go(func() {
					if resp, err := http.Post(b.web.URL+"/prompt", "application/json", strings.NewReader(`{"prompt": `+picture(2)+`}`)); err == nil {
						answers <- resp
					}
				})
			}
			resp := <-answers
			end()
			wait.Wait()
			close(answers)
			for other := range answers {
				read(t, other)
			}
			_, answer := read(t, resp)
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, string(answer))
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Contains(t, string(answer), `"queue_unavailable"`)
		})
	}
}

// Redis is killed and comes back without its last writes, as a replica does that lags
// and takes over. The prompts since then have not vanished, and none runs twice.
func TestRedisLosesItsLastWrites(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 2, func(b *bench) { b.id.Redis = server.URL() })
	socket := b.dial("ann")
	rewind := server.Save()
	ended := b.submit(picture(1), "ann")
	socket.until(ended)
	running := b.submit(work(60, 7, "none"), "ann")
	require.Equal(t, "execution_start", socket.next().Type)
	b.submit(work(60, 8, "none"), "bob")
	eventually(t, func() bool { return started(b) == 3 }, time.Minute, time.Millisecond)
	waiting := b.submit(picture(2), "cid")
	rewind()
	types := socket.until(running)
	require.Equal(t, "execution_success", types[len(types)-2])
	for _, id := range []string{ended, running, waiting} {
		require.Equal(t, "success", b.finished(id).Status.Text)
	}
	require.Equal(t, 4, started(b), "none ran twice")
}

// The results of a run are kept while Redis is away, however long that is. The hub
// must have given up asking for names before Redis comes back.
func TestRunEndsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server, log := redistest.Start(t), &logtest.Log{}
	b := newBench(t, 1, func(b *bench) { b.id.Redis, b.log = server.URL(), log })
	socket := b.dial("ann")
	id := b.submit(work(500, 7, "none"), "ann")
	require.Equal(t, "execution_start", socket.next().Type)
	server.Stop()
	eventually(t, func() bool { return strings.Contains(log.String(), "will try again") }, 60*time.Second, 10*time.Millisecond)
	server.Start()
	types := socket.until(id)
	require.Contains(t, types, "executed")
	require.Equal(t, "execution_success", types[len(types)-2])
	e := b.finished(id)
	require.Equal(t, "success", e.Status.Text)
	require.Equal(t, "ComfyUI_00001_.png", e.Outputs["3"].Images[0].Filename)
	b.gets("/view?filename=ComfyUI_00001_.png")
	require.Equal(t, 1, started(b), "it ran once")
	require.NotContains(t, types[1:], "execution_start")
}

// Without Redis the hub does not know which files exist, so a prompt that names
// one does not count as bad.
func TestPromptWithAFileWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	require.Equal(t, http.StatusOK, statusOf(b.upload("mine.png", "", "x")))
	server.Stop()
	status, answer := b.post("/prompt", `{"prompt": {"1": {"class_type": "LoadImage", "inputs": {"image": "mine.png"}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}}`)
	require.Equal(t, http.StatusServiceUnavailable, status, string(answer))
	require.Equal(t, http.StatusServiceUnavailable, statusOf(b.get("/view?filename=mine.png&type=input")))
	require.InDelta(t, 2, b.metric("comfyhub_redis_errors_total"), 0)
	require.Positive(t, b.metric(`comfyhub_redis_request_errors_total{kind="read",reason="unavailable"}`))
}

func TestHubStopsAndStartsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, url := range map[string]string{"redis": server.URL(), "embedded": "embedded"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2, func(b *bench) { b.id.Redis = url })
			var ids []string
			for n := range 6 {
				ids = append(ids, b.submit(work(20, n, "none"), fmt.Sprint("c", n)))
			}
			// At least: on a slow machine the third may begin before the test looks.
			eventually(t, func() bool { return started(b) >= 2 }, time.Minute, time.Millisecond)
			b.stop()
			b.start()
			for _, id := range ids {
				require.Equal(t, "success", b.finished(id).Status.Text)
			}
			require.Equal(t, 6, started(b), "what ran at the stop was taken over, not run again")
			_, body := b.get("/history")
			all := decoded[map[string]entry](t, body)
			require.Len(t, all, 6)
		})
	}
}

func TestCancelAtEveryPoint(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		socket := b.dial("ann")
		running := b.submit(endless(1), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		waiting := b.submit(work(600, 2, "none"), "bob")

		// An interrupt that names a prompt that does not run hits nobody.
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, waiting))
		_, body := b.get("/queue")
		require.Contains(t, string(body), waiting)
		// A waiting job vanishes without a trace.
		body = b.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, waiting))
		require.Empty(t, body)
		_, known := b.history(waiting)
		require.False(t, known)
		// Nobody can clear another client's queue, and a clear does not affect running jobs.
		mine := b.submit(work(600, 3, "none"), "carl")
		b.posts("/queue?clientId=dora", `{"clear": true}`)
		_, body = b.get("/queue")
		require.Contains(t, string(body), mine)
		b.posts("/queue?clientId=carl", `{"clear": true}`)
		_, body = b.get("/queue")
		require.NotContains(t, string(body), mine)
		require.Contains(t, string(body), running)
		// A bare interrupt from another client changes nothing for ann.
		b.posts("/interrupt?clientId=dora", ``)
		_, done := b.history(running)
		require.False(t, done)
		b.posts("/interrupt?clientId=ann", `{}`)
		types := socket.until(running)
		require.Equal(t, "execution_interrupted", types[len(types)-2])
		require.Equal(t, "error", b.finished(running).Status.Text)
		// After the end, an interrupt has no effect.
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
	})
}

// body500 and page500 are what a ComfyUI server answers when its code throws.
// Clients that accept HTML get page500.
const body500 = "500 Internal Server Error\n\nServer got itself in trouble"

const page500 = "<html><head><title>500 Internal Server Error</title></head><body>\n" +
	"<h1>500 Internal Server Error</h1>\nServer got itself in trouble\n</body></html>\n"

func TestBadInput(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.MaxBody = 1 << 20 }), func(t *testing.T, b *bench) {
		post := func(body string) (int, string) {
			status, answer := b.post("/prompt", body)
			return status, string(answer)
		}
		status, answer := post(`{`)
		require.Equal(t, http.StatusInternalServerError, status)
		require.Equal(t, body500, answer)
		for path, body := range map[string]string{"/prompt": `{`, "/queue": `{`} {
			request := must(http.NewRequestWithContext(t.Context(), http.MethodPost, b.web.URL+path, strings.NewReader(body)))(t)
			request.Header.Set("Accept", "text/html,*/*")
			resp, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			_, page := read(t, resp)
			require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			require.Equal(t, page500, string(page), "aiohttp answers in HTML to those who accept it")
			require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
		}
		status, answer = post(`{"prompt": {"1": {"class_type": "NoSuchNode", "inputs": {}}}}`)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, answer, `"type": "invalid_prompt"`)
		status, answer = post(`{"prompt": {"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x"}}}}`)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, answer, `"type": "required_input_missing"`)
		status, answer = post(`{"prompt": {}, "x": "` + strings.Repeat("y", 1<<20) + `"}`)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Contains(t, answer, "Maximum request body size 1048576 exceeded")
		require.Equal(t, http.StatusBadRequest, statusOf(b.get("/view?filename=../../etc/passwd")))
		require.Equal(t, http.StatusForbidden, statusOf(b.get("/view?filename=x.png&subfolder=../..")))
		body := b.gets("/history/nobody-knows-this")
		require.Equal(t, "{}", string(body))
		require.Equal(t, http.StatusBadRequest, statusOf(b.upload("a.png", "../../evil", "x")))
		// Nobody else notices.
		require.Equal(t, "success", b.finished(b.submit(picture(9), "ann")).Status.Text)
	})
}

// upload posts a file and returns the name it was given.
func (b *bench) upload(name, subfolder, content string) (int, string) {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part := must(form.CreateFormFile("image", name))(b.t)
	must(part.Write([]byte(content)))(b.t)
	require.NoError(b.t, form.WriteField("subfolder", subfolder))
	require.NoError(b.t, form.Close())
	resp, err := http.Post(b.web.URL+"/upload/image", form.FormDataContentType(), &body)
	require.NoError(b.t, err)
	status, answer := read(b.t, resp)
	var got struct{ Name string }
	if status == http.StatusOK {
		require.NoError(b.t, json.Unmarshal(answer, &got), string(answer))
	}
	return status, got.Name
}

func TestUploadedImageIsFoundWherever(t *testing.T) {
	inBench(t, benchOf(2), func(t *testing.T, b *bench) {
		// A picture made by the fleet itself serves as the upload.
		e := b.finished(b.submit(picture(0x00ff00), ""))
		_, pngBytes := b.get("/view?filename=" + e.Outputs["2"].Images[0].Filename)
		_, name := b.upload("mine.png", "", string(pngBytes))
		require.Equal(t, "mine.png", name)
		_, second := b.upload("mine.png", "", "not the same")
		require.Equal(t, "mine (1).png", second)
		_, again := b.upload("mine.png", "", string(pngBytes))
		require.Equal(t, "mine.png", again)
		var ids []string
		for n := range 6 {
			ids = append(ids, b.submit(fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": "mine.png"}},
				"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 50, "steps": 2, "nonce": %d}},
				"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, n), ""))
		}
		for _, id := range ids {
			require.Equal(t, "success", b.finished(id).Status.Text)
		}
		require.Positive(t, b.instances[0].Finished())
		require.Positive(t, b.instances[1].Finished())
	})
}

func TestDeafSocketDisturbsNobody(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.dial("deaf") // never reads
		for n := range 5 {
			b.submit(work(1, n, "none"), "deaf")
		}
		socket := b.dial("ann")
		id := b.submit(picture(5), "ann")
		socket.until(id)
	})
}

func TestEndIsToldAfterARestart(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		socket := b.dial("ann")
		id := b.submit(work(15, 1, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		b.stop()
		// The run ends while no hub is there. Another hub finds it, and the client comes
		// back and is told.
		eventually(t, func() bool { return b.instances[0].Finished() == 1 }, time.Minute, 5*time.Millisecond)
		b.start()
		require.Equal(t, "success", b.finished(id).Status.Text)
		types := b.dial("ann").until(id)
		require.Equal(t, "execution_start", types[0])
		require.Contains(t, types, "executed")
		require.Equal(t, "execution_success", types[len(types)-2])
		require.Equal(t, 1, started(b))
		// After a second restart nothing in memory knows of the end, but the record does.
		lost := b.submit(picture(3), "carl")
		b.finished(lost)
		b.stop()
		b.start()
		types = b.dial("carl").until(lost)
		require.Equal(t, "execution_success", types[len(types)-2])
	})
}
