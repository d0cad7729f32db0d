package sim

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// route is one method and path. A segment in braces matches any one raw segment
// ("uuid" and "blake3" match only such values). "{name...}" at the end matches the
// rest.
type route struct {
	method   string
	segments []string
	handle   handler
}

// table lists the routes of the simulated version. Each exists bare and under /api
// unless it is marked otherwise.
func (s *Server) table() []route {
	var routes []route
	add := func(method, pattern string, handle handler) {
		routes = append(routes, route{method, strings.Split(pattern, "/")[1:], handle})
	}
	both := func(method, pattern string, handle handler) {
		add(method, pattern, handle)
		add(method, "/api"+pattern, handle)
	}
	queues := of(func(p *process) *queueRoutes { return &p.queues })
	media := of(func(p *process) *fileRoutes { return &p.media })
	lists := of(func(p *process) *listings { return &p.lists })
	users := of(func(p *process) *userRoutes { return &p.users })
	jobs := of(func(p *process) *jobRoutes { return &p.jobs })
	both("GET", "/", (*process).getIndex)
	both("GET", "/ws", (*process).serveSocket)
	both("GET", "/prompt", (*process).getPrompt)
	both("POST", "/prompt", (*process).postPrompt)
	both("GET", "/queue", queues((*queueRoutes).getQueue))
	both("POST", "/queue", queues((*queueRoutes).postQueue))
	both("GET", "/history", queues((*queueRoutes).getHistory))
	both("GET", "/history/{prompt_id}", queues((*queueRoutes).getHistoryEntry))
	both("POST", "/history", queues((*queueRoutes).postHistory))
	both("POST", "/interrupt", queues((*queueRoutes).postInterrupt))
	both("POST", "/free", queues((*queueRoutes).postFree))
	both("GET", "/view", media((*fileRoutes).getView))
	both("GET", "/view_metadata/{folder}", lists((*listings).getViewMetadata))
	both("POST", "/upload/image", media((*fileRoutes).postUploadImage))
	both("POST", "/upload/mask", media((*fileRoutes).postUploadMask))
	both("GET", "/object_info", lists((*listings).getObjectInfo))
	both("GET", "/object_info/{class}", lists((*listings).getObjectInfoClass))
	both("GET", "/embeddings", lists((*listings).getEmbeddings))
	both("GET", "/models", lists((*listings).getModels))
	both("GET", "/models/{folder}", lists((*listings).getModelFolder))
	both("GET", "/experiment/models", lists((*listings).getExperimentModels))
	both("GET", "/experiment/models/{folder}", lists((*listings).getExperimentFolder))
	both("GET", "/experiment/models/preview/{folder}/{index}/{file...}", notFound) // no model has a picture
	both("GET", "/extensions", always(list()))
	both("GET", "/system_stats", (*process).getSystemStats)
	both("GET", "/users", users((*userRoutes).getUsers))
	both("POST", "/users", users((*userRoutes).postUsers))
	both("GET", "/settings", users((*userRoutes).getSettings))
	both("POST", "/settings", users((*userRoutes).postSettings))
	both("GET", "/settings/{id}", users((*userRoutes).getSetting))
	both("POST", "/settings/{id}", users((*userRoutes).postSetting))
	both("GET", "/userdata", users((*userRoutes).listUserdata))
	both("GET", "/v2/userdata", users((*userRoutes).walkUserdata))
	both("GET", "/userdata/{file}", users((*userRoutes).getUserdata))
	both("POST", "/userdata/{file}", users((*userRoutes).postUserdata))
	both("DELETE", "/userdata/{file}", users((*userRoutes).deleteUserdata))
	both("POST", "/userdata/{file}/move/{dest}", users((*userRoutes).moveUserdata))
	both("GET", "/i18n", always(dict()))
	both("GET", "/workflow_templates", always(dict()))
	both("GET", "/simulated/panel", (*process).callPanel)
	both("POST", "/simulated/panel", (*process).callPanel)
	both("GET", "/simulated/panel/{sid}", (*process).callPanel)
	add("GET", "/internal/logs", always(value("Starting server\n")))
	add("GET", "/internal/logs/raw", (*process).getRawLogs)
	add("PATCH", "/internal/logs/subscribe", (*process).subscribeLogs)
	add("GET", "/internal/folder_paths", lists((*listings).getFolderPaths))
	add("GET", "/internal/files/{kind}", lists((*listings).getFiles))
	if s.feat.featureFlags {
		both("GET", "/features", func(p *process, w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, http.StatusOK, p.serverFlags())
		})
	}
	if s.feat.subgraphs {
		both("GET", "/global_subgraphs", always(dict()))
		both("GET", "/global_subgraphs/{id}", always(nil))
	}
	if s.feat.nodeReplacements {
		both("GET", "/node_replacements", always(recordedJSON("node_replacements.json")))
	}
	if s.feat.jobs {
		both("GET", "/api/jobs", jobs((*jobRoutes).getJobs))
		both("GET", "/api/jobs/{id}", jobs((*jobRoutes).getJob))
	}
	if s.feat.jobsCancel {
		both("POST", "/api/jobs/{id}/cancel", jobs((*jobRoutes).cancelJob))
		both("POST", "/api/jobs/cancel", jobs((*jobRoutes).cancelJobs))
	}
	if s.feat.assetRoutes {
		for _, r := range assetRoutes() {
			add(r[0], r[1], (*process).answerAssets)
		}
	}
	return routes
}

