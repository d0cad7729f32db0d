package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/worker"
)

// pullWorker is a program that fetches its jobs.
type pullWorker struct {
	b      *bench
	token  string
	worker string
}

// pulled is an answer to a worker.
type pulled struct {
	Status, Message, ID string
	Workflow            map[string]struct{ Inputs map[string]any }
	Inputs              []struct{ Name, URL string }
	Lease               float64
	Extra               map[string]any `json:"extra_data"`
}

func (b *bench) pullWorker(machine, worker string) *pullWorker {
	b.t.Helper()
	token := must(b.hub.Operator.IssueToken(b.t.Context(), machine))(b.t)
	return &pullWorker{b, token, worker}
}

// ask makes a request as the worker.
func (p *pullWorker) ask(method, at, contentType, body string) (int, string) {
	p.b.t.Helper()
	// As the simplest clients do: hanging up means nothing.
	header := http.Header{"Authorization": {"Bearer " + p.token}, "Content-Type": {contentType}, "Connection": {"close"}}
	return statusAndText(p.b.ask(method, strings.TrimPrefix(at, p.b.web.URL), body, header))
}

// does is ask for an order that is answered in JSON.
func (p *pullWorker) does(method, path, body string) (status int, a pulled) {
	p.b.t.Helper()
	status, text := p.ask(method, path, "application/json", body)
	require.NoError(p.b.t, json.Unmarshal([]byte(text), &a), text)
	return status, a
}

// next fetches the next job of the class. more are further parameters.
func (p *pullWorker) next(class string, more ...string) pulled {
	p.b.t.Helper()
	var job pulled
	eventually(p.b.t, func() bool {
		_, job = p.does("GET", "/next-job?wait=5&worker_id="+p.worker+"&classes="+class+strings.Join(more, ""), "")
		return job.Status == "assigned"
	}, time.Minute, time.Millisecond)
	return job
}

// comes has the worker say what it can run, and waits until the hub can use it.
func (p *pullWorker) comes(machine, class string) {
	p.b.t.Helper()
	eventually(p.b.t, func() bool {
		status, a := p.does("GET", "/hub/v1/next-job?worker_id="+p.worker+"&classes="+class, "")
		require.Equal(p.b.t, http.StatusOK, status, a.Message)
		require.Equal(p.b.t, "no_jobs", a.Status)
		i, _ := p.b.hub.Fleet.Instance(fleet.WorkerName(machine, p.worker))
		return i.State == fleet.Idle && p.b.hub.Inventory.Infos()[i.Name] != nil
	}, time.Minute, 10*time.Millisecond)
}

const transcode = `{"1": {"class_type": "Transcode", "inputs": {"text": "%s"}}}`

