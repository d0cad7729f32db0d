package apitest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Server serves rooms.
type Server struct {
	*api.Server

	t testing.TB
	// Slots are the requests that each may hold open at once; more are refused as the tenant's.
	Slots int64
	held  atomic.Int64
}

// Serve serves rooms.
func Serve(t testing.TB, rooms func(*api.Requests) []api.Optional) *Server {
	t.Helper()
	s := &Server{t: t, Slots: 100}
	requests := &api.Requests{
		Intake: intake.New(intake.Options{Dir: t.TempDir()}), Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
		Unavailable: func() {}, Limited: func(string) {}, Audit: func(string, ...any) {}, Route: func(*http.Request) string { return "" }, Slot: s.slot,
	}
	s.Server = api.NewServer(hub{}, requests, api.Rooms{
		Own: &api.Router{}, ComfyUI: &api.Router{}, Optional: rooms(requests),
		Forward: func(w http.ResponseWriter, r *http.Request, _ api.Requester, _ aiohttp.Path) { api.WriteNotFound(w, r) },
	})
	return s
}

func (s *Server) slot(ctx context.Context, _ stream.Ident) (context.Context, func(), error) {
	if s.held.Add(1) > s.Slots {
		s.held.Add(-1)
		return nil, nil, stream.ErrTenantFull
	}
	return ctx, func() { s.held.Add(-1) }, nil
}

// Client is who asks: a tenant, "" for nobody who has logged in, and a program of it.
type Client struct{ Tenant, Program string }

// Begin makes a request in a goroutine of its own. ended says, after the answer, whether
// the connection was cut; before, the answer must not be read. The request ends with ctx.
func (s *Server) Begin(ctx context.Context, c Client, method, path, body string, header ...string) (answer *httptest.ResponseRecorder, ended <-chan bool) {
	answer = httptest.NewRecorder()
	done := make(chan bool, 1)
	r := httptest.NewRequestWithContext(ctx, method, "http://hub"+path, strings.NewReader(body))
	r.Header.Set("User-Agent", c.Program)
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	go func() {
		defer func() {
			cut := recover()
			if err, ok := cut.(error); cut != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
				panic(cut)
			}
			done <- cut != nil
		}()
		s.Serve(answer, r, api.Visitor{IP: "127.0.0.1", Tenant: c.Tenant})
	}()
	return answer, done
}

// Ask makes a request and returns the answer.
func (s *Server) Ask(c Client, method, path, body string, header ...string) (status int, answer string) {
	s.t.Helper()
	w, ended := s.Begin(s.t.Context(), c, method, path, body, header...)
	<-ended
	return w.Code, w.Body.String()
}

// Gets is Ask for what must succeed.
func (s *Server) Gets(c Client, method, path, body string, header ...string) string {
	s.t.Helper()
	status, answer := s.Ask(c, method, path, body, header...)
	require.Less(s.t, status, 300, "%s %s: %s", method, path, answer)
	return answer
}

// hub is nothing but what every request needs.
type hub struct{}

func (hub) Started() bool            { return true }
func (hub) Release() string          { return "" }
func (hub) Version() comfyui.Version { return comfyui.Version{} }
func (hub) NoteLogin()               {}
func (hub) Operates(t string) bool   { return t == "root" }
func (hub) Audit(string, ...any)     {}
func (hub) FindKey(context.Context, string) (apikeys.Access, error) {
	return apikeys.Access{}, apikeys.ErrUnknown
}
