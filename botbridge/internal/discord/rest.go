package discord

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// maxAnswer bounds an answer of Discord, in bytes.
const maxAnswer = 8 << 20

// userAgent is in the form that Discord demands.
const userAgent = "DiscordBot (https://github.com/comfyhub/comfyhub, 1)"

// rest calls the REST API. Each call is one attempt.
type rest struct {
	base, token string
	http        *http.Client
	holds       *holds
}

func newREST(base, token string, transport *http.Transport) *rest {
	// No timeout of the client: it would bound uploads too. Each call brings its own.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token goes nowhere else
	}}
	return &rest{base: base, token: token, http: client, holds: newHolds()}
}

// call is one call. A path with a token of an answer needs no login.
type call struct {
	method, path string
	// limit names what is limited together; default: the method and the path.
	limit string
	// open means that the path itself is the login: Discord does not count such calls
	// among those of the bot.
	open  bool
	body  any
	files []platform.Attachment
}

// answered is what was observed of a call on the wire.
type answered struct {
	wrote, source atomic.Bool
}

// problem is Discord's description of what is wrong.
type problem struct {
	status     int
	Code       int     `json:"code"`
	Message    string  `json:"message"`
	RetryAfter float64 `json:"retry_after"`
	Global     bool    `json:"global"`
}

func (p *problem) Error() string {
	return fmt.Sprintf("discord: status %d, code %d: %s", p.status, p.Code, p.Message)
}

// do makes a call and decodes its answer, if into is not nil.
func (r *rest) do(ctx context.Context, c call, into any) error {
	c.limit = cmp.Or(c.limit, c.method+" "+c.path)
	if wait := r.holds.wait(c.limit, time.Now(), !c.open); wait > 0 {
		return &platform.WaitError{After: wait}
	}
	seen := &answered{}
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			seen.wrote.Store(true)
		}
	}}
	request, closeAll, err := r.request(httptrace.WithClientTrace(ctx, trace), c, seen)
	if err != nil {
		return err
	}
	defer closeAll()
	response, err := r.http.Do(request)
	if err != nil {
		return seen.explain(hide(err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	r.holds.note(c.limit, response.Header, time.Now())
	switch {
	case response.StatusCode >= http.StatusBadRequest:
		return r.refused(c, response, body)
	case err != nil:
		return fmt.Errorf("%w: %w", platform.ErrUncertain, hide(err))
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: an answer that is no answer", platform.ErrUncertain)
	}
	return nil
}

// explain interprets a call that got no answer.
func (a *answered) explain(err error) error {
	switch {
	case a.source.Load():
		return fmt.Errorf("%w: %w", platform.ErrSource, err)
	case !a.wrote.Load():
		return fmt.Errorf("discord cannot be reached: %w", err)
	}
	return fmt.Errorf("%w: %w", platform.ErrUncertain, err)
}

// refused interprets a status that is an error.
func (r *rest) refused(c call, response *http.Response, body []byte) error {
	p := &problem{status: response.StatusCode}
	known := json.Unmarshal(body, p) == nil
	switch {
	case p.status == http.StatusTooManyRequests:
		after := waitOf(response.Header, p)
		limit := c.limit
		if p.Global || response.Header.Get("X-RateLimit-Global") != "" || !known {
			limit = everything // not Discord itself, but what is in front of it
		}
		r.holds.hold(limit, time.Now().Add(after))
		return &platform.WaitError{After: after}
	case p.status >= http.StatusInternalServerError:
		// It may have taken effect.
		return fmt.Errorf("%w: status %d", platform.ErrUncertain, p.status)
	case p.status == http.StatusUnauthorized && !c.open:
		return ErrToken
	case p.status == http.StatusRequestEntityTooLarge, p.Code == codeTooLarge:
		return fmt.Errorf("%w: %w", platform.ErrTooLarge, p)
	case p.Code == codeUnknownMessage:
		return fmt.Errorf("%w: %w", platform.ErrGone, p)
	case p.Code == codeNoPermission && len(c.files) > 0:
		return fmt.Errorf("%w: %w", platform.ErrNoMedia, p)
	case p.status == http.StatusForbidden, p.Code == codeUnknownChannel:
		return fmt.Errorf("%w: %w", platform.ErrForbidden, p)
	case p.status == http.StatusNotFound:
		return fmt.Errorf("%w: %w", platform.ErrGone, p)
	}
	return fmt.Errorf("%w: %w", platform.ErrRefused, p)
}

// Discord's codes of errors; see https://docs.discord.com/developers/topics/opcodes-and-status-codes.
const (
	codeUnknownChannel     = 10003
	codeUnknownMessage     = 10008
	codeUnknownWebhook     = 10015
	codeUnknownInteraction = 10062
	codeAcknowledged       = 40060
	codeTooLarge           = 40005
	codeNoPermission       = 50013
	codeWebhookToken       = 50027
)

// codeOf returns Discord's code of an error, 0 if there is none.
func codeOf(err error) int {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.Code
	}
	return 0
}

// waitOf returns how long to wait, from the body or the header.
func waitOf(header http.Header, p *problem) time.Duration {
	seconds := p.RetryAfter
	if told, err := strconv.ParseFloat(header.Get("Retry-After"), 64); err == nil {
		seconds = math.Max(seconds, told)
	}
	const longest = 3600
	return time.Duration(math.Min(math.Max(seconds, 0.1), longest) * float64(time.Second))
}

func (r *rest) request(ctx context.Context, c call, seen *answered) (*http.Request, func(), error) {
	var body io.Reader
	kind, closeAll := "application/json", func() {}
	if c.body != nil {
		payload, err := json.Marshal(c.body)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", platform.ErrRefused, err)
		}
		body = bytes.NewReader(payload)
		if len(c.files) > 0 {
			if body, kind, closeAll, err = upload(ctx, payload, c.files, seen); err != nil {
				return nil, nil, err
			}
		}
	}
	request, err := http.NewRequestWithContext(ctx, c.method, r.base+c.path, body)
	if err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("%w: the path of a call is no path", platform.ErrRefused)
	}
	request.Header.Set("User-Agent", userAgent)
	if body != nil {
		request.Header.Set("Content-Type", kind)
	}
	if !c.open {
		request.Header.Set("Authorization", "Bot "+r.token)
	}
	return request, closeAll, nil
}