// match returns the handler for a method and the segments of a path, and sets the
// values of its parameters on r. allowed lists the methods of the path.
func match(routes []route, r *http.Request, segments []string) (handle handler, allowed []string) {
	method := r.Method
	for _, rt := range routes {
		params, ok := rt.params(segments)
		if !ok {
			continue
		}
		if rt.method == method || rt.method == http.MethodGet && method == http.MethodHead {
			for name, value := range params {
				r.SetPathValue(name, value)
			}
			return rt.handle, nil
		}
		allowed = append(allowed, rt.method)
		if rt.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	return nil, allowed
}

// params matches the segments of a path and decodes the values of the parameters.
func (rt route) params(segments []string) (map[string]string, bool) {
	params := map[string]string{}
	for i, want := range rt.segments {
		if i >= len(segments) {
			return nil, false
		}
		name, isParam := strings.CutPrefix(want, "{")
		if !isParam {
			if segments[i] != want {
				return nil, false
			}
			continue
		}
		raw, rest := segments[i], strings.HasSuffix(name, "...}")
		if rest {
			raw = strings.Join(segments[i:], "/")
		}
		decoded := unquotePathSafe(raw)
		name = strings.TrimRight(name, ".}")
		if !rest && (raw == "" || strings.ContainsAny(raw, "{}")) || name == "uuid" && !canonicalUUID.MatchString(raw) || name == "blake3" && !strings.HasPrefix(decoded, "blake3:") {
			return nil, false
		}
		params[name] = decoded
		if rest {
			return params, true
		}
	}
	return params, len(segments) == len(rt.segments)
}

// serve is the whole HTTP interface: middlewares, routing, and the static files at
// / for everything else.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	p := s.process()
	if p == nil {
		cut(w)
		return
	}
	defer func() {
		// A process that is killed while it answers never completes the answer.
		if p.life.Err() != nil && r.Header.Get("Upgrade") == "" {
			panic(http.ErrAbortHandler)
		}
	}()
	if delay := s.Fault().SlowHTTP; delay > 0 {
		if s.clock.Sleep(r.Context(), time.Duration(delay)*time.Millisecond) != nil {
			return
		}
	}
	h := w.Header()
	h.Set("Server", "Python/3.11 aiohttp/3.13.0")
	if s.refused(r) {
		answerEmpty(w, http.StatusForbidden)
		return
	}
	s.pageHeaders(w, r)
	if r.Method == http.MethodOptions {
		h.Del("Content-Security-Policy")
		answerEmpty(w, http.StatusOK)
		return
	}
	safe := pathSafe(r)
	handle, allowed := match(s.routes, r, strings.Split(safe, "/")[1:])
	if handle != nil {
		handle(p, w, r)
		return
	}
	s.static(w, r, safe, allowed)
}