// A worker does what no ComfyUI can: it fetches the job, tells how far it is, uploads what it has
// made, as it is or in a form of which only the file is kept, and completes it. It gets the prompts of
// everybody who uses its class, but nobody's API keys. Its client sees what it would see of a ComfyUI;
// what the web UI shows comes from ComfyUIs.
func TestWorkerDoesAJob(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		p := b.pullWorker("attic", "one")
		p.comes("attic", "Transcode")
		require.Len(t, b.hub.Dispatch.Instances.Clients(), 1)
		require.NotNil(t, b.hub.Dispatch.Instances.First())
		require.Contains(t, b.text("/object_info/Transcode"), `"category": "worker"`)
		client := b.dial("c")
		id := b.submitWith(fmt.Sprintf(transcode, "a fox"), `{"note": "n", "api_key_comfy_org": "very secret", "auth_token_comfy_org": "secret too"}`)
		job := p.next("Transcode")
		require.Equal(t, "n", job.Extra["note"])
		require.NotContains(t, job.Extra, "api_key_comfy_org")
		require.NotContains(t, job.Extra, "auth_token_comfy_org")
		require.Equal(t, "a fox", job.Workflow["1"].Inputs["text"])
		require.InDelta(t, 60, job.Lease, 0)

		status, a := p.does("GET", "/next-job?worker_id=one&classes=Transcode", "")
		require.Equal(t, http.StatusConflict, status, "it holds one")
		require.Equal(t, "error", a.Status)
		answered(p.does("POST", "/renew-job/"+job.ID, `{"node": "1", "value": 3, "max": 4}`))(t, http.StatusOK)
		status, text := p.ask("POST", "/renew-job/"+job.ID, "image/jpeg", "\xff\xd8 a preview")
		require.Equal(t, http.StatusOK, status, text)
		answered(p.ask("POST", "/upload-output/"+job.ID+"?filename=fox.png", "application/octet-stream", "a picture"))(t, http.StatusOK)
		const start = "--b\r\nContent-Disposition: form-data; name=\"x\""
		const file = start + "; filename=\"fox.png\"\r\n\r\na picture\r\n--b--\r\n"
		for name, tt := range map[string]struct {
			form   string
			status int
		}{
			"a file":        {file, http.StatusOK},
			"a long field":  {start + "\r\n\r\n" + strings.Repeat("x", 100<<10) + "\r\n" + file, http.StatusOK},
			"a long header": {start + "\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n\r\n" + file, http.StatusBadRequest},
			"no file":       {start + "\r\n\r\nx\r\n--b--\r\n", http.StatusBadRequest},
		} {
			status, text := p.ask("POST", "/upload-output/"+job.ID, "multipart/form-data; boundary=b", tt.form)
			require.Equal(t, tt.status, status, "%s: %s", name, text)
		}
		answered(p.ask("POST", "/upload-output/"+job.ID, "multipart/form-data", file))(t, http.StatusBadRequest)
		a = answered(p.does("POST", "/complete-job/"+job.ID, `{"result": {"outputs": {"1": {"text": ["done"]}}}}`))(t, http.StatusOK)
		require.Equal(t, "updated", a.Status)

		heard := client.until(id)
		require.Contains(t, heard, comfyui.TypeProgress)
		require.Contains(t, heard, comfyui.TypeExecutionSuccess)
		entry := b.finished(id)
		require.Len(t, entry.Outputs["1"].Images, 3)
		image := entry.Outputs["1"].Images[0]
		require.True(t, strings.HasPrefix(image.Filename, "ComfyUI_") && strings.HasSuffix(image.Filename, ".png"), image.Filename)
		content := b.gets("/view?filename=" + image.Filename)
		require.Equal(t, "a picture", string(content))
		_, whole := b.get("/history/" + id)
		require.Contains(t, string(whole), `"text": ["done"]`)

		a = answered(p.does("POST", "/complete-job/"+job.ID, `{"result": {}}`))(t, http.StatusConflict, "it has ended")
		require.Equal(t, "error", a.Status)
	})
}

// What a worker reports about its job ends the job; it is told if the job was cancelled.
func TestWorkerFailsAndIsCancelled(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		p := b.pullWorker("attic", "one")
		p.comes("attic", "Transcode")
		failing := b.order(fmt.Sprintf(transcode, "x"), "")
		job := p.next("Transcode")
		_, a := p.does("POST", "/complete-job/"+job.ID, `{"error": {"message": "no such codec", "type": "ValueError"}}`)
		require.Equal(t, "updated", a.Status)
		ended := b.plain("/wait/" + failing.ID + "?timeout=60")
		require.Equal(t, "failed", ended.Status)
		require.Contains(t, *ended.Error, "no such codec")

		cancelled := b.order(fmt.Sprintf(transcode, "y"), "")
		job = p.next("Transcode")
		b.post("/cancel/"+cancelled.ID, "")
		eventually(t, func() bool {
			status, a := p.does("POST", "/renew-job/"+job.ID, "")
			return status == http.StatusConflict && a.Status == "cancelled"
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, "cancelled", b.plain("/wait/"+cancelled.ID+"?timeout=60").Status)

		again := b.order(fmt.Sprintf(transcode, "z"), "")
		job = p.next("Transcode")
		_, a = p.does("POST", "/complete-job/"+job.ID, `{"result": "plain words"}`)
		require.Equal(t, "updated", a.Status)
		require.Equal(t, "completed", b.plain("/wait/"+again.ID+"?timeout=60").Status)
	})
}

