package a1111

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Paths at an instance by which a hub asks about one run or stops it. The query has the id of
// the prompt as [RunKey]: what somebody else has the server do is none of the hub's business.
const (
	// ProgressPath answers as /sdapi/v1/progress does, and with 404 while the server does not
	// work on the run.
	ProgressPath = "/a1111/progress"
	// InterruptPath has the server end the run with the pictures that it has by then. A run
	// that has not begun ends once it has.
	InterruptPath = "/a1111/interrupt"
	// SkipPath has the server go on with the next picture of the run.
	SkipPath = "/a1111/skip"
	// RunKey in the query is the id of the prompt.
	RunKey = "run"
	// SkipImageKey in the query of ProgressPath leaves the preview out.
	SkipImageKey = "skip_current_image"
)

// What is passed on to servers is below these.
const (
	apiPrefix        = "/sdapi/v1/"
	controlnetPrefix = "/controlnet/"
)

// fresh is how long a reading of the progress is good: however many ask, the server is
// asked a few times a second.
const fresh = 250 * time.Millisecond

// The orders by which a client stops a run.
const (
	orderInterrupt = "interrupt"
	orderSkip      = "skip"
)

// ownRoutes answer the requests that are none of ComfyUI's.
type ownRoutes struct{ *life }

func (l ownRoutes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProgressPath, l.getProgress)
	mux.HandleFunc("POST "+InterruptPath, l.postStop(orderInterrupt))
	mux.HandleFunc("POST "+SkipPath, l.postStop(orderSkip))
	mux.HandleFunc("GET "+apiPrefix+settingsPath, l.getSettings)
	for _, what := range Refreshes() {
		mux.HandleFunc("POST "+apiPrefix+what, l.postRefresh(what))
	}
	proxy := l.client.proxy()
	mux.Handle(apiPrefix, proxy)
	mux.Handle(controlnetPrefix, proxy)
	return mux
}

// ServeHTTP implements [http.Handler], see [facade.Backend].
func (l *life) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.own.ServeHTTP(w, r) }

// ofRun returns what runs if it is the run that a request names.
func (l ownRoutes) ofRun(r *http.Request) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.task == nil || l.task.run.ID != r.URL.Query().Get(RunKey) {
		return nil
	}
	return l.task
}

func (l ownRoutes) getProgress(w http.ResponseWriter, r *http.Request) {
	t := l.ofRun(r)
	if t == nil || l.look(r.Context(), fresh) != nil {
		http.NotFound(w, r)
		return
	}
	l.mu.Lock()
	seen := t.seen
	l.mu.Unlock()
	if seen == nil {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Has(SkipImageKey) {
		seen = with(seen, "current_image", pyjson.Null{})
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(pyjson.Marshal(seen))
}

// postStop notes that a client wants to stop a run, see obey.
func (l ownRoutes) postStop(order string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t := l.ofRun(r)
		if t == nil {
			http.NotFound(w, r)
			return
		}
		l.mu.Lock()
		if t.order != orderInterrupt {
			t.order = order
		}
		l.mu.Unlock()
		if l.look(r.Context(), 0) != nil {
			http.Error(w, "the server does not answer", http.StatusBadGateway)
		}
	}
}

// obey passes a client's order on, once the server works on the run that it is about.
func (l *life) obey(ctx context.Context, t *task, p progress) {
	l.mu.Lock()
	order := t.order
	switch {
	case !t.begun || !p.busy || order == orderInterrupt && p.interrupted:
		order = ""
	case order == orderSkip: // another one skips another picture
		t.order = ""
	}
	l.mu.Unlock()
	if order != "" {
		_ = l.client.order(ctx, order) // an interrupt is repeated until the server has taken it in
	}
}

// Refreshes are the routes, after "/sdapi/v1/", that have a server look for new files.
func Refreshes() []string {
	return []string{"refresh-checkpoints", "refresh-vae", "refresh-loras", "refresh-embeddings"}
}

// refreshTimeout bounds a refresh: a server begins with it when it has ended what it does.
const refreshTimeout = 30 * time.Minute

// postRefresh has the server look for new files, and looks at what it has then. Whoever asks
// while that goes on waits for the same one.
func (l ownRoutes) postRefresh(what string) http.HandlerFunc {
	var done chan struct{}
	return func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		waits := done
		if waits == nil {
			waits = make(chan struct{})
			done = waits
			go func() {
				ctx, cancel := l.until(refreshTimeout)
				defer cancel()
				if _, err := l.client.do(ctx, http.MethodPost, what, nil, maxError); err == nil {
					l.learn(ctx)
				}
				l.mu.Lock()
				done = nil
				l.mu.Unlock()
				close(waits)
			}()
		}
		l.mu.Unlock()
		select {
		case <-waits:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("null"))
	}
}

// until returns a context that ends with the life, or after a time.
func (l ownRoutes) until(most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	go func() {
		defer cancel()
		select {
		case <-l.lost:
		case <-l.ended:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// proxy passes requests on to the server. What may pass was decided at the hub.
func (c *client) proxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport:     c.http.Transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			u, err := url.Parse(c.root)
			if err != nil {
				return // it was parsed before
			}
			r.SetURL(u)
			r.Out.Host = u.Host
			if u.User != nil {
				password, _ := u.User.Password()
				r.Out.SetBasicAuth(u.User.Username(), password)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
}