// upload returns the body of a call with files, which are streamed: none is held in
// memory.
func upload(ctx context.Context, payload []byte, files []platform.Attachment, seen *answered) (io.Reader, string, func(), error) {
	var sources []io.ReadCloser
	for _, f := range files {
		source, err := f.Open(ctx)
		if err != nil {
			for _, s := range sources {
				s.Close()
			}
			return nil, "", nil, fmt.Errorf("%w: %w", platform.ErrSource, err)
		}
		sources = append(sources, source)
	}
	reader, pipe := io.Pipe()
	form := multipart.NewWriter(pipe)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := writeForm(form, payload, files, sources, seen)
		_ = pipe.CloseWithError(err)
	}()
	return reader, form.FormDataContentType(), func() {
		reader.Close()
		<-done
		for _, s := range sources {
			s.Close()
		}
	}, nil
}

func writeForm(form *multipart.Writer, payload []byte, files []platform.Attachment, sources []io.ReadCloser, seen *answered) error {
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="payload_json"`}, "Content-Type": {"application/json"},
	})
	if err == nil {
		_, err = part.Write(payload)
	}
	for i := range files {
		if err != nil {
			return err
		}
		if part, err = form.CreateFormFile(fmt.Sprintf("files[%d]", i), fileName(files[i])); err != nil {
			return err
		}
		_, err = io.Copy(part, &source{sources[i], seen})
	}
	if err != nil {
		return err
	}
	return form.Close()
}

// source is a file being sent. It records when it cannot be read, because then Discord
// has received nothing usable.
type source struct {
	io.Reader
	seen *answered
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.seen.source.Store(true)
	}
	return n, err
}

// fileName makes a name that Discord shows as it is.
func fileName(f platform.Attachment) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\"`, r) {
			return '_'
		}
		return r
	}, f.Name)
	if name == "" || strings.Trim(name, ".") == "" {
		name = "file"
	}
	if f.Spoiler {
		return "SPOILER_" + name // Discord covers what is called so
	}
	return name
}

// hide removes the URL from an error: it may contain the token of an answer.
func hide(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}