// A worker that vanishes loses its job to another one, and is told so when it comes back.
func TestWorkerVanishes(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		lost, other := b.pullWorker("attic", "one"), b.pullWorker("cellar", "one")
		lost.comes("attic", "Transcode")
		accepted := b.order(fmt.Sprintf(transcode, "x"), "")
		job := lost.next("Transcode", "&lease=5")
		require.InDelta(t, 5, job.Lease, 0)
		second := other.next("Transcode")
		require.NotEqual(t, job.ID, second.ID)
		a := answered(lost.does("POST", "/complete-job/"+job.ID, `{"result": "late"}`))(t, http.StatusConflict)
		require.Equal(t, "error", a.Status)
		answered(lost.does("POST", "/complete-job/"+second.ID, `{"result": "stolen"}`))(t, http.StatusConflict, "a job of another machine")
		_, a = other.does("POST", "/complete-job/"+second.ID, `{"result": "in time"}`)
		require.Equal(t, "updated", a.Status)
		require.Equal(t, "completed", b.plain("/wait/"+accepted.ID+"?timeout=60").Status)
		_, whole := b.get("/history/" + accepted.ID)
		require.Contains(t, string(whole), "in time")
	})
}

// A job for a worker is accepted as soon as the worker is enlisted, before the dispatcher has
// connected to it.
func TestJobForANewWorker(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for n := range 20 {
			class := fmt.Sprintf("Transcode%d", n)
			p := b.pullWorker("attic", class)
			answered(p.does("POST", "/hub/v1/workers/"+class, `{"classes": ["`+class+`"]}`))(t, http.StatusOK)
			b.order(`{"1": {"class_type": "`+class+`", "inputs": {}}}`, "")
		}
	})
}

// A worker gets the inputs of its job, and nothing else.
func TestWorkerInputs(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		p := b.pullWorker("attic", "one")
		answered(p.ask("POST", "/hub/v1/workers/one", "application/json", `{"object_info": {"LoadClip": {"input": {"required": {"image": [["x.png"], {"image_upload": true}]}}, "output": [], "output_node": true, "name": "LoadClip"}}, "gpu": "RTX 4090"}`))(t, http.StatusOK)
		b.upload("fox.png", "", "the fox")
		accepted := b.order(`{"1": {"class_type": "LoadClip", "inputs": {"image": "fox.png"}}}`, "")
		var job pulled
		eventually(t, func() bool {
			_, job = p.does("GET", "/next-job?wait=5&worker_id=one", "")
			return job.Status == "assigned"
		}, time.Minute, time.Millisecond)
		require.Len(t, job.Inputs, 1)
		require.Equal(t, job.Workflow["1"].Inputs["image"], job.Inputs[0].Name)
		content := answered(p.ask("GET", job.Inputs[0].URL, "", ""))(t, http.StatusOK)
		require.Equal(t, "the fox", content)
		before, _, _ := strings.Cut(job.Inputs[0].URL, "?")
		for _, name := range []string{"", "../x", "other.png", "/etc/passwd"} {
			answered(p.ask("GET", before+"?name="+name, "", ""))(t, http.StatusNotFound, name)
		}
		_, a := p.does("POST", "/complete-job/"+job.ID, `{"result": {}}`)
		require.Equal(t, "updated", a.Status)
		require.Equal(t, "completed", b.plain("/wait/"+accepted.ID+"?timeout=60").Status)
	})
}

// A machine may have so many workers, and none without its token.
func TestWorkersAreBounded(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		p := b.pullWorker("attic", "one")
		for n := range worker.MaxOfMachine {
			status, a := p.does("GET", fmt.Sprintf("/next-job?classes=X&worker_id=w%d", n), "")
			require.Equal(t, http.StatusOK, status, a.Message)
		}
		answered(p.does("GET", "/next-job?classes=X&worker_id=more", ""))(t, http.StatusTooManyRequests)
		stranger := &pullWorker{b, "attic:wrong", "one"}
		answered(stranger.does("GET", "/next-job?classes=X", ""))(t, http.StatusUnauthorized)
	})
}

// A hub that stops does not wait for requests that wait for a job.
func TestWorkersDoNotHoldUpAStop(t *testing.T) {
	inBench(t, benchOf(0), func(_ *testing.T, b *bench) {
		ctx, cancel := b.hub.Workers.Wait(b.t.Context(), time.Hour)
		defer cancel()
		b.hub.Workers.Stop()
		<-ctx.Done()
		require.ErrorIs(b.t, ctx.Err(), context.Canceled)
	})
}