// cut ends a connection without an answer, as a dead process does.
func cut(w http.ResponseWriter) {
	if hj, ok := w.(http.Hijacker); ok {
		if conn, _, err := hj.Hijack(); err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // reset rather than close
			}
			_ = conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// static answers paths that no route matches. The folder of the web interface is
// mounted at / for GET and HEAD, but below /internal there is another application.
func (s *Server) static(w http.ResponseWriter, r *http.Request, safe string, allowed []string) {
	internal := safe == "/internal" || strings.HasPrefix(safe, "/internal/")
	switch isRead := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case internal && len(allowed) > 0, !internal && !isRead:
		if !internal {
			allowed = append(allowed, http.MethodGet, http.MethodHead)
		}
		slices.Sort(allowed)
		dropPageHeaders(w)
		w.Header().Set("Allow", strings.Join(slices.Compact(allowed), ","))
		answerText(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
	case internal, outside(safe):
		dropPageHeaders(w)
		answerText(w, http.StatusNotFound, "404: Not Found")
	case strings.Trim(unquotePathSafe(safe), "/") == "index.html":
		s.serveIndex(w, r)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		answerEmpty(w, http.StatusNotFound)
	}
}

// pageHeaders sets the headers that middlewares add to normal answers.
func (s *Server) pageHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if s.cfg.CORSOrigin != "" {
		methods := "POST, GET, DELETE, PUT, OPTIONS"
		if s.feat.corsPatch {
			methods += ", PATCH"
		}
		h.Set("Access-Control-Allow-Origin", s.cfg.CORSOrigin)
		h.Set("Access-Control-Allow-Methods", methods)
		h.Set("Access-Control-Allow-Headers", "Content-Type, Authorization")
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if s.feat.csp && s.cfg.DisableAPINodes {
		h.Set("Content-Security-Policy", "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self' data:; frame-src 'self'; object-src 'self';")
	}
	noCache := "no-cache"
	if s.feat.noStore {
		noCache = "no-store"
	}
	raw, _ := requestTarget(r)
	name := unquote(raw, "", "")
	base := path.Base(name)
	switch {
	case strings.HasSuffix(name, ".js"), strings.HasSuffix(name, ".css"),
		strings.HasPrefix(base, "index") && strings.HasSuffix(base, ".json"):
		h.Set("Cache-Control", noCache)
	case slices.Contains([]string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".gif", ".tif", ".tiff", ".webp"}, strings.ToLower(path.Ext(name))):
		h.Set("Cache-Control", "public, max-age=86400")
	}
}

// refused checks for requests that other web pages send to a local instance.
func (s *Server) refused(r *http.Request) bool {
	if s.cfg.CORSOrigin != "" {
		return false
	}
	if s.feat.fetchSite && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return true
	}
	origin := r.Header.Get("Origin")
	if r.Host == "" || origin == "" {
		return false
	}
	from, err := url.Parse(strings.ToLower(origin))
	if err != nil || from.Host == "" {
		return false
	}
	host, there := strings.ToLower(r.Host), from.Host
	to := &url.URL{Host: host}
	if !loopback(to.Hostname()) {
		return false
	}
	if from.Port() == "" {
		host = to.Hostname()
		there = from.Hostname()
	} else if to.Port() == "" {
		there = from.Hostname()
		host = to.Hostname()
	}
	return host != there
}

// loopback reports whether a host name is this machine. Unlike the real server it
// does no DNS lookups: only literals and localhost count.
func loopback(name string) bool {
	if ip := net.ParseIP(name); ip != nil {
		return ip.IsLoopback()
	}
	return name == "localhost"
}

// bodyLimit is the largest request body, in bytes.
type bodyLimit int64

// readBody reads a request body up to the limit. If the body is too large, it
// sends the answer itself.
func (l bodyLimit) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	limit := int64(l)
	source, err := unpacked(r)
	if err != nil {
		answerInternalError(w, r)
		return nil, false
	}
	body, err := io.ReadAll(io.LimitReader(source, limit+1))
	if err != nil {
		return nil, false // the client is gone
	}
	if int64(len(body)) >= limit {
		drain(r.Body)
		answerTooLarge(w, limit, max(int64(len(body)), limit))
		return nil, false
	}
	return body, true
}

// drain reads a little more of a refused body. Otherwise the connection would be
// reset before the client has read the reason.
func drain(body io.Reader) {
	const enough = 16 << 20
	_, _ = io.CopyN(io.Discard, body, enough) // errors do not matter
}

// unpacked undoes the Content-Encoding of a request body.
func unpacked(r *http.Request) (io.Reader, error) {
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "gzip":
		return gzip.NewReader(r.Body)
	case "deflate":
		return zlib.NewReader(r.Body)
	}
	return r.Body, nil
}

func answerTooLarge(w http.ResponseWriter, limit, size int64) {
	dropPageHeaders(w)
	answerText(w, http.StatusRequestEntityTooLarge,
		"Maximum request body size "+string(pyjson.Int(limit))+" exceeded, actual body size "+string(pyjson.Int(size)))
}

// readJSON reads a JSON body whatever its Content-Type is. Broken JSON is answered
// with 500.
func (l bodyLimit) readJSON(w http.ResponseWriter, r *http.Request) (pyjson.Value, bool) {
	body, ok := l.readBody(w, r)
	if !ok {
		return nil, false
	}
	v, err := pyjson.Parse(body)
	if err != nil {
		answerInternalError(w, r)
		return nil, false
	}
	return pyjson.Normalize(v), true
}
