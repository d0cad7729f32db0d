// Package webchat is a chat platform of plain HTTP, for a web page or your own
// program: POST /bridge/messages delivers what users say, and what the bridge says
// goes to a callback URL.
//
// Both directions are signed with one shared secret: X-Bridge-Signature is the hex
// HMAC-SHA256 of the timestamp in X-Bridge-Timestamp (Unix seconds), a dot, and the
// body. A timestamp that is more than five minutes off is refused, so that an
// intercepted message cannot be replayed later; one that is replayed sooner has a
// known id.
package webchat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// Name is the platform's name.
const Name = "webchat"

// Path is where messages come in.
const Path = "/bridge/messages"

// maxRedirects bounds the redirects that are followed to a file.
const maxRedirects = 5

// Options say where messages go. Secret and Callback are required.
type Options struct {
	Secret   string
	Callback string
	// FilesFrom is the URL of a web server's folder that contains every file that
	// users send; empty means that they cannot send any. The bridge fetches no
	// other files, because a message could otherwise make it fetch anything that it
	// can reach.
	FilesFrom string
	// HTTP makes the connections. Default: http.DefaultTransport's settings.
	HTTP *http.Transport
}

// Webchat is the platform. It implements platform.Platform.
type Webchat struct {
	o    Options
	http *http.Client
	// from is FilesFrom; nil for none. files fetches from there and nowhere else.
	from  *place
	files *http.Client
}

var _ platform.Platform = (*Webchat)(nil)

// New returns the platform.
func New(o Options) (*Webchat, error) {
	const shortest = 16
	if len(o.Secret) < shortest {
		return nil, fmt.Errorf("webchat: the secret needs %d characters at least", shortest)
	}
	if u, err := url.Parse(o.Callback); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("webchat: the callback is no URL") // which may contain a secret
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultTransport.(*http.Transport)
	}
	transport := o.HTTP.Clone()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	w := &Webchat{o: o, http: client}
	if o.FilesFrom == "" {
		return w, nil
	}
	from, err := parsePlace(o.FilesFrom)
	if err != nil {
		return nil, fmt.Errorf("files_from: %w, such as https://chat.example/uploads/", err)
	}
	w.from = from
	w.files = &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if _, ok := from.within(r.URL.String()); !ok || len(via) > maxRedirects {
			return platform.ErrRefused
		}
		return nil
	}}
	return w, nil
}

// Close drops idle connections.
func (w *Webchat) Close() { w.http.CloseIdleConnections() }

// Name implements platform.Platform.
func (w *Webchat) Name() string { return Name }

// Limits implements platform.Platform.
func (w *Webchat) Limits() platform.Limits {
	const large = 1 << 40
	return platform.Limits{
		Covers:     true,
		KnowsPosts: true, Linked: true, Text: 64 << 10, Caption: 64 << 10, Photo: large, File: large, Album: 100,
		EditEvery: time.Second, GroupEditEvery: time.Second,
	}
}

// Listen implements platform.Platform: messages come by HTTP.
func (w *Webchat) Listen(ctx context.Context, _ platform.Admit) error {
	<-ctx.Done()
	return ctx.Err()
}

