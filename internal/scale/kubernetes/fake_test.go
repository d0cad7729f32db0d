package kubernetes

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// api is an API server with one Deployment, and the controller of its ReplicaSet. Paths, methods and names
// of fields were compared with the Python client that Kubernetes generates from its OpenAPI document
// (37.0.2); nothing holds them against that again. Which pods go is as the documentation of
// pod-deletion-cost has it.
type api struct {
	t      *testing.T
	server *httptest.Server
	folder string

	mu       sync.Mutex
	token    string
	replicas int
	version  int
	made     int
	pods     []*pod
	// refuse answers a request with a status and a message, before it is done.
	refuse func(r *http.Request) (int, string)
	// between is called before the number is changed.
	between func()
	calls   []string
}

const selector = "app=comfyui"

func newAPI(t *testing.T) *api {
	a := &api{t: t, folder: t.TempDir()}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	a.write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})))
	a.write("namespace", "gpus\n")
	a.newToken("first")
	return a
}

func (a *api) write(name, text string) {
	require.NoError(a.t, os.WriteFile(filepath.Join(a.folder, name), []byte(text), 0o600))
}

// newToken replaces the token of the service account.
func (a *api) newToken(token string) {
	a.token = token
	a.write("token", token)
}

func (a *api) deployment() Deployment {
	return Deployment{Name: "comfyui", Cluster: Cluster{Address: a.server.Listener.Addr().String(), Account: a.folder}}
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	fail := func(code int, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})
	}
	if r.Header.Get("Authorization") != "Bearer "+a.token {
		fail(http.StatusUnauthorized, "Unauthorized")
		return
	}
	if a.refuse != nil {
		if code, message := a.refuse(r); code != 0 {
			fail(code, message)
			return
		}
	}
	const scalePath, podsPath = "/apis/apps/v1/namespaces/gpus/deployments/comfyui/scale", "/api/v1/namespaces/gpus/pods"
	switch name, one := strings.CutPrefix(r.URL.Path, podsPath+"/"); {
	case r.URL.Path == scalePath && r.Method == http.MethodGet:
		a.answer(w, a.scale())
	case r.URL.Path == scalePath && r.Method == http.MethodPut:
		var s struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace, ResourceVersion string }
			Spec             struct{ Replicas *int }
			Status           json.RawMessage
		}
		in := json.NewDecoder(r.Body)
		in.DisallowUnknownFields()
		assert.NoError(a.t, in.Decode(&s))
		assert.Equal(a.t, "application/json", r.Header.Get("Content-Type"))
		assert.Equal(a.t, []string{"autoscaling/v1", "Scale", "comfyui", "gpus"}, []string{s.APIVersion, s.Kind, s.Metadata.Name, s.Metadata.Namespace})
		if a.between != nil {
			a.between()
		}
		if s.Metadata.ResourceVersion != strconv.Itoa(a.version) {
			fail(http.StatusConflict, "the object has been modified; please apply your changes to the latest version and try again")
			return
		}
		a.version++
		a.replicas = *s.Spec.Replicas
		a.control()
		a.answer(w, a.scale())
	case r.URL.Path == podsPath && r.Method == http.MethodGet:
		assert.Equal(a.t, selector, r.URL.Query().Get("labelSelector"))
		a.list(w, r)
	case one && r.Method == http.MethodPatch:
		assert.Equal(a.t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		a.patch(w, r, name, fail)
	default:
		fail(http.StatusNotFound, "the server could not find the requested resource")
	}
}

func (a *api) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (a *api) scale() map[string]any {
	return map[string]any{
		"kind": "Scale", "apiVersion": "autoscaling/v1",
		"metadata": map[string]any{"name": "comfyui", "namespace": "gpus", "uid": "5", "resourceVersion": strconv.Itoa(a.version), "creationTimestamp": "2026-11-01T00:00:00Z"},
		"spec":     map[string]any{"replicas": a.replicas}, "status": map[string]any{"replicas": len(a.pods), "selector": selector},
	}
}

// list answers with two pods at a time.
func (a *api) list(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	until, next := min(from+2, len(a.pods)), ""
	if until < len(a.pods) {
		next = strconv.Itoa(until)
	}
	a.answer(w, map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "9", "continue": next}, "items": a.pods[from:until]})
}

func (a *api) patch(w http.ResponseWriter, r *http.Request, name string, fail func(int, string)) {
	n := slices.IndexFunc(a.pods, func(p *pod) bool { return p.Metadata.Name == name })
	if n < 0 {
		fail(http.StatusNotFound, fmt.Sprintf("pods %q not found", name))
		return
	}
	var change struct {
		Metadata struct{ Annotations map[string]*string }
	}
	require.NoError(a.t, json.NewDecoder(r.Body).Decode(&change))
	p := a.pods[n]
	for key, value := range change.Metadata.Annotations {
		if value == nil {
			delete(p.Metadata.Annotations, key)
			continue
		}
		if p.Metadata.Annotations == nil {
			p.Metadata.Annotations = map[string]string{}
		}
		p.Metadata.Annotations[key] = *value
	}
	a.answer(w, p)
}

// control brings the number of pods to what it is to be.
func (a *api) control() {
	for len(a.pods) < a.replicas {
		a.made++
		p := &pod{}
		p.Metadata.Name = fmt.Sprint("comfyui-6d4f-", a.made)
		p.Status.Phase = "Pending"
		a.pods = append(a.pods, p)
	}
	slices.SortStableFunc(a.pods, func(a, b *pod) int { return cmp.Or(slices.Compare(b.rank(), a.rank())) })
	a.pods = a.pods[:a.replicas]
}

// up lets all pods run.
func (a *api) up() {
	for _, p := range a.pods {
		a.ready(p, "True")
	}
}

func (a *api) ready(p *pod, status string) {
	p.Spec.NodeName, p.Status.Phase = "node", "Running"
	p.Status.Conditions = append(p.Status.Conditions[:0], struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	}{"Ready", status})
}

// names are those of the pods.
func (a *api) names() (names []string) {
	for _, p := range a.pods {
		names = append(names, p.Metadata.Name)
	}
	slices.Sort(names)
	return names
}
