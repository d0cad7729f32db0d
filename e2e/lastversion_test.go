package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// record tells TestRecordTheLastVersion to replace the recording in storedtest.
const record = "COMFYHUB_RECORD"

// The jobs of the scenario: a tenant's in each state that a job can be in.
const (
	doneID        = "00000000-0000-4000-8000-000000000001"
	failedID      = "00000000-0000-4000-8000-000000000002"
	interruptedID = "00000000-0000-4000-8000-000000000003"
	bobsID        = "00000000-0000-4000-8000-000000000004"
	runningID     = "00000000-0000-4000-8000-000000000005"
	waitingID     = "00000000-0000-4000-8000-000000000006"
	bobsWaitingID = "00000000-0000-4000-8000-000000000007"
	withdrawnID   = "00000000-0000-4000-8000-000000000008"
)

// apiKey is what ann sends with the job that waits.
const apiKey = "a-key-of-ann"

// prompted is the body of a prompt.
func prompted(id, client, source string, work string) string {
	return fmt.Sprintf(`{"prompt_id": %q, "client_id": %q, "extra_data": {"note": "kept", "api_key_comfy_org": %q}, "prompt": {"1": %s, "2": %s,
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}}`, id, client, apiKey, source, work)
}

const (
	blank  = `{"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 255}}`
	photo  = `{"class_type": "LoadImage", "inputs": {"image": "photo.png"}}`
	invert = `{"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}}`
)

// takes is a node that works for so long.
func takes(seconds float64, fail string, nonce int) string {
	return fmt.Sprintf(`{"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": %d, "fail": %q, "nonce": %d}}`,
		seconds, max(1, int(seconds*2)), fail, nonce)
}