// Said is the body of a callback.
type Said struct {
	// Event is send, edit, delete or answer.
	Event string `json:"event"`
	Chat  string `json:"chat,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Message is the bridge's id of the message that is new, changed or deleted. A
	// second send with the same id is a repetition.
	Message string     `json:"message,omitempty"`
	ReplyTo string     `json:"reply_to,omitempty"`
	Text    string     `json:"text,omitempty"`
	Buttons [][]Button `json:"buttons,omitempty"`
	Files   []File     `json:"files,omitempty"`
	// Asks means that an answer to the message is wanted.
	Asks bool `json:"asks,omitempty"`
	// Press is the button's press that is answered.
	Press string `json:"press,omitempty"`
}

// Button is a button under a message; its data is returned when it is pressed. One with a
// URL opens that instead.
type Button struct {
	Label string `json:"label"`
	Data  string `json:"data,omitempty"`
	URL   string `json:"url,omitempty"`
}

// File is a file of a message. The URL works for a limited time.
type File struct {
	Name  string `json:"name"`
	Media string `json:"media"`
	Size  int64  `json:"size,omitempty"`
	URL   string `json:"url"`
	// Spoiler asks to cover it until somebody wants to see it.
	Spoiler bool `json:"spoiler,omitempty"`
}

// Send implements platform.Platform.
func (w *Webchat) Send(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	id := p.ID
	if id == "" {
		id = uuid.NewString()
	}
	ids := []string{id}
	for range max(0, len(p.Files)-1) {
		ids = append(ids, id)
	}
	return ids, w.post(ctx, "send", to, id, p)
}

// Edit implements platform.Platform.
func (w *Webchat) Edit(ctx context.Context, to platform.Chat, message string, p platform.Post) error {
	return w.post(ctx, "edit", to, message, p)
}

// Delete implements platform.Platform.
func (w *Webchat) Delete(ctx context.Context, to platform.Chat, message string) error {
	return w.say(ctx, Said{Event: "delete", Chat: to.ID, Topic: to.Topic, Message: message})
}

// Answer implements platform.Platform.
func (w *Webchat) Answer(ctx context.Context, press, text string) error {
	return w.say(ctx, Said{Event: "answer", Press: press, Text: text})
}

// post calls back with a post. Its files are sent as links.
func (w *Webchat) post(ctx context.Context, event string, to platform.Chat, id string, p platform.Post) error {
	s := Said{Event: event, Chat: to.ID, Topic: to.Topic, Message: id, ReplyTo: p.ReplyTo, Text: p.Text, Asks: p.Asks}
	for _, row := range p.Buttons {
		var buttons []Button
		for _, b := range row {
			buttons = append(buttons, Button{Label: b.Label, Data: b.Data, URL: b.URL})
		}
		s.Buttons = append(s.Buttons, buttons)
	}
	for _, f := range p.Files {
		if f.Link == nil {
			continue // a preview of a run exists only here
		}
		link, err := f.Link(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", platform.ErrSource, err)
		}
		s.Files = append(s.Files, File{Name: f.Name, Media: string(f.Media), Size: f.Size, URL: link, Spoiler: f.Spoiler})
	}
	return w.say(ctx, s)
}

// say calls back.
func (w *Webchat) say(ctx context.Context, s Said) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.Callback, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", platform.ErrRefused, err)
	}
	r.Header.Set("Content-Type", "application/json")
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set(timestampHeader, timestamp)
	r.Header.Set(signatureHeader, Sign(w.o.Secret, timestamp, body))
	response, err := w.http.Do(r)
	if err != nil {
		// It may have received it. Another attempt has the same id, by which the
		// receiver knows it.
		return fmt.Errorf("%w: %w", platform.ErrUncertain, withoutURL(err))
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	switch status := response.StatusCode; {
	case status < http.StatusMultipleChoices:
		return nil
	case status == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return &platform.WaitError{After: time.Duration(max(1, seconds)) * time.Second}
	case status == http.StatusGone, status == http.StatusNotFound:
		return platform.ErrGone
	case status == http.StatusForbidden:
		return platform.ErrForbidden
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("the callback answered with status %d", status)
	default:
		return fmt.Errorf("%w: status %d", platform.ErrRefused, status)
	}
}

// Open implements platform.Platform: the id of a file is its URL.
func (w *Webchat) Open(ctx context.Context, f platform.File) (io.ReadCloser, error) {
	if w.from == nil {
		return nil, platform.ErrRefused
	}
	u, ok := w.from.within(f.ID)
	if !ok {
		return nil, platform.ErrRefused
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, platform.ErrRefused
	}
	response, err := w.files.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%w: status %d", platform.ErrGone, response.StatusCode)
	}
	return response.Body, nil
}

// withoutURL removes the URL from an error of the HTTP client: it may contain a
// secret, and errors are logged.
func withoutURL(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}