// write lets two hubs of one version make one of everything that is stored: the
// instance is at hub one, ann's socket at hub two. It returns what they stored,
// sent and answered.
func scenario(t *testing.T, set programs.Set) *stored {
	t.Helper()
	server := redistest.Start(t)
	s := &stored{storedtest.Recording{Answers: map[string]storedtest.Blob{}}}
	c := client(t, server)
	stop := s.listen(t, c)
	one, two := newPair(t, server, set, set)
	one.startHub()
	two.startHub()
	one.startAgent("gpu", 1)
	one.idle(1)

	one.upload("ann", "photo.png", plain(color.RGBA{200, 100, 50, 255}))
	one.post("ann", "/prompt", prompted(doneID, "nobody", photo, invert))
	one.becomes("ann", doneID, "done")
	one.post("ann", "/prompt", prompted(failedID, "nobody", blank, takes(1, "error", 1)))
	one.becomes("ann", failedID, "failed")
	one.post("ann", "/prompt", prompted(interruptedID, "nobody", blank, takes(3600, "none", 2)))
	one.becomes("ann", interruptedID, "running")
	two.post("ann", "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, interruptedID))
	one.becomes("ann", interruptedID, "cancelled")
	one.post("bob", "/prompt", prompted(bobsID, "nobody", blank, invert))
	one.becomes("bob", bobsID, "done")

	socket := two.listen("ann", "ann")
	one.post("ann", "/prompt", prompted(runningID, "ann", blank, takes(3600, "none", 3)))
	two.hears(socket, runningID, "progress")
	one.becomes("ann", runningID, "running")
	one.post("ann", "/prompt", prompted(waitingID, "ann", photo, invert))
	two.post("bob", "/prompt", prompted(bobsWaitingID, "bob", blank, invert))
	one.post("ann", "/prompt", prompted(withdrawnID, "ann", blank, invert))
	two.post("ann", "/queue", fmt.Sprintf(`{"delete": [%q]}`, withdrawnID))
	one.becomes("ann", withdrawnID, "cancelled")

	for _, tenant := range []string{"ann", "bob"} {
		for _, path := range append(answered[tenant], two.view(tenant, ends[tenant])) {
			s.Answers[tenant+" "+path] = storedtest.Blob(two.fetch(tenant, path))
		}
	}
	s.keep(t, c)
	s.keepFiles(t, one.Data)
	stop()
	return s
}

// answered are the requests that another version answers in the same way.
var answered = map[string][]string{
	"ann": {
		"/history", "/history/" + doneID, "/history/" + failedID, "/history/" + interruptedID,
		"/hub/jobs/" + doneID, "/hub/jobs/" + failedID, "/hub/jobs/" + interruptedID, "/hub/jobs/" + withdrawnID,
		"/view?filename=photo.png&type=input",
	},
	"bob": {"/history", "/history/" + bobsID, "/hub/jobs/" + bobsID},
}

// ends are the jobs that have made a picture.
var ends = map[string]string{"ann": doneID, "bob": bobsID}

// view is the path of the picture that a job has made.
func (f *fleet) view(tenant, id string) string {
	f.t.Helper()
	var all map[string]struct {
		Outputs map[string]struct {
			Images []struct{ Filename, Subfolder, Type string }
		}
	}
	require.NoError(f.t, json.Unmarshal(f.fetch(tenant, "/history/"+id), &all))
	images := all[id].Outputs["3"].Images
	require.Len(f.t, images, 1, "%s", id)
	return "/view?" + url.Values{"filename": {images[0].Filename}, "subfolder": {images[0].Subfolder}, "type": {images[0].Type}}.Encode()
}

// TestRecordTheLastVersion writes the file that the other tests go by.
func TestRecordTheLastVersion(t *testing.T) {
	if os.Getenv(record) == "" {
		t.Skip("writes what another version stores: " + record + "=1")
	}
	set, commit := other(t)
	s := scenario(t, set)
	s.Version = commit
	s.write(t)
	require.NotEmpty(t, s.Published)
}

// added are what this version stores besides: keys of Redis and files, by plain
// name. The last version leaves them alone.
var added = [...]string{
	"{comfyhub}:clock", "{comfyhub}:fleet:seen", "{comfyhub}:fleet:former", "files/hub/classes/HEX",
	"{comfyhub}:q:hubs", "{comfyhub}:q:hubs:parts", "{comfyhub}:q:durations", "{comfyhub}:q:durations_used",
	"{comfyhub}:files:blocks:3:ann6:output0:", "{comfyhub}:files:blocks:3:bob6:output0:", "files/names/XX/HEX",
	"{comfyhub}:files:bond", "files/comfyhub-bond", "files/comfyhub-beat", "files/comfyhub-clock",
	"{comfyhub}:q:tenants", "{comfyhub}:q:tags", "{comfyhub}:q:turns", "{comfyhub}:q:costs",
	"{comfyhub}:q:waits:ann", "{comfyhub}:q:classes:ann", "{comfyhub}:q:wait:HEX:ann", "{comfyhub}:q:callers:ann",
	"{comfyhub}:h:trends", "{comfyhub}:h:faults", "files/hub/last-known.json", // written every few seconds
	"{comfyhub}:q:waits:bob", "{comfyhub}:q:classes:bob", "{comfyhub}:q:wait:HEX:bob", "{comfyhub}:q:callers:bob",
	"{comfyhub}:q:results:ann", "{comfyhub}:q:results:bob",
}

// addedNotes is how the names of the files begin in which a hub notes for its next process what
// Redis may lose. How many there are depends on when it wrote them.
const addedNotes = "notes/"

// dropped are what the last version stored besides, and can do without: it holds its
// own copies of outputs itself.
var dropped = [...]string{"{comfyhub}:files:hold:output/XX/UUID"}

// addedFields are the fields of hashes that it stores besides.
var addedFields = [...]string{"virtual", "indexed", "place", "claimed", "ran", "charged", "share", "ahead", "shape", "seat", "metered", "why", "preempted", "awaits", "grace", "opened", "failed_at", "killed_at", "was_listed", "result", "equal"}

// addedChannel is one on which a probe publishes, and to which nobody listens.
const addedChannel = "{comfyhub}:q:writable"

// addedKinds are kinds of values that it stores besides.
var addedKinds = [...]string{"{classes unchecked v}"}

// addedTag ends the kind of a body with a field that the last version skips: what the result depends on.
const addedTag = " 8"

// This version stores what the last one stored: the same keys, with the same
// types, fields and kinds of values. It also sends the same to other hubs.
func TestStoresAsTheLastVersion(t *testing.T) {
	t.Parallel()
	last, this := readStored(t), scenario(t, programstest.Built(t))
	want, got := last.forms(t), this.forms(t)
	maps.DeleteFunc(got, func(name string, _ keyForm) bool {
		return slices.Contains(added[:], name) || strings.HasPrefix(name, "{comfyhub}:usage:") // by day
	})
	maps.DeleteFunc(want, func(name string, _ keyForm) bool { return slices.Contains(dropped[:], name) })
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)), "keys")
	for name, w := range want {
		g := got[name]
		require.Equal(t, w.Type, g.Type, name)
		require.Equal(t, w.Leaves, g.Leaves, "%s goes by itself", name)
		maps.DeleteFunc(g.Fields, func(name string, _ kinds) bool { return slices.Contains(addedFields[:], name) })
		require.ElementsMatch(t, slices.Collect(maps.Keys(w.Fields)), slices.Collect(maps.Keys(g.Fields)), "fields of %s", name)
		for field, kinds := range w.Fields {
			for _, kind := range addedKinds {
				delete(g.Fields[field], kind)
			}
			for kind := range maps.Clone(g.Fields[field]) {
				if bare, has := strings.CutSuffix(kind, addedTag); has && strings.HasPrefix(kind, "compressed body ") {
					delete(g.Fields[field], kind)
					g.Fields[field][bare] = true
				}
			}
			if len(kinds) > 0 && len(g.Fields[field]) > 0 {
				require.Equal(t, kinds, g.Fields[field], "%s, field %q", name, field)
			}
		}
	}
	said, says := last.messages(), this.messages()
	delete(says, addedChannel)
	require.ElementsMatch(t, slices.Collect(maps.Keys(said)), slices.Collect(maps.Keys(says)), "channels")
	for channel, words := range said {
		for word, parts := range words {
			if now, found := says[channel][word]; found {
				if strings.HasSuffix(channel, ":q:events") {
					now -= 2 // the class and the shape, which the last version skips
				}
				require.Equal(t, parts, now, "parts of %q on %s", word, channel)
			}
		}
	}
	var files, now []string
	for name := range last.Files {
		files = append(files, plainName(name))
	}
	for name := range this.Files {
		if name = plainName(name); !slices.Contains(added[:], name) && !strings.HasPrefix(name, addedNotes) {
			now = append(now, name)
		}
	}
	require.ElementsMatch(t, files, now, "files")
}

// withoutProgress takes the progress out of jobs.
func withoutProgress(jobs []byte) []byte {
	return regexp.MustCompile(`"progress": [0-9.]+`).ReplaceAll(jobs, []byte(`"progress": 0`))
}

// This version goes on where the last one was: every job, file and key that it
// left is there, and what waited is done.
func TestReadsWhatTheLastVersionStored(t *testing.T) {
	t.Parallel()
	last := readStored(t)
	server := redistest.Start(t)
	set := programstest.Built(t)
	f, _ := newPair(t, server, set, set)
	last.fill(t, client(t, server))
	last.fillFiles(t, f.Data)
	f.startHub()
	for request, want := range last.Answers {
		tenant, path, _ := strings.Cut(request, " ")
		got := f.fetch(tenant, path)
		if strings.HasPrefix(path, "/hub/jobs") { // the last version shows what a node last reported
			want, got = storedtest.Blob(withoutProgress([]byte(want))), regexp.MustCompile(`"starts_in": [^,}]+, `).ReplaceAll(withoutProgress(got), nil)
		}
		if json.Valid([]byte(want)) {
			require.JSONEq(t, string(want), string(got), request)
			continue
		}
		require.Equal(t, string(want), string(got), request)
	}
	for tenant, ids := range map[string][]string{"ann": {runningID, waitingID}, "bob": {bobsWaitingID}} {
		require.ElementsMatch(t, ids, f.queued(tenant), "the queue of %s", tenant)
	}

	// A job that the other version's hub ran is cancelled here.
	f.post("ann", "/hub/jobs/"+runningID+"/cancel", "")
	socket := f.listen("ann", "ann")
	bodies := make(chan string, 10)
	front := simtest.Front(t, f.simulate("alone"), func(w http.ResponseWriter, r *http.Request, instance http.Handler) {
		if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				bodies <- string(body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
		}
		instance.ServeHTTP(w, r)
	})
	f.agent("gpu", "run", "--join", f.Gossip, "--name", "gpu", "--comfyui", front.URL)
	f.hears(socket, waitingID, "execution_success")
	f.becomes("ann", waitingID, "done")
	f.becomes("bob", bobsWaitingID, "done")
	f.becomes("ann", runningID, "cancelled")
	for range 2 {
		require.Contains(t, <-bodies, apiKey, "the sealed API key reaches the instance")
	}
	require.NotEqual(t, f.view("ann", doneID), f.view("ann", waitingID), "the numbers of files go on")
	require.NotEmpty(t, f.fetch("ann", f.view("ann", waitingID)))
	require.NotEmpty(t, f.fetch("bob", f.view("bob", bobsWaitingID)))
}

// queued are the ids of a tenant's jobs that run or wait.
func (f *fleet) queued(tenant string) (ids []string) {
	f.t.Helper()
	var all map[string][][]json.RawMessage
	require.NoError(f.t, json.Unmarshal(f.fetch(tenant, "/queue"), &all))
	for _, list := range all {
		for _, item := range list {
			var id string
			require.NoError(f.t, json.Unmarshal(item[1], &id))
			ids = append(ids, id)
		}
	}
	return ids
}
